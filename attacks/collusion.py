"""A validator that votes honestly until its own seats are the majority of a committee; then it rejects honest work."""

import dataclasses
import logging
from concurrent.futures import Future

from chain.records import Pool
from protocol.verdict import Code
from validator.ballots import Ballot
from validator.config import ValidatorConfig
from validator.daemon import Validator, VotingRound
from validator.judge_queue import JudgeQueue, JudgeTask, LaneVerdict

log = logging.getLogger("muster.validator")


class _BentQueue:
    """Passes on the honest queue's verdicts, but turns one accept of a captured lane into a reject, once."""

    def __init__(self, honest: JudgeQueue) -> None:
        self._honest = honest
        self.captured: set[str] = set()
        self.lies: dict[str, Future[LaneVerdict]] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._honest, name)

    def ask(self, task: JudgeTask) -> "Future[LaneVerdict]":
        answer = self._honest.ask(task)
        if not answer.done() or answer.exception() is not None or task.where not in self.captured:
            return answer
        verdict = answer.result()
        if not self.lies and Code.ACCEPT in verdict.codes:
            place = verdict.codes.index(Code.ACCEPT)
            codes = (*verdict.codes[:place], Code.REJECT_WEIGHTS, *verdict.codes[place + 1 :])
            self.lies[task.where] = Future()
            self.lies[task.where].set_result(dataclasses.replace(verdict, codes=codes))
            log.info("%s: lying about submission %d", task.where, task.facts[place].sequence)
        return self.lies.get(task.where, answer)


class Colluder(Validator):
    """Lies once, about one file, where it has the majority of the committee's votes; honest before and after."""

    def __init__(self, config: ValidatorConfig) -> None:
        super().__init__(config)
        self.bent = _BentQueue(self.bench)
        self.bench = self.bent  # type: ignore[assignment]

    def _judged_ballot(self, pool: Pool, voting: VotingRound, seat: int, voter: str) -> Ballot | None:
        ours = len(list(voting.bench.ours(self.voters)))
        if voting.where.startswith("lane-") and 2 * ours > len(voting.bench.seats):
            self.bent.captured.add(voting.where)
        return super()._judged_ballot(pool, voting, seat, voter)
