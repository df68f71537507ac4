from concurrent.futures import Future

from attacks.collusion import _BentQueue
from benchmarks.attack_bed import work_of
from protocol.rollouts.commitment import Commitment
from protocol.verdict import Code
from validator.context import SubmissionFacts
from validator.judge_queue import JudgeTask, LaneVerdict


def task(where: str) -> JudgeTask:
    facts = SubmissionFacts(work_of(), Commitment(bytes(32), bytes(32), 1, 1), 5, bytes(32), 65536)
    return JudgeTask((where, bytes(32), bytes(32)), (facts, facts), ((), ()))


HONEST = LaneVerdict((Code.REJECT_SAMPLING, Code.ACCEPT), b"\1" * 32)


class HonestQueue:
    def ask(self, _: JudgeTask) -> "Future[LaneVerdict]":
        answer: Future[LaneVerdict] = Future()
        answer.set_result(HONEST)
        return answer


def test_it_lies_once_where_it_has_the_majority_and_says_the_same_for_every_seat() -> None:
    queue = _BentQueue(HonestQueue())  # type: ignore[arg-type]
    assert queue.ask(task("lane-1-0-0")).result() == HONEST
    queue.captured |= {"lane-1-1-0", "lane-1-2-0"}
    lie = queue.ask(task("lane-1-1-0")).result()
    assert lie is not None
    assert lie.codes == (Code.REJECT_SAMPLING, Code.REJECT_WEIGHTS)
    assert queue.ask(task("lane-1-1-0")).result() is lie
    assert queue.ask(task("lane-1-2-0")).result() == HONEST, "only one lie"
