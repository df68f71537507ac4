"""A validator that votes honestly until its own seats are the majority of a committee; then it rejects honest work."""

import dataclasses
import logging

from protocol.chain.state import Pool
from protocol.verdict import Code
from validator.ballots import Ballot
from validator.bench import Bench, Opinion, Task
from validator.config import ValidatorConfig
from validator.daemon import Sitting, Validator

log = logging.getLogger("muster.validator")


class _BentBench:
    """Passes on the honest bench's opinions, but turns one accept of a captured lane into a reject, once."""

    def __init__(self, honest: Bench) -> None:
        self._honest = honest
        self.captured: set[str] = set()
        self.lies: dict[str, Opinion] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._honest, name)

    def ask(self, task: Task) -> Opinion | None:
        opinion = self._honest.ask(task)
        if opinion is None or task.where not in self.captured:
            return opinion
        if not self.lies and Code.ACCEPT in opinion.codes:
            place = opinion.codes.index(Code.ACCEPT)
            codes = (*opinion.codes[:place], Code.REJECT_WEIGHTS, *opinion.codes[place + 1 :])
            self.lies[task.where] = dataclasses.replace(opinion, codes=codes)
            log.info("%s: lying about submission %d", task.where, task.facts[place].sequence)
        return self.lies.get(task.where, opinion)


class Colluder(Validator):
    """Lies once, about one file, where it has the majority of the committee's votes; honest before and after."""

    def __init__(self, config: ValidatorConfig) -> None:
        super().__init__(config)
        self.bent = _BentBench(self.bench)
        self.bench = self.bent  # type: ignore[assignment]

    def _judged_ballot(self, pool: Pool, sitting: Sitting, seat: int, voter: str) -> Ballot | None:
        ours = len(list(sitting.bench.ours(self.voters)))
        if sitting.where.startswith("lane-") and 2 * ours > len(sitting.bench.seats):
            self.bent.captured.add(sitting.where)
        return super()._judged_ballot(pool, sitting, seat, voter)
