"""A validator that votes honestly until its own seats are the majority of a committee; then it rejects honest work."""

import dataclasses
import logging

from chain.records import Pool
from protocol.verdict import Code
from validator.collaborators import ValidatorCollaborators
from validator.committees import ours
from validator.judge_queue import LaneVerdict
from validator.publishing import VerdictPublisher
from validator.voting import Voting, VotingRound

log = logging.getLogger("muster.validator")


class OneLie:
    """Turns one accept into a reject, in the first lane where it can, for all seats of that lane alike."""

    def __init__(self) -> None:
        self._told: dict[str, LaneVerdict] = {}

    def bend(self, where: str, honest: LaneVerdict, captured: bool) -> LaneVerdict:
        if captured and not self._told and Code.ACCEPT in honest.codes:
            place = honest.codes.index(Code.ACCEPT)
            codes = (*honest.codes[:place], Code.REJECT_WEIGHTS, *honest.codes[place + 1 :])
            self._told[where] = dataclasses.replace(honest, codes=codes)
            log.info("%s: lying about the file at place %d", where, place)
        return self._told.get(where, honest) if captured else honest


class CollusiveVoting(Voting):
    """Lies once, about one file, where it has the majority of the committee's votes; honest before and after."""

    def __init__(self, collaborators: ValidatorCollaborators, publisher: VerdictPublisher) -> None:
        super().__init__(collaborators, publisher)
        self._lie = OneLie()

    def verdict(self, pool: Pool, voting: VotingRound) -> LaneVerdict | None:
        honest = super().verdict(pool, voting)
        members = len(list(ours(voting.committee, self.voters)))
        captured = voting.where.startswith("lane-") and 2 * members > len(voting.committee.seats)
        return honest and self._lie.bend(voting.where, honest, captured)
