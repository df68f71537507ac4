"""The judge queue: one thread for all pools, which nothing that is missing or large holds up."""

import dataclasses
import errno
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attacks.base import other_work
from chain.indexer.records import MAX_WINDOW, further_lanes, jury_commit_window
from protocol.errors import MusterError, UnreachableError
from protocol.verdict import Code
from protocol.waits import wait_for
from storage.keys import MissingObjectError
from tests.validator import tiny
from tests.validator.scripted import ScriptedJudge, ScriptedObjects, judge_of
from validator.judging.checks import SubmissionFacts
from validator.judging.pipeline import FileJudge
from validator.judging.queue import JudgeQueue, JudgeTask, LaneVerdict, retry_pause
from validator.judging.verdicts import VerdictStore
from validator.pools import PoolCollaborators

MISSING = MissingObjectError("not there")


def until(condition: Callable[[], Any]) -> None:
    wait_for("the queue", lambda: condition() or None, 60, poll=0.02)


class JudgingBench:
    """A queue, and the judge of the one pool whose tasks it gets: its sources fail with `failures` first."""

    def __init__(self, folder: Path, failures: list[MusterError] | None = None, patience: float = 0.0) -> None:
        self.folder, self.patience, self.judge = folder, patience, ScriptedJudge()
        self.source = ScriptedObjects(failures)
        self.queue = JudgeQueue(VerdictStore(folder))
        self.files = judge_of(folder, self.source, self.judge)

    @property
    def sequences(self) -> list[int]:
        return self.judge.sequences

    @contextmanager
    def running(self) -> Iterator[JudgeQueue]:
        self.queue.start()
        yield self.queue
        self.queue.stop()

    def task(self, seed: bytes, *sequences: int, judge: FileJudge | None = None) -> JudgeTask:
        facts = dataclasses.replace(tiny.facts(tiny.work_of(), tiny.honest()), lane_seed=seed * 32)
        files = tuple(
            dataclasses.replace(facts, work=other_work(facts.work, counter=number), sequence=number)
            for number in sequences
        )
        key = "lane-1-0-0", seed * 32, bytes([len(sequences)])
        return JudgeTask(key, files, ((),) * len(sequences), judge or self.files, self.patience)

    def answer(self, task: JudgeTask) -> LaneVerdict:
        """What the queue says in the end; asked again and again, as by the daemon."""

        def done() -> "Future[LaneVerdict] | None":
            future = self.queue.ask(task)
            return future if future.done() and future.exception() is None else None

        return wait_for("the verdict", done, 60, poll=0.02).result()


@pytest.mark.parametrize(
    ("failures", "patience", "code", "seen"),
    [
        ([MISSING], 30.0, Code.ACCEPT, [b"bytes"]),
        ([MISSING] * 99, 0.0, Code.UNAVAILABLE, [None]),
        ([UnreachableError("down")] * 2, 0.0, Code.ACCEPT, [b"bytes"]),
    ],
    ids=["comes late", "no source has it", "silent sources never count against it"],
)
def test_a_file_is_judged_once_it_is_there_and_unavailable_once_all_sources_say_so(
    failures: list[MusterError], patience: float, code: Code, seen: list[bytes | None], tmp_path: Path
) -> None:
    bench = JudgingBench(tmp_path, list(failures), patience)
    with bench.running():
        assert bench.answer(bench.task(b"s", 5)).codes == (code,)
    assert bench.judge.data == seen


def test_a_lost_device_ends_the_process_and_other_faults_are_named_until_one_file_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, ends = JudgingBench(tmp_path), list[str]()
    monkeypatch.setattr("runtime.entry._Death.follow", staticmethod(ends.append))
    monkeypatch.setattr("validator.judging.queue._RETRY_SECONDS", 0.01)
    faults: list[Exception] = [torch.OutOfMemoryError("CUDA out of memory")]
    judge = bench.judge

    def failing(*given: Any) -> Any:
        if faults:
            raise faults.pop()
        return judge(*given)

    bench.files._judge_one = failing
    with bench.running() as queue:
        queue.ask(bench.task(b"a", 1))
        until(lambda: "CUDA out of memory" in queue.problem)
        bench.answer(bench.task(b"a", 1))
        assert queue.problem == ""
        error = MusterError("vLLM failed")
        error.__cause__ = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        faults.append(error)
        queue.ask(bench.task(b"b", 2))
        until(lambda: ends)
        assert "the thread `judge` died: MusterError: vLLM failed" in ends[0]


