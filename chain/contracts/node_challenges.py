"""Challenges against nodes, for what several of their files show together."""

from collections.abc import Sequence
from dataclasses import dataclass

from chain.contracts.base import ContractCall, record
from chain.contracts.token import TokenTaker
from chain.judging import CaseOutcome
from chain.records import Submission
from chain.transactions import Receipt

MOST_FILES = 256
"""NodeChallenges.MAX_FILES."""


@dataclass(frozen=True)
class NodeChallengeView:
    """INodeChallenges.NodeChallenge; `bond` in base units. `outcome` is NONE for a number that no challenge has."""

    pool: int
    node: str
    accuser: str
    bond: int
    trial: int
    outcome: CaseOutcome
    opened_at: int


class NodeChallenges(TokenTaker):
    """Called by whoever accuses, and by keepers."""

    name = "NodeChallenges"

    def open(self, files: Sequence[Submission], evidence: bytes) -> ContractCall[int]:
        """Accuse a node by some of its files, in their order: all of one pool, accepted and final. Takes the bond;
        returns the challenge's number. `evidence`: SHA-256 of what the accuser says, 32 bytes."""
        pool, node = files[0].pool, files[0].node
        inners = [file.inner for file in files]
        sequences, bond = [file.sequence for file in files], self.bond(pool, len(files))
        call = self._taking(bond, "open", pool, node, sequences, inners, evidence)
        return self._returning(call, "ChallengeOpened", "challenge")

    def conclude(self, challenge: int) -> ContractCall[Receipt]:
        """Keeper: once its jury is done, end a challenge or have its jury replaced."""
        return self.call("conclude", challenge)

    def bond(self, pool: int, files: int) -> int:
        """What a challenge in a pool takes that names so many files, 1 to MOST_FILES: base units."""
        return int(self.read("bondOf", pool, files))

    def tried(self, pool: int, sequences: Sequence[int]) -> int:
        """The challenge over exactly these files that is open or was decided; 0 if there is none."""
        return int(self.read("triedIn", pool, list(sequences)))

    def challenge_of(self, challenge: int) -> NodeChallengeView:
        values = self.read("challengeOf", challenge)
        return record(NodeChallengeView, values | {"outcome": CaseOutcome(values["outcome"])})
