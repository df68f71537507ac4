"""How a seat votes in a round of a lane, and in a trial: the same steps on two contracts."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from chain.contracts.court import Court, Juries
from chain.errors import ContractError
from chain.judging import Lane, Round, Trial
from chain.records import Submission
from chain.suite import Suite
from chain.transactions import Receipt
from protocol.verdict import pack
from validator.ballots import Ballot
from validator.judge_queue import LaneVerdict
from validator.rounds import turn

log = logging.getLogger("muster.validator")
_OTHERS_SECONDS, _LOOK_SECONDS = 1.0, 0.1


class Vote(ABC):
    """How a seat votes in a round of a lane or in a trial."""

    current: Round | Trial

    def commitment(self, member: int) -> bytes | None:
        return self.current.commits.get(member)

    def revealed(self, member: int) -> bool:
        return member in self.current.reveals

    @abstractmethod
    def codes(self, verdict: LaneVerdict) -> int:
        """A verdict as the contract takes it."""

    @abstractmethod
    def hash(self, voter: str, codes: int, verdict_hash: bytes, salt: bytes) -> bytes:
        """The hidden vote: 32 bytes."""

    @abstractmethod
    def commit(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        """Send the hidden vote as member `member`."""

    @abstractmethod
    def reveal(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        """Show it."""


class LaneVote(Vote):
    """`files` are the lane's. The member whose turn it is settles with its reveal."""

    def __init__(self, court: Court, lane: Lane, current: Round, files: Sequence[Submission]) -> None:
        self._court = court
        self._place = (lane.pool, lane.lane, current.round)
        self._files = files
        self.current = self._round = current

    def codes(self, verdict: LaneVerdict) -> int:
        return pack(verdict.codes)

    def hash(self, voter: str, codes: int, verdict_hash: bytes, salt: bytes) -> bytes:
        return self._court.ballot_hash(*self._place, voter, codes, verdict_hash, salt)

    def commit(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        return suite.court.commit_votes(*self._place, member, ballot.commitment).send()

    def reveal(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        opened = (*self._place, member, ballot.codes, ballot.verdict_hash, ballot.salt)
        if self._round.all_committed and turn(self._place[1], len(self._round.seats)) == member:
            # The others reveal at the same moment: a second is worth a block, and more is not.
            deadline = time.monotonic() + _OTHERS_SECONDS
            while time.monotonic() < deadline:
                try:
                    return suite.court.reveal_and_settle(*opened, self._files).send()
                except ContractError as error:
                    log.debug("lane %d is not settled with a reveal: %s", self._place[1], error)
                    if error.tx_hash or error.name != "NotSettleable":
                        break
                time.sleep(_LOOK_SECONDS)
        return suite.court.reveal_votes(*opened).send()


class TrialVote(Vote):
    def __init__(self, juries: Juries, trial: Trial) -> None:
        self._juries = juries
        self._trial = trial.trial
        self.current = trial

    def codes(self, verdict: LaneVerdict) -> int:
        return int(verdict.codes[0])

    def hash(self, voter: str, codes: int, verdict_hash: bytes, salt: bytes) -> bytes:
        return self._juries.ballot_hash(self._trial, voter, codes, verdict_hash, salt)

    def commit(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        return suite.juries.commit_vote(self._trial, member, ballot.commitment).send()

    def reveal(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        return suite.juries.reveal_vote(self._trial, member, ballot.codes, ballot.verdict_hash, ballot.salt).send()
