"""Rows of a file under way outlive their process: what is finished is not computed again, nor taken for another's."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engines.base import Completion, EngineInfo, Generator, Request, Sampling
from protocol.seeds import Work
from tests.validator import tiny
from worker import journal
from worker.journal import Journal

INFO = EngineInfo("made-up", "1", "float32", "cpu")
ASKED = [Request((5, 6), (number, 1, 1), 9) for number in range(6)]
SAMPLING = Sampling(1.0, (1,))


class Counting(Generator):
    """An engine that is killed after `lives` completions, the last request first; `asked`: what it computed."""

    def __init__(self, lives: int = 99, info: EngineInfo = INFO) -> None:
        self.info, self.lives, self.asked = info, lives, list[Request]()

    def load(self, weights: Path) -> None:
        """Nothing to load."""

    def stream(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        for place in reversed(range(len(requests))):
            if not self.lives:
                raise KeyboardInterrupt
            self.lives -= 1
            self.asked.append(requests[place])
            number = requests[place].noise_key[0]
            yield place, Completion((number, 1), (-0.1 / 3, -1e-300), 0, (bytes([number]) * 9,), b"\xff\x00")


def completed(folder: Path, engine: Counting, work: Work, requests: Sequence[Request] = ASKED) -> list[Completion]:
    with Journal(folder).rows(work, engine, SAMPLING) as kept:
        return kept.generate(requests, SAMPLING)


def killed(folder: Path, work: Work, lives: int = 4) -> Path:
    with pytest.raises(KeyboardInterrupt):
        completed(folder, Counting(lives), work)
    (path,) = folder.glob("*.rows")
    return path


def test_only_what_was_not_finished_is_computed_again_and_the_rows_are_the_same(tmp_path: Path) -> None:
    work = tiny.work_of()
    whole = completed(tmp_path / "whole", Counting(), work)
    killed(tmp_path, work)
    engine = Counting()
    assert completed(tmp_path, engine, work) == whole
    assert engine.asked == [ASKED[1], ASKED[0]]
    assert completed(tmp_path, Counting(0), work) == whole, "nothing is left to compute"


@pytest.mark.parametrize("harm", ["cut", "changed", "zeros"])
def test_a_line_that_was_not_written_whole_is_computed_again(tmp_path: Path, harm: str) -> None:
    path = killed(tmp_path, tiny.work_of())
    data, last = path.read_bytes(), path.read_bytes().splitlines(keepends=True)[-1]
    harmed = {"cut": last[:-7], "changed": last.replace(b"0.03", b"0.04"), "zeros": bytes(len(last))}[harm]
    path.write_bytes(data[: -len(last)] + harmed)
    engine = Counting()
    done = completed(tmp_path, engine, tiny.work_of())
    assert done == completed(tmp_path / "whole", Counting(), tiny.work_of())
    assert len(engine.asked) == 3
    assert completed(tmp_path, Counting(0), tiny.work_of()) == done, "the new lines follow the whole ones"


def test_rows_that_another_version_wrote_are_computed_again(tmp_path: Path) -> None:
    """The worker would end with an error at every start, for as long as its file is not made."""
    path = killed(tmp_path, tiny.work_of())
    check, text = journal._check, b'{"ab": {"tokens": [1], "of_tomorrow": 1}}\n'
    path.write_bytes(check(text) + b" " + text + path.read_bytes())
    engine = Counting()
    done = completed(tmp_path, engine, tiny.work_of())
    assert len(engine.asked) == len(ASKED)
    assert completed(tmp_path, Counting(0), tiny.work_of()) == done


def test_rows_of_other_work_weights_or_arithmetic_are_not_taken(tmp_path: Path) -> None:
    """They would be refused as those of another assignment, and cost the node its stake."""
    work = tiny.work_of()
    for other, info in (
        (replace(work, step_seed=b"\x01" * 32), INFO),
        (replace(work, manifest=b"\x01" * 32), INFO),
        (work, replace(INFO, dtype="bfloat16")),
    ):
        killed(tmp_path, work)
        engine = Counting(info=info)
        completed(tmp_path, engine, other)
        assert len(engine.asked) == len(ASKED)
        assert len(list(tmp_path.glob("*.rows"))) == 1
    killed(tmp_path, work)
    engine, longer = Counting(), [replace(one, prompt=(5, 6, 7)) for one in ASKED]
    completed(tmp_path, engine, work, longer)
    assert len(engine.asked) == len(ASKED), "an environment that asks something else now"


def test_rows_are_gone_once_their_file_is_in_the_journal_or_on_chain(tmp_path: Path) -> None:
    work, kept = tiny.work_of(), Journal(tmp_path)
    killed(tmp_path, work)
    kept.add(work, tiny.producer().make(work))
    assert list(tmp_path.glob("*.rows")) == []
    killed(tmp_path, work)
    kept.prune(work.id.counter + 1)
    assert list(tmp_path.glob("*.rows")) == []
