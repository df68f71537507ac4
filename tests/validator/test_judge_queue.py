"""What the judge queue does first, what it waits for, what it forgets."""

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import TypeVar

import pytest

from attacks.base import other
from protocol.errors import UnreachableError
from protocol.seeds import AUDIT_EVERYTHING, Work
from protocol.verdict import Code
from storage.keys import MissingObjectError
from tests.validator import tiny
from tests.validator.scripted import ScriptedJudge, ScriptedObjects, judge_of, tiny_weights
from validator.judging.pipeline import FileJudge
from validator.judging.queue import JudgeQueue, JudgeTask, LaneVerdict
from validator.judging.verdicts import VerdictStore

T = TypeVar("T")


def answer(queue: JudgeQueue, task: JudgeTask) -> LaneVerdict:
    """What the queue says in the end; asked again and again, as by the daemon."""

    def done() -> "Future[LaneVerdict] | None":
        future = queue.ask(task)
        return future if future.done() and future.exception() is None else None

    return until(done).result()


def until(condition: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@dataclasses.dataclass
class JudgingBench:
    """A queue, and the judge of the one pool whose tasks it gets."""

    folder: Path
    source: ScriptedObjects
    judge: ScriptedJudge
    patience: float = 0.0
    weights: Callable[[Work], Path] = tiny_weights

    def __post_init__(self) -> None:
        self.queue = JudgeQueue(VerdictStore(self.folder))
        self.files = judge_of(self.folder, self.source, self.judge, self.weights)

    def task(self, seed: bytes, *sequences: int, audit_rate: int = AUDIT_EVERYTHING) -> JudgeTask:
        return task_of(self.files, self.patience, seed, *sequences, audit_rate=audit_rate)


def task_of(
    judge: FileJudge, patience: float, seed: bytes, *sequences: int, audit_rate: int = AUDIT_EVERYTHING
) -> JudgeTask:
    facts = tiny.facts(tiny.work_of(), tiny.honest(), audit_rate=audit_rate)
    files = tuple(
        dataclasses.replace(facts, work=other(facts.work, counter=n), sequence=n, lane_seed=seed or bytes(32))
        for n in sequences
    )
    return JudgeTask(("lane-1-0-0", seed, bytes([len(sequences)])), files, ((),) * len(sequences), judge, patience)


def judged(tmp_path: Path, source: ScriptedObjects, patience: float = 30.0) -> tuple[LaneVerdict, list[bytes | None]]:
    judge = ScriptedJudge()
    bench = JudgingBench(tmp_path, source, judge, patience)
    queue = bench.queue
    queue.start()
    verdict = answer(queue, bench.task(b"s" * 32, 5))
    queue.stop()
    return verdict, judge.data


def test_a_file_that_comes_late_is_judged(tmp_path: Path) -> None:
    verdict, seen = judged(tmp_path, ScriptedObjects([MissingObjectError("not there")], b"bytes"))
    assert verdict.codes == (Code.ACCEPT,)
    assert seen == [b"bytes"]


def test_a_file_that_no_source_has_is_unavailable(tmp_path: Path) -> None:
    verdict, _ = judged(tmp_path, ScriptedObjects([MissingObjectError("not there")] * 99, b""), patience=0.0)
    assert verdict.codes == (Code.UNAVAILABLE,)


def test_silent_sources_never_count_against_a_file(tmp_path: Path) -> None:
    verdict, seen = judged(tmp_path, ScriptedObjects([UnreachableError("down")] * 2, b"bytes"), patience=0.0)
    assert verdict.codes == (Code.ACCEPT,)
    assert seen == [b"bytes"]


def test_what_was_judged_before_the_draw_is_not_judged_again(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    bench = JudgingBench(tmp_path, ScriptedObjects([], b"bytes"), judge)
    queue = bench.queue
    queue.start()
    queue.prepare(bench.task(b"", 0))
    queue.prepare(bench.task(b"", 0, 1))
    queue.prepare(bench.task(b"", 0, 1))
    until(lambda: len(judge.sequences) == 2)
    assert not list((tmp_path / "documents").iterdir()), "a vote was prepared before the draw"
    drawn = bench.task(b"s" * 32, 0, 1, 2)
    answer(queue, drawn)
    queue.stop()
    assert judge.sequences == [0, 1, 2]


def test_what_is_asked_for_comes_first(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    bench = JudgingBench(tmp_path, ScriptedObjects([], b"bytes"), judge)
    queue = bench.queue
    queue.prepare(bench.task(b"", 0, 1, 2))
    asked = bench.task(b"s" * 32, 9)
    queue.ask(asked)
    queue.start()
    until(lambda: len(judge.sequences) == 4)
    queue.stop()
    assert judge.sequences[0] == 9


def test_a_file_that_is_not_there_yet_is_not_judged_before_the_draw(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    bench = JudgingBench(tmp_path, ScriptedObjects([MissingObjectError("not there")], b"bytes"), judge)
    queue = bench.queue
    queue.start()
    queue.prepare(bench.task(b"", 0))
    until(lambda: judge.sequences)
    drawn = bench.task(b"s" * 32, 0)
    verdict = answer(queue, drawn)
    queue.stop()
    assert verdict.codes == (Code.ACCEPT,)


def test_where_the_draw_decides_what_is_looked_at_only_weights_are_fetched_before_it(tmp_path: Path) -> None:
    judge, fetched = ScriptedJudge(), list[int]()

    def weights(work: Work) -> Path:
        fetched.append(work.id.counter)
        return tmp_path

    bench = JudgingBench(tmp_path, ScriptedObjects([], b"bytes"), judge, weights=weights)
    queue = bench.queue
    queue.start()
    queue.prepare(bench.task(b"", 0, 1, audit_rate=20000))
    until(lambda: fetched == [0, 1])
    queue.stop()
    assert not judge.sequences


def test_work_ahead_gives_way_to_what_is_asked_for_and_is_not_taken_up_again(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    bench = JudgingBench(tmp_path, ScriptedObjects([], b"bytes"), judge)
    queue = bench.queue
    judge.gate.clear()
    queue.start()
    queue.prepare(bench.task(b"", 0, 1, 2))
    until(lambda: judge.sequences)
    asked = queue.ask(bench.task(b"s" * 32, 9))
    judge.gate.set()
    assert asked.result(20).codes == (Code.ACCEPT,)
    queue.prepare(bench.task(b"", 0, 1, 2))
    queue.stop()
    assert judge.sequences == [0, 9]


def test_requests_that_nobody_wants_any_more_are_neither_judged_nor_remembered(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    bench = JudgingBench(tmp_path, ScriptedObjects([], b"bytes"), judge)
    queue = bench.queue
    judge.gate.clear()
    queue.start()
    running = queue.ask(bench.task(b"s" * 32, 0, 1))
    until(lambda: judge.sequences)
    waiting, wanted = bench.task(b"t" * 32, 5), bench.task(b"u" * 32, 7)
    dropped, kept = queue.ask(waiting), queue.ask(wanted)
    queue.prepare(bench.task(b"", 6))
    queue.retain({wanted.key})
    assert len(queue) == 1
    judge.gate.set()
    assert kept.result(20).codes == (Code.ACCEPT,)
    assert dropped.cancelled()
    with pytest.raises(CancelledError):
        running.result(20)
    queue.stop()
    assert judge.sequences == [0, 7], "the file at hand is finished, the rest is dropped"


def test_what_is_remembered_does_not_grow_with_the_lanes_that_were_judged(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    bench = JudgingBench(tmp_path, ScriptedObjects([], b"bytes"), judge)
    queue = bench.queue
    queue.start()
    for number in range(50):
        task = bench.task(bytes([number]) * 32, number)
        answer(queue, task)
        queue.retain({task.key})
    assert len(queue) == 1
    queue.retain(())
    assert len(queue) == 0
    queue.stop()
    assert len(judge.sequences) == 50


def test_a_file_that_nobody_waits_for_any_more_is_not_called_unavailable(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    source = ScriptedObjects([MissingObjectError("not there")] * 99, b"")
    bench = JudgingBench(tmp_path, source, judge, patience=60.0)
    queue = bench.queue
    queue.start()
    asked = queue.ask(bench.task(b"s" * 32, 0))
    until(lambda: len(source.failures) < 99)
    queue.retain(())
    with pytest.raises(CancelledError):
        asked.result(20)
    queue.stop()
    assert not judge.sequences


def test_a_missing_file_of_one_pool_does_not_hold_up_the_files_of_another(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    missing = JudgingBench(
        tmp_path, ScriptedObjects([MissingObjectError("not there")] * 999, b""), ScriptedJudge(), 60.0
    )
    other = judge_of(tmp_path, ScriptedObjects([], b"bytes"), judge)
    queue = missing.queue
    lost = [queue.ask(missing.task(bytes([number]) * 32, number)) for number in range(5)]
    queue.start()
    started = time.monotonic()
    assert queue.ask(task_of(other, 60.0, b"s" * 32, 9)).result(60).codes == (Code.ACCEPT,)
    assert time.monotonic() - started < 30.0, "it did not wait out anybody's patience"
    queue.stop()
    assert judge.sequences == [9]
    assert not missing.judge.sequences
    assert all(one.cancelled() for one in lost), "neither voted on nor forgotten before the end"


def test_the_other_files_of_a_lane_are_judged_while_one_is_missing(tmp_path: Path) -> None:
    source = ScriptedObjects([MissingObjectError("not there")], b"bytes")
    bench = JudgingBench(tmp_path, source, ScriptedJudge(), patience=60.0)
    bench.queue.start()
    assert bench.queue.ask(bench.task(b"s" * 32, 0, 1)).result(20).codes == (Code.ACCEPT, Code.ACCEPT)
    bench.queue.stop()
    assert bench.judge.sequences == [1, 0]