def test_requests_that_nobody_wants_any_more_are_neither_judged_nor_remembered(tmp_path: Path) -> None:
    bench = JudgingBench(tmp_path)
    bench.judge.gate.clear()
    with bench.running() as queue:
        running = queue.ask(bench.task(b"s", 0, 1))
        until(lambda: bench.sequences)
        wanted = bench.task(b"u", 7)
        dropped, kept = queue.ask(bench.task(b"t", 5)), queue.ask(wanted)
        queue.retain({wanted.key})
        assert len(queue._requests) == 1
        bench.judge.gate.set()
        assert kept.result(20).codes == (Code.ACCEPT,)
        assert dropped.cancelled()
        with pytest.raises(CancelledError):
            running.result(20)
    assert bench.sequences == [0, 7], "the file at hand is finished, the rest is dropped"


def test_what_is_remembered_does_not_grow_with_the_lanes_that_were_judged(tmp_path: Path) -> None:
    bench = JudgingBench(tmp_path)
    with bench.running() as queue:
        for number in range(50):
            task = bench.task(bytes([number + 1]), number)
            bench.answer(task)
            queue.retain({task.key})
        assert len(queue._requests) == 1
        queue.retain(())
        assert len(queue._requests) == 0
    assert len(bench.sequences) == 50


def test_a_file_that_nobody_waits_for_any_more_is_not_called_unavailable(tmp_path: Path) -> None:
    bench = JudgingBench(tmp_path, [MISSING] * 99, patience=60.0)
    with bench.running() as queue:
        asked = queue.ask(bench.task(b"s", 0))
        until(lambda: len(bench.source.failures) < 99)
        queue.retain(())
        with pytest.raises(CancelledError):
            asked.result(20)
    assert not bench.sequences


@pytest.mark.parametrize("count", [1, 40])
def test_missing_files_of_one_pool_hold_up_neither_a_lane_nor_a_challenge_of_another(
    count: int, tmp_path: Path
) -> None:
    """Whoever is accused could hold up its judges with them."""
    missing, judge = JudgingBench(tmp_path, [MISSING] * 9999, patience=60.0), ScriptedJudge()
    served = judge_of(tmp_path, ScriptedObjects(), judge)
    lost = [missing.queue.ask(missing.task(bytes([number + 1]), number)) for number in range(5)]
    started = time.monotonic()
    with missing.running() as queue:
        asked = queue.ask(missing.task(b"s", *range(count), judge=served))
        assert asked.result(60).codes == (Code.ACCEPT,) * count
        assert time.monotonic() - started < 30.0, "it did not wait out anybody's patience"
    assert judge.sequences == [*range(count)]
    assert not missing.sequences
    assert all(one.cancelled() for one in lost), "neither voted on nor forgotten before the end"


def test_the_other_files_of_a_lane_are_judged_while_one_is_missing(tmp_path: Path) -> None:
    bench = JudgingBench(tmp_path, [MISSING], patience=60.0)
    with bench.running() as queue:
        assert queue.ask(bench.task(b"s", 0, 1)).result(20).codes == (Code.ACCEPT, Code.ACCEPT)
    assert bench.sequences == [1, 0]


def test_many_files_of_one_challenge_let_a_lane_go_first(tmp_path: Path) -> None:
    """After the file at hand: as many as a lane has may take the whole time that the lane has."""
    bench = JudgingBench(tmp_path)
    bench.judge.gate.clear()
    with bench.running() as queue:
        challenge = queue.ask(bench.task(b"c", *range(40)))
        until(lambda: bench.sequences)
        lane = queue.ask(bench.task(b"l", 100, 101))
        bench.judge.gate.set()
        assert lane.result(20).codes == (Code.ACCEPT,) * 2
        assert challenge.result(20).codes == (Code.ACCEPT,) * 40
    assert bench.sequences == [0, 100, 101, *range(1, 40)], "none is judged twice"


