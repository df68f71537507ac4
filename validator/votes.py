"""How a seat votes in a round of a lane, and in a trial: the same steps on two contracts."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from chain.contracts import BallotContract, Court, Juries, Place
from chain.errors import ContractError
from chain.indexer.records import Accusation, Lane, Panel, Round, Submission, Trial
from chain.indexer.state import State
from chain.suite import Suite
from chain.transactions import Receipt
from protocol.config import PoolConfig
from protocol.verdict import LANE, Code, Verdict, pack
from validator.ballots import Ballot
from validator.case_verdict import CaseVerdict, judge_case
from validator.judge_queue import LaneVerdict
from validator.node_evidence import law_of
from validator.rounds import settler

log = logging.getLogger("muster.validator")
_OTHERS_SECONDS, _LOOK_SECONDS = 1.0, 0.1


class Vote(ABC):
    """How a seat votes at `place`: in a round of a lane, or in a trial. `needs_bytes`: whether only a file whose bytes
    could not be had is to be called unavailable; `blames`: whether that outcome has other seats fined;
    `always_answers`: whether a seat that could not judge says so whatever kept it, and whoever chose the pool;
    `as_worker`: whether files are measured by the engine that made them; `whole`: whether one that is missing decides
    for all."""

    needs_bytes, blames, always_answers, as_worker, whole = False, False, False, False, False

    def __init__(self, place: Place, current: Panel) -> None:
        self.place, self.current = place, current

    @abstractmethod
    def codes(self, verdict: LaneVerdict) -> int:
        """A verdict as the contract takes it."""

    @abstractmethod
    def at(self, suite: Suite) -> BallotContract:
        """The contract that takes the votes."""

    def commit(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        """Send the hidden vote as member `member`."""
        return self.at(suite).commit(self.place, member, ballot.commitment).send()

    def show_at_once(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        """Commit and show it in one transaction, as the last member to commit."""
        return self.at(suite).vote(self.place, member, ballot.codes, ballot.verdict_hash, ballot.salt).send()

    def reveal(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        """Show it."""
        return self.at(suite).reveal(self.place, member, ballot.codes, ballot.verdict_hash, ballot.salt).send()


class LaneVote(Vote):
    """`files` are the lane's, `judged` those that the round votes on. The member whose turn it is settles with its
    reveal."""

    def __init__(
        self, lane: Lane, current: Round, files: Sequence[Submission], judged: Sequence[Submission] = ()
    ) -> None:
        super().__init__((lane.pool, lane.lane, current.round), current)
        self._lane, self._files, self._judged = lane.lane, files, judged

    def codes(self, verdict: LaneVerdict) -> int:
        by_place = {file.place: code for file, code in zip(self._judged, verdict.codes, strict=True)}
        return pack([by_place.get(place, Code.NONE) for place in range(LANE)])

    def at(self, suite: Suite) -> Court:
        return suite.court

    def reveal(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        if self.current.all_committed and settler(self.current, self._lane) == member:
            opened = member, ballot.codes, ballot.verdict_hash, ballot.salt
            # The others reveal at the same moment: a second is worth a block, and more is not.
            deadline = time.monotonic() + _OTHERS_SECONDS
            while time.monotonic() < deadline:
                try:
                    return suite.court.reveal_and_settle(self.place, *opened, self._files).send()
                except ContractError as error:
                    log.debug("lane %d is not settled with a reveal: %s", self._lane, error)
                    if error.tx_hash or error.name != "NotSettleable":
                        break
                time.sleep(_LOOK_SECONDS)
        return super().reveal(suite, member, ballot)


class TrialVote(Vote):
    """`accepted`: whether an acceptance is at stake, whose seats are fined when it ends."""

    needs_bytes = True

    def __init__(self, trial: Trial, accepted: bool = True) -> None:
        super().__init__((trial.trial,), trial)
        self.blames = accepted

    def codes(self, verdict: LaneVerdict) -> int:
        return int(verdict.codes[0])

    def at(self, suite: Suite) -> Juries:
        return suite.juries


class CaseVote(TrialVote):
    """In the jury of a node case; `config`: the pool's configuration, None where it could not be had. Whoever accuses
    can name files of any age, whose bytes or weights nobody has any more, and more of them than there is time for: a
    juror's silence would be fined then, and cost the accuser nothing. So it always answers, by which nobody loses but
    the accuser its jury's fees."""

    always_answers, as_worker, whole = True, True, True

    def __init__(self, trial: Trial, case: Accusation, state: State, config: PoolConfig | None) -> None:
        super().__init__(trial, accepted=False)
        self._case, self._state, self._config = case, state, config

    def codes(self, verdict: LaneVerdict) -> int:
        judged = self._judged({one.sequence: one for one in verdict.verdicts})
        log.info("case %d against %s: %s: %s", self._case.case, self._case.node, judged.code.label, judged.why)
        return int(judged.code)

    def _judged(self, verdicts: Mapping[int, Verdict]) -> CaseVerdict:
        pool, node = self._case.pool, self._case.node
        if self._config is None:
            return CaseVerdict(Code.UNAVAILABLE, "the pool's configuration, which names the law, cannot be had")
        law = law_of(self._config, self._state.pools[pool].terms)
        return judge_case(self._case, self._state.submissions_of(pool, node), law, verdicts)
