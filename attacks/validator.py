"""`python -m attacks.validator --attack lazy --config validator.json`: votes without looking.

`lazy` accepts everything, `liar` rejects everything; `colluder` is honest until its own seats are the majority of a
committee, then lies once and keeps silent once.
"""

import dataclasses
import logging
from typing import TYPE_CHECKING

from attacks.base import launch
from chain.indexer.records import Pool
from chain.indexer.state import State
from protocol.verdict import Code
from validator.config import ValidatorConfig
from validator.judging.checks import verdict_on
from validator.judging.pipeline import JudgeOne
from validator.judging.queue import LaneVerdict
from validator.judging.verdicts import VerdictPublisher
from validator.main import build
from validator.pools import PoolCollaborators, ValidatorCollaborators
from validator.voting import Vote, Voting, ours

if TYPE_CHECKING:
    from validator.daemon import Validator

log = logging.getLogger("muster.validator")
_FIXED = {"lazy": Code.ACCEPT, "liar": Code.REJECT_WEIGHTS}


def always(code: Code) -> JudgeOne:
    """Return a judge that gives every file the same code without reading it."""
    return lambda facts, _data, config, *_: verdict_on(facts, config.digest, code, {"name": "none"})


def _build(attack: str, config: ValidatorConfig) -> "Validator":
    if attack == "colluder":
        return build(config, make_voting=CollusiveVoting)
    return build(config, always(_FIXED[attack]))


class OneLie:
    """Turns one accept into a reject, in the first lane where it can, for all seats of that lane alike."""

    def __init__(self) -> None:
        self._told: dict[str, LaneVerdict] = {}

    def told_elsewhere(self, where: str) -> bool:
        """Return whether it was told, in another lane than this one."""
        return bool(self._told) and where not in self._told

    def bend(self, where: str, honest: LaneVerdict, captured: bool) -> LaneVerdict:
        if captured and not self._told and Code.ACCEPT in honest.codes:
            position = honest.codes.index(Code.ACCEPT)
            codes = (*honest.codes[:position], Code.REJECT_WEIGHTS, *honest.codes[position + 1 :])
            self._told[where] = dataclasses.replace(honest, codes=codes)
            log.info("%s: lying about the file at position %d", where, position)
        return self._told.get(where, honest) if captured else honest


class OneSilence:
    """Keeps silent in one lane, the first that it may when it first sees it, and votes in all others."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._kept = ""

    def keeps(self, where: str, may: bool) -> bool:
        if may and not self._kept and where not in self._seen:
            self._kept = where
            log.info("%s: keeping silent", where)
        self._seen.add(where)
        return where == self._kept


class CollusiveVoting(Voting):
    """Where it has the majority of a committee's votes: lies once, about one file, and the next time keeps silent."""

    def __init__(self, shared: ValidatorCollaborators, pool: PoolCollaborators, publisher: VerdictPublisher) -> None:
        super().__init__(shared, pool, publisher)
        self._lie, self._silence = OneLie(), OneSilence()

    def advance(self, state: State, pool: Pool, vote: Vote, now: int) -> None:
        members, size = len(list(ours(vote.committee, self.voters))), len(vote.committee.seats)
        # Not with all of its seats: then nobody would draw the committee for long.
        stalls = vote.where.startswith("lane-") and vote.where.endswith("-0") and size // 2 < members < size
        if not self._silence.keeps(vote.where, stalls and self._lie.told_elsewhere(vote.where)):
            super().advance(state, pool, vote, now)

    def verdict(self, pool: Pool, vote: Vote) -> LaneVerdict | None:
        honest = super().verdict(pool, vote)
        members = len(list(ours(vote.committee, self.voters)))
        captured = vote.where.startswith("lane-") and 2 * members > len(vote.committee.seats)
        return honest and self._lie.bend(vote.where, honest, captured)


if __name__ == "__main__":
    launch(__doc__, ValidatorConfig, _build, choices=sorted([*_FIXED, "colluder"]), default="lazy")
