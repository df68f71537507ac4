"""Documents by number, from files of several kinds, of which never more than one is in memory."""

import json
import os
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from trainer.text import corpus as corpus_module
from trainer.text.corpus import TextFormat
from trainer.text.kept_index import open_corpus


def texts(paths: list[Path], form: TextFormat, cache: Path) -> list[str]:
    found = open_corpus(paths, form, cache)
    return [found.text(number) for number in range(len(found))]


def test_documents_of_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n\n{"text": "zwei ж", "id": 2}\r\n{"text": "  "}\n{"text": "three\\nlines"}')
    assert texts([path], TextFormat(), tmp_path / "cache") == ["one", "zwei ж", "three\nlines"]
    path.write_text('{"body": "one"}\n')
    assert texts([path], TextFormat("body"), tmp_path / "cache") == ["one"]


@pytest.mark.parametrize(
    ("separator", "expected"),
    [
        (None, ["a\n\nb\n---\n---\nc"]),
        ("---", ["a\n\nb\n", "c"]),
        ("", ["a\n", "b\n---\n---\nc"]),
    ],
)
def test_documents_of_plain_text(tmp_path: Path, separator: str | None, expected: list[str]) -> None:
    (tmp_path / "a.txt").write_text("a\n\nb\n---\n---\nc")
    assert texts([tmp_path / "a.txt"], TextFormat(separator=separator), tmp_path / "cache") == expected


def test_files_are_numbered_as_named_and_folders_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    for name in ("b.txt", "a.md", "c.bin"):
        (folder / name).write_text(name)
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "z.txt").write_text("z")
    named = [tmp_path / "z.txt", tmp_path / "empty.txt", folder]
    assert texts(named, TextFormat(), tmp_path / "cache") == ["z", "a.md", "b.txt"]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": 1}\n', "line 2: no text in field `text`"),
        ("a.jsonl", b'{"text": "x"}\n[1]\n', "line 2: no text in field"),
        ("a.jsonl", b'{"text": "x"}\n{"text\n', "line 2: it is not JSON"),
        ("a.jsonl", b'{"text": "\xff"}\n', "line 1: it is not JSON"),
        ("a.txt", b"x\n\xff\n", "line 2: it is not UTF-8"),
        ("a.parquet", b"PAR1", "no file of documents"),
        ("a.txt", b"\n \n", "no document in"),
        ("a.jsonl", b"{" + b"x" * 200, "line 1: a document of more than"),
        ("a.txt", b"1234567\n" * 30, "line 17: a document of more than"),
    ],
)
def test_what_is_no_corpus_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, words: str
) -> None:
    monkeypatch.setattr(corpus_module, "MAX_DOCUMENT_BYTES", 128)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError, match=words):
        open_corpus([tmp_path / name], TextFormat(), tmp_path / "cache")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.txt"):
        open_corpus([tmp_path / "gone.txt"], TextFormat(), tmp_path / "cache")


def test_a_restart_reads_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    index = corpus_module.index_file

    def noted(path: Path, form: TextFormat) -> corpus_module.IndexedFile:
        read.append(path.name)
        return index(path, form)

    monkeypatch.setattr("trainer.text.kept_index.index_file", noted)
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in paths:
        path.write_text(json.dumps({"text": path.name}))
    first = open_corpus(paths, TextFormat(), tmp_path / "cache")
    again = open_corpus(paths, TextFormat(), tmp_path / "cache")
    assert read == ["a.jsonl", "b.jsonl"]
    assert [again.text(number) for number in range(2)] == ["a.jsonl", "b.jsonl"]
    assert first.sha256 == again.sha256
    paths[1].write_text(json.dumps({"text": "other"}))
    os.utime(paths[1], ns=(1, 1))
    changed = open_corpus(paths, TextFormat(), tmp_path / "cache")
    assert read == ["a.jsonl", "b.jsonl", "b.jsonl"]
    assert changed.sha256[0] == first.sha256[0]
    assert changed.sha256[1] != first.sha256[1]
    for kept in (tmp_path / "cache").iterdir():
        kept.write_bytes(kept.read_bytes()[:-30])
    assert open_corpus(paths, TextFormat(), tmp_path / "cache").sha256 == changed.sha256
    assert len(read) == 5, "a damaged index is made again"


def test_an_empty_index_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    assert texts([tmp_path / "a.txt"], TextFormat(), tmp_path / "cache") == ["a"]
    for kept in (tmp_path / "cache").iterdir():
        kept.write_bytes(b"")
    assert texts([tmp_path / "a.txt"], TextFormat(), tmp_path / "cache") == ["a"]


@pytest.mark.parametrize("after", [b"one\n---\nTWO\n", b"one\n"])
def test_a_file_that_changes_during_a_run_is_named(tmp_path: Path, after: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n---\ntwo\n")
    found = open_corpus([path], TextFormat(separator="---"), tmp_path / "cache")
    assert found.text(1) == "two\n"
    path.write_bytes(after)
    with pytest.raises(ConfigError, match=r"a\.txt was changed since"):
        found.text(1)


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    """What is kept apart at its end would be trained on at its beginning."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").symlink_to(tmp_path / "a.txt")
    for named in ([tmp_path / "a.txt", tmp_path], [tmp_path]):
        with pytest.raises(ConfigError, match="is named twice"):
            open_corpus(named, TextFormat(), tmp_path / "cache")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(ConfigError, match="is not a regular file"):
        open_corpus([tmp_path / "a.txt"], TextFormat(), tmp_path / "cache")
