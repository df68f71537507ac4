"""Inner tasks on text: each document is one worker's, by a rule that moves little when workers come
and go; a restored task continues exactly, a newcomer begins where the others are; and as processes, with two ranks."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diloco import inner
from diloco.config import AdmissionConfig, DilocoConfig, DilocoRun, TextTaskConfig
from diloco.log import Log, make_step
from diloco.main import load_first_state
from diloco.tasks import TextTask, text_learner, text_task
from diloco.transport import Transport
from protocol.accounts import Account
from protocol.errors import ConfigError
from runtime.keystore import store
from storage.s3 import Bucket
from tests.diloco.samples import KEYS
from tests.diloco.world import COORDINATOR, NAMES, TRUSTED, make_run
from tests.localnet.services.running import ROOT, ServiceProcess, running, settings_of
from tests.trainer.helpers import small_model
from trainer.model.sharding import Placement

RUN = make_run(2, "tasks", admission=TRUSTED, inner_steps=2)
TEXTS = [f"document {number}: {'abc' * (number % 7)}\n" for number in range(40)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


def write_texts(folder: Path) -> Path:
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


def text_config(folder: Path) -> TextTaskConfig:
    return TextTaskConfig(
        files=(write_texts(folder),), dtype="float32", heldout=4, batch_tokens=128, sequence_tokens=64
    )


def text_worker(model: Path, folder: Path) -> TextTask:
    config = text_config(folder)
    return text_task(config, model, inner.text_corpus(config), RUN, text_learner(config, model, Placement()))


def share(worker: int, step: int = 0, positions: tuple[int, ...] = ()) -> inner.DataShare:
    return inner.DataShare(RUN.seed, NAMES[worker], tuple(NAMES[:2]), (), step, positions)


def test_a_restored_task_continues_exactly(model: Path, tmp_path: Path) -> None:
    task = text_worker(model, tmp_path)
    before = task.metrics()["heldout_loss"]
    assert task.train(share(0), 0) > 0
    task.save(tmp_path / "saved")
    task.finish_save()
    position = task.cursor
    assert task.train(share(0), 1) > 0
    weights, metrics = task.weights(), task.metrics()
    assert metrics["heldout_loss"] != before
    again = text_worker(model, tmp_path)
    again.restore(tmp_path / "saved")
    assert again.cursor == position
    again.train(share(0), 1)
    assert all(np.array_equal(again.weights()[name], one) for name, one in weights.items())
    again.train(share(0, 1, (30, 35, 90)), 0)
    assert again.cursor.position > 35, "a newcomer begins at the lower median of the others' positions"


def test_every_token_is_predicted_once_an_epoch_by_one_worker(tmp_path: Path) -> None:
    corpus = inner.Corpus([write_texts(tmp_path)], "text")
    stream = inner.TextStream(corpus.text, 36, lambda text: tuple(text.encode()), bytes.fromhex(RUN.seed), 16)
    predicted: list[tuple[int, ...]] = []
    for worker in range(2):
        cursor = inner.Cursor()
        while cursor.position < 36:
            pieces, cursor = stream.take(cursor, 24, lambda at, worker=worker: at < 36 and share(worker).owns(at))  # type: ignore[misc]
            predicted += pieces
    assert sum(len(piece) - 1 for piece in predicted) == sum(len(text.encode()) - 1 for text in TEXTS[:36])


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"[1]\n", "byte 0: no text in field `text`"),
        (b'\n{"text": 5}\n', "byte 1: no text in field `text`"),
        (b"{\n", "byte 0: it is not JSON"),
        (b'{"text": "\xff"}\n', "byte 0: it is not JSON"),
        (b"x" * (16 << 20) + b"y", "byte 0: a document of more than 16 MiB"),
    ],
)
def test_what_is_no_text_is_named(data: bytes, word: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(ConfigError, match=word):
        inner.Corpus([tmp_path / "a.jsonl"], "text").text(0)


def test_folders_hold_files_of_json_lines_and_nothing_changes_them(tmp_path: Path) -> None:
    path, empty = write_texts(tmp_path), tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "notes.txt").write_text("no document")
    assert inner.document_files([tmp_path]) == [path]
    with pytest.raises(ConfigError, match="is named twice"):
        inner.document_files([tmp_path, path])
    with pytest.raises(ConfigError, match="no file of JSON lines"):
        inner.document_files([empty])
    corpus = inner.Corpus([path], "text")
    assert [corpus.text(number) for number in range(len(corpus))] == TEXTS
    path.write_text("changed\n")
    with pytest.raises(ConfigError, match="was changed since"):
        corpus.text(0)


def test_a_worker_with_other_documents_is_refused(model: Path, tmp_path: Path) -> None:
    config = text_config(tmp_path)
    digest = inner.data_digest(inner.text_corpus(config), config, model)
    inner.check_data(RUN.model_copy(update={"data": digest}), digest)
    for data, word in ((None, "does not say"), ("ab" * 32, "documents and tokenizer are")):
        with pytest.raises(ConfigError, match=word):
            inner.check_data(RUN.model_copy(update={"data": data}), digest)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_workers_as_processes_one_of_them_with_two_ranks(model: Path, tmp_path: Path) -> None:
    """Text is trained for three outer steps; the states are those that anybody computes from the bucket."""
    task = {"files": [str(write_texts(tmp_path))], "dtype": "float32", "batch_tokens": 128, "sequence_tokens": 64}
    config = TextTaskConfig.model_validate(task)
    run = DilocoRun(
        name="processes", coordinator=COORDINATOR.address, workers=tuple(NAMES[:2]),
        data=inner.data_digest(inner.text_corpus(config), config, model),
        settings=DilocoConfig(inner_steps=2, shards=2, admission=AdmissionConfig(minimum=2, cosine=None)),
    )  # fmt: skip
    (tmp_path / "run.json").write_text(run.model_dump_json())
    (tmp_path / "password").write_text("correct horse battery staple")
    (tmp_path / "password").chmod(0o600)
    keys = {"coordinator": b"\x77" * 32} | {
        name: secret
        for secret in (bytes([number + 1]) * 32 for number in range(6))
        if (name := str(Account.from_key(secret).address)) in run.workers
    }

    def command(name: str, s3: ServiceProcess, **more: Any) -> list[str]:
        store(tmp_path / f"{name}.key", keys[name], "correct horse battery staple", work_factor=1 << 10)
        key = {"keystore": str(tmp_path / f"{name}.key"), "password_file": str(tmp_path / "password")}
        values = {
            "home": str(tmp_path / name), "run": str(tmp_path / "run.json"), "key": key, "model": str(model),
            "s3": settings_of(s3).model_dump(mode="json"), "steps": 3, "poll_seconds": 0.1, **more,
        }  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
        return [sys.executable, "-m", "cli.main", "diloco", "run", "--config", str(tmp_path / f"{name}.json")]

    with running(ServiceProcess("s3", tmp_path / "s3")) as s3:
        commands = [[*command("coordinator", s3, kind="diloco-coordinator"), "--coordinator"]]
        for ranks, name in zip((2, 1), run.workers, strict=True):
            commands.append(command(name, s3, text=task | {"parallel": {"ranks": ranks}}))
        logs = [(tmp_path / f"{number}.log").open("wb") for number in range(3)]
        children = [
            subprocess.Popen(one, cwd=ROOT, stdout=log, stderr=log) for one, log in zip(commands, logs, strict=True)
        ]
        try:
            codes = [child.wait(540) for child in children]
        finally:
            for child in children:
                child.kill()
        assert codes == [0, 0, 0], (tmp_path / f"{codes.index(max(codes))}.log").read_text()[-3000:]
        transport = Transport(Bucket(settings_of(s3)), run)
        newest, state = Log.newest(transport), load_first_state(str(model))
        assert newest is not None
        commits = [commit for _, commit in newest.commits_back()][::-1]
        assert [commit.step for commit in commits] == [0, 1, 2, 3]
        for commit in commits[1:]:
            assert sorted(commit.counted) == sorted(run.workers)
            state, _ = make_step(transport, state, commit)
        for name in run.workers:
            assert json.loads((tmp_path / name / "status.json").read_bytes())["digest"] == state.digest.hex()


# Whose data is whose


WORKERS = [str(key.address) for key in KEYS]
SEED = b"\x07" * 32
ORDER = [5, 8, 9, 6, 0, 2, 7, 3, 4, 1]
ITEMS = [number.to_bytes(32, "big") for number in range(2000)]


def test_every_item_is_of_one_worker_whatever_the_order() -> None:
    found = [inner.owner(SEED, item, WORKERS) for item in ITEMS]
    assert found == [inner.owner(SEED, item, WORKERS[::-1]) for item in ITEMS]
    assert all(400 < count < 600 for count in Counter(found).values())
    assert found != [inner.owner(b"\x08" * 32, item, WORKERS) for item in ITEMS]
    with pytest.raises(ValueError):
        inner.owner(SEED, ITEMS[0], [])


def test_only_the_items_of_who_left_move() -> None:
    for item in ITEMS:
        before, after = inner.owner(SEED, item, WORKERS), inner.owner(SEED, item, WORKERS[1:])
        assert after == before or before == WORKERS[0]


def split(items: Sequence[bytes], workers: Sequence[str] = WORKERS, seed: bytes = SEED) -> dict[str, tuple[bytes, ...]]:
    return inner.Partition(seed.hex(), tuple(item.hex() for item in items), tuple(workers)).split


def test_a_partition_splits_evenly_and_every_file_is_of_one_worker() -> None:
    for count in (0, 1, 3, 7, 8):
        items = ITEMS[:count]
        found = split(items)
        assert sorted(one for mine in found.values() for one in mine) == sorted(items)
        sizes = [len(mine) for mine in found.values()]
        assert max(sizes) - min(sizes) <= 1
        assert found == split([*items[::-1], *items[:1]], WORKERS[::-1])
    assert split(ITEMS[:8]) != split(ITEMS[:8], seed=b"\x08" * 32)
    partition = inner.Partition(SEED.hex(), tuple(one.hex() for one in ITEMS[:7]), tuple(WORKERS))
    for worker, mine in partition.split.items():
        assert list(partition.of(worker)) == sorted(one.hex() for one in mine)
    assert partition.of("0xstranger") == ()


@pytest.mark.parametrize("count", [*range(1, 70), 1000, 1023, 1024, 1025])
def test_an_epoch_has_each_document_once(count: int) -> None:
    assert sorted(inner.shuffled(SEED, 3, at, count) for at in range(count)) == list(range(count))


def test_the_order_of_an_epoch_is_part_of_the_protocol() -> None:
    assert [inner.shuffled(bytes(range(32)), 1, at, 10) for at in range(10)] == ORDER
    assert [inner.shuffled(bytes(range(32)), 2, at, 10) for at in range(10)] != ORDER
    with pytest.raises(ValueError):
        inner.shuffled(SEED, 0, 5, 5)
