"""What the judge queue does first, what it waits for, what it forgets."""

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import TypeVar

import pytest

from attacks.base import other
from protocol.audit import AUDIT_EVERYTHING
from protocol.errors import UnreachableError
from protocol.seeds import Work
from protocol.verdict import Code
from storage.keys import MissingObjectError
from tests.validator import tiny
from tests.validator.scripted import ScriptedJudge, ScriptedObjects, queue_of
from validator.judge_queue import JudgeQueue, JudgeTask, LaneVerdict

T = TypeVar("T")


def answer(queue: JudgeQueue, task: JudgeTask) -> LaneVerdict:
    """What the queue says in the end; asked again and again, as by the daemon."""

    def done() -> "Future[LaneVerdict] | None":
        future = queue.ask(task)
        return future if future.done() and future.exception() is None else None

    return until(done).result()


def until(condition: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + 20
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def task_of(seed: bytes, *sequences: int, audit_rate: int = AUDIT_EVERYTHING) -> JudgeTask:
    facts = tiny.facts(tiny.work_of(), tiny.honest(), audit_rate=audit_rate)
    files = tuple(
        dataclasses.replace(facts, work=other(facts.work, counter=n), sequence=n, lane_seed=seed or bytes(32))
        for n in sequences
    )
    return JudgeTask(("lane-1-0-0", seed, bytes([len(sequences)])), files, ((),) * len(sequences))


def judged(tmp_path: Path, source: ScriptedObjects, patience: float = 30.0) -> tuple[LaneVerdict, list[bytes | None]]:
    judge = ScriptedJudge()
    queue = queue_of(tmp_path, source, judge, patience)
    queue.start()
    verdict = answer(queue, task_of(b"s" * 32, 5))
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
    queue = queue_of(tmp_path, ScriptedObjects([], b"bytes"), judge)
    queue.start()
    queue.prepare(task_of(b"", 0))
    queue.prepare(task_of(b"", 0, 1))
    queue.prepare(task_of(b"", 0, 1))
    until(lambda: len(judge.sequences) == 2)
    assert not list((tmp_path / "documents").iterdir()), "a vote was prepared before the draw"
    drawn = task_of(b"s" * 32, 0, 1, 2)
    answer(queue, drawn)
    queue.stop()
    assert judge.sequences == [0, 1, 2]


def test_what_is_asked_for_comes_first(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    queue = queue_of(tmp_path, ScriptedObjects([], b"bytes"), judge)
    queue.prepare(task_of(b"", 0, 1, 2))
    asked = task_of(b"s" * 32, 9)
    queue.ask(asked)
    queue.start()
    until(lambda: len(judge.sequences) == 4)
    queue.stop()
    assert judge.sequences[0] == 9


def test_a_file_that_is_not_there_yet_is_not_judged_before_the_draw(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    queue = queue_of(tmp_path, ScriptedObjects([MissingObjectError("not there")], b"bytes"), judge)
    queue.start()
    queue.prepare(task_of(b"", 0))
    until(lambda: judge.sequences)
    drawn = task_of(b"s" * 32, 0)
    verdict = answer(queue, drawn)
    queue.stop()
    assert verdict.codes == (Code.ACCEPT,)


def test_where_the_draw_decides_what_is_looked_at_only_weights_are_fetched_before_it(tmp_path: Path) -> None:
    judge, fetched = ScriptedJudge(), list[int]()

    def weights(work: Work) -> Path:
        fetched.append(work.id.counter)
        return tmp_path

    queue = queue_of(tmp_path, ScriptedObjects([], b"bytes"), judge, weights=weights)
    queue.start()
    queue.prepare(task_of(b"", 0, 1, audit_rate=20000))
    until(lambda: fetched == [0, 1])
    queue.stop()
    assert not judge.sequences


def test_work_ahead_gives_way_to_what_is_asked_for_and_is_not_taken_up_again(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    queue = queue_of(tmp_path, ScriptedObjects([], b"bytes"), judge)
    judge.gate.clear()
    queue.start()
    queue.prepare(task_of(b"", 0, 1, 2))
    until(lambda: judge.sequences)
    asked = queue.ask(task_of(b"s" * 32, 9))
    judge.gate.set()
    assert asked.result(20).codes == (Code.ACCEPT,)
    queue.prepare(task_of(b"", 0, 1, 2))
    queue.stop()
    assert judge.sequences == [0, 9]


def test_requests_that_nobody_wants_any_more_are_neither_judged_nor_remembered(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    queue = queue_of(tmp_path, ScriptedObjects([], b"bytes"), judge)
    judge.gate.clear()
    queue.start()
    running = queue.ask(task_of(b"s" * 32, 0, 1))
    until(lambda: judge.sequences)
    waiting, wanted = task_of(b"t" * 32, 5), task_of(b"u" * 32, 7)
    dropped, kept = queue.ask(waiting), queue.ask(wanted)
    queue.prepare(task_of(b"", 6))
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
    queue = queue_of(tmp_path, ScriptedObjects([], b"bytes"), judge)
    queue.start()
    for number in range(50):
        task = task_of(bytes([number]) * 32, number)
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
    queue = queue_of(tmp_path, source, judge, patience=60.0)
    queue.start()
    asked = queue.ask(task_of(b"s" * 32, 0))
    until(lambda: len(source.failures) < 99)
    queue.retain(())
    with pytest.raises(CancelledError):
        asked.result(20)
    queue.stop()
    assert not judge.sequences