def whole_task(bench: JudgingBench, count: int, withheld: int, times: int) -> JudgeTask:
    """A challenge of so many different files, of which one is withheld so often."""
    task = bench.task(b"c", *range(count))
    facts = tuple(
        dataclasses.replace(one, commitment=dataclasses.replace(one.commitment, sha256=bytes([number]) * 32))
        for number, one in enumerate(task.facts)
    )
    source = ScriptedObjects()
    source.withheld[bytes([withheld]) * 32] = [MISSING] * times
    return dataclasses.replace(task, facts=facts, judge=judge_of(bench.folder, source, bench.judge), whole=True)


@pytest.mark.parametrize(("times", "patience"), [(999, 0.0), (1, 30.0)], ids=["for ever", "once"])
def test_no_file_of_a_challenge_is_measured_while_another_is_withheld(
    times: int, patience: float, tmp_path: Path
) -> None:
    """Nor when that one never comes: one file would have a jury measure hundreds for nothing."""
    bench = JudgingBench(tmp_path, patience=patience)
    with bench.running():
        verdict = bench.answer(whole_task(bench, 40, 39, times))
    late = times == 1
    assert verdict.codes == (Code.ACCEPT if late else Code.UNAVAILABLE,) * 40
    assert bench.sequences == ([*range(40)] if late else []), "none, or each once"
    assert late or "file 39 cannot be had" in verdict.verdicts[0].findings[0].note


def test_a_lane_goes_first_while_the_files_of_a_challenge_are_looked_for(tmp_path: Path) -> None:
    """Their sources may take a minute for each."""
    bench = JudgingBench(tmp_path, patience=30.0)
    challenge, looked, seen = whole_task(bench, 40, 0, 0), list[int](), list[int]()

    def is_there(facts: SubmissionFacts, announced: object) -> bool:
        looked.append(facts.sequence)
        seen.append(len(bench.sequences))
        if len(looked) == 1:
            bench.queue.ask(bench.task(b"l", 100, 101))
        return True

    sources: Any = SimpleNamespace(is_there=is_there, verdict=challenge.judge.verdict)
    with bench.running():
        bench.answer(dataclasses.replace(challenge, judge=sources))
    assert looked == [*range(40)]
    assert seen == [0] + [2] * 39, "the lane's two were judged after the first look"
    assert bench.sequences == [100, 101, *range(40)]


def test_the_first_file_has_a_jurys_time_and_every_further_lane_a_committees() -> None:
    """As the window in which they vote: bytes that come in the second hour of seventeen are in time. No window may last
    longer than MAX_WINDOW, because a stake is held meanwhile; `Juries.summon` has it so."""
    assert [further_lanes(files) for files in (0, 1, 2, 17, 18, 33, 34, 256)] == [0, 0, 1, 1, 2, 2, 3, 16]
    nobody: Any = None
    pool = PoolCollaborators(nobody, nobody, nobody, nobody, patience=10.0, jury_patience=25.0)
    assert [pool.jury_patience_for(files) for files in (1, 2, 17, 18, 256)] == [25.0, 35.0, 35.0, 45.0, 185.0]
    day = 24 * 3600
    for window, days in ((day, [1, 2, 17]), (MAX_WINDOW, [1, 30, 30])):
        terms: Any = SimpleNamespace(juryCommitWindow=day, commitWindow=window)
        assert [jury_commit_window(terms, files) for files in (1, 17, 256)] == [day * one for one in days]


@pytest.mark.parametrize(
    ("tried", "patience", "pause"),
    [(2.0, 3600.0, 6.0), (0.01, 3600.0, 0.25), (54.0, 3600.0, 162.0), (54.0, 80.0, 20.0)],
    ids=["slow", "fast", "very slow", "very slow in a short window"],
)
def test_no_pause_after_a_slow_try_takes_a_window_away(tried: float, patience: float, pause: float) -> None:
    assert retry_pause(0.25, tried, patience) == pause


def test_a_verdict_that_the_disk_has_no_room_for_is_voted_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(VerdictStore, "keep", full)
    bench = JudgingBench(tmp_path)
    with bench.running():
        assert bench.answer(bench.task(b"s", 3)).codes == (Code.ACCEPT,)
    assert bench.sequences == [3], "judged once"
