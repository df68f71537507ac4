"""A body that our seats may vote in, and on what."""

from dataclasses import dataclass

from chain.contracts import Committee
from chain.indexer.records import Submission
from validator import selectors
from validator.judge_queue import TaskKey
from validator.votes import Vote


@dataclass(frozen=True)
class VotingRound:
    """A round or trial in which our seats may vote. `audit_seed` draws the audit sample of its files."""

    where: str
    committee: Committee
    files: list[Submission]
    vote: Vote
    audit_seed: bytes

    @property
    def digest(self) -> bytes:
        return selectors.files_digest(self.files)

    @property
    def task_key(self) -> TaskKey:
        """What the judge queue knows it by."""
        return self.where, self.committee.seed, self.digest
