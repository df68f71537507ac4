"""The judge queue: one thread for all pools, which nothing that is missing or large holds up."""

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from attacks.base import other
from chain.indexer.records import MAX_WINDOW, further_lanes, jury_commit_window
from protocol.errors import MusterError, UnreachableError
from protocol.seeds import AUDIT_EVERYTHING, Work
from protocol.verdict import Code, Verdict
from storage.keys import MissingObjectError
from tests.validator import tiny
from tests.validator.scripted import ScriptedJudge, ScriptedObjects, judge_of, tiny_weights
from validator.judging.context import SubmissionFacts
from validator.judging.pipeline import FileJudge
from validator.judging.queue import JudgeQueue, JudgeTask, LaneVerdict
from validator.judging.verdicts import VerdictStore
from validator.pools import PoolCollaborators

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


def test_many_files_of_one_case_let_a_lane_go_first(tmp_path: Path) -> None:
    """After the file at hand: as many as a lane has may take the whole time that the lane has."""
    judge = ScriptedJudge()
    bench = JudgingBench(tmp_path, ScriptedObjects([], b"bytes"), judge)
    judge.gate.clear()
    bench.queue.start()
    case = bench.queue.ask(bench.task(b"c" * 32, *range(40)))
    until(lambda: judge.sequences)
    lane = bench.queue.ask(bench.task(b"l" * 32, 100, 101))
    judge.gate.set()
    assert lane.result(20).codes == (Code.ACCEPT,) * 2
    assert case.result(20).codes == (Code.ACCEPT,) * 40
    bench.queue.stop()
    assert judge.sequences == [0, 100, 101, *range(1, 40)], "none is judged twice"


def test_lanes_whose_files_are_missing_do_not_keep_a_case_from_its_files(tmp_path: Path) -> None:
    """Whoever is accused could hold up its judges with them."""
    judge = ScriptedJudge()
    missing = JudgingBench(
        tmp_path, ScriptedObjects([MissingObjectError("not there")] * 9999, b""), ScriptedJudge(), 60.0
    )
    queue, of_case = missing.queue, judge_of(tmp_path, ScriptedObjects([], b"bytes"), judge)
    for number in range(5):
        queue.ask(missing.task(bytes([number]) * 32, number))
    case = queue.ask(task_of(of_case, 60.0, b"c" * 32, *range(40)))
    queue.start()
    assert case.result(20).codes == (Code.ACCEPT,) * 40
    queue.stop()
    assert judge.sequences == [*range(40)]


class Withholding:
    """Sources that have all files but one, so many times asked."""

    def __init__(self, withheld: bytes, times: int) -> None:
        self.withheld, self.times, self.failures = withheld, times, list[MusterError]()

    def __call__(self, key: str, limit: int) -> bytes:
        if self.times and key.startswith(f"rollouts/{self.withheld.hex()}"):
            self.times -= 1
            raise MissingObjectError("not there")
        return b"bytes"


def whole_task(bench: JudgingBench, count: int, withheld: int, times: int) -> JudgeTask:
    """A case of so many different files, of which one is withheld so often."""
    task = bench.task(b"c" * 32, *range(count))
    shas = [bytes([number]) * 32 for number in range(count)]
    facts = tuple(
        dataclasses.replace(one, commitment=dataclasses.replace(one.commitment, sha256=sha))
        for one, sha in zip(task.facts, shas, strict=True)
    )
    source = Withholding(shas[withheld], times)
    judge = judge_of(bench.folder, source, bench.judge)  # type: ignore[arg-type]
    return dataclasses.replace(task, facts=facts, judge=judge, whole=True)


def test_no_file_of_a_case_is_measured_while_another_is_withheld(tmp_path: Path) -> None:
    """Nor when that one never comes: one file would have a jury measure hundreds for nothing."""
    bench = JudgingBench(tmp_path, ScriptedObjects([], b""), ScriptedJudge(), patience=0.0)
    bench.queue.start()
    verdict = answer(bench.queue, whole_task(bench, 40, 39, 999))
    bench.queue.stop()
    assert verdict.codes == (Code.UNAVAILABLE,) * 40
    assert bench.judge.sequences == []
    assert "file 39 cannot be had" in verdict.verdicts[0].findings[0].note


def test_a_case_whose_last_file_comes_late_is_measured_once(tmp_path: Path) -> None:
    bench = JudgingBench(tmp_path, ScriptedObjects([], b""), ScriptedJudge(), patience=30.0)
    bench.queue.start()
    verdict = answer(bench.queue, whole_task(bench, 40, 39, 1))
    bench.queue.stop()
    assert verdict.codes == (Code.ACCEPT,) * 40
    assert bench.judge.sequences == [*range(40)]


def test_a_lane_goes_first_while_the_files_of_a_case_are_looked_for(tmp_path: Path) -> None:
    """Their sources may take a minute for each."""
    bench = JudgingBench(tmp_path, ScriptedObjects([], b"bytes"), ScriptedJudge(), patience=30.0)
    case, looked, seen = whole_task(bench, 40, 0, 0), list[int](), list[int]()

    class Looked:
        def is_there(self, facts: SubmissionFacts, announced: object) -> bool:
            looked.append(facts.sequence)
            seen.append(len(bench.judge.sequences))
            if len(looked) == 1:
                bench.queue.ask(bench.task(b"l" * 32, 100, 101))
            return True

        def verdict(self, facts: SubmissionFacts, *rest: Any, **more: Any) -> Verdict:
            return case.judge.verdict(facts, *rest, **more)

    sources: Any = Looked()
    bench.queue.start()
    answer(bench.queue, dataclasses.replace(case, judge=sources))
    bench.queue.stop()
    assert looked == [*range(40)]
    assert seen == [0] + [2] * 39, "the lane's two were judged after the first look"
    assert bench.judge.sequences == [100, 101, *range(40)]


def test_the_first_file_has_a_jurys_time_and_every_further_lane_a_committees() -> None:
    """As the window in which they vote: bytes that come in the second hour of seventeen are in time."""
    assert [further_lanes(files) for files in (0, 1, 2, 17, 18, 33, 34, 256)] == [0, 0, 1, 1, 2, 2, 3, 16]
    nobody: Any = None
    pool = PoolCollaborators(nobody, nobody, nobody, nobody, patience=10.0, jury_patience=25.0)
    assert [pool.jury_patience_for(files) for files in (1, 2, 17, 18, 256)] == [25.0, 35.0, 35.0, 45.0, 185.0]


def test_no_case_is_judged_for_longer_than_a_window_may_last() -> None:
    """A stake is held meanwhile; as `JuryTerms.commitWindow` has it."""
    day = 24 * 3600
    terms: Any = SimpleNamespace(juryCommitWindow=day, commitWindow=day)
    assert [jury_commit_window(terms, files) for files in (1, 17, 256)] == [day, 2 * day, 17 * day]
    terms.commitWindow = MAX_WINDOW
    assert [jury_commit_window(terms, files) for files in (1, 17, 256)] == [day, 30 * day, 30 * day]
