from attacks.collusion import _BentBench
from benchmarks.attack_bed import work_of
from protocol.rollouts.commitment import Commitment
from protocol.verdict import Code
from validator.context import SubmissionFacts
from validator.judge_queue import JudgeTask, LaneVerdict


def task(where: str) -> JudgeTask:
    facts = SubmissionFacts(work_of(), Commitment(bytes(32), bytes(32), 1, 1), 5, bytes(32), 65536)
    return JudgeTask((where, bytes(32), bytes(32)), (facts, facts), ((), ()))


class Honest:
    def ask(self, _: JudgeTask) -> LaneVerdict:
        return LaneVerdict((Code.REJECT_SAMPLING, Code.ACCEPT), b"\1" * 32)


def test_it_lies_once_where_it_has_the_majority_and_says_the_same_for_every_seat() -> None:
    bench = _BentBench(Honest())  # type: ignore[arg-type]
    assert bench.ask(task("lane-1-0-0")) == Honest().ask(task(""))
    bench.captured |= {"lane-1-1-0", "lane-1-2-0"}
    lie = bench.ask(task("lane-1-1-0"))
    assert lie is not None
    assert lie.codes == (Code.REJECT_SAMPLING, Code.REJECT_WEIGHTS)
    assert bench.ask(task("lane-1-1-0")) is lie
    assert bench.ask(task("lane-1-2-0")) == Honest().ask(task("")), "only one lie"
