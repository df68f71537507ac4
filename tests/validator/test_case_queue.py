"""The judge queue and a node case: its many files hold nobody up, and nobody withholds one at the others' cost."""

import dataclasses
from pathlib import Path
from typing import Any

from protocol.errors import MusterError
from protocol.verdict import Code, Verdict
from storage.keys import MissingObjectError
from tests.validator.scripted import ScriptedJudge, ScriptedObjects, judge_of
from tests.validator.test_judge_queue import JudgingBench, answer, task_of, until
from validator.judging.context import SubmissionFacts
from validator.judging.queue import JudgeTask


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
