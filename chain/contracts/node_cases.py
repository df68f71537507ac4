"""Cases against nodes, for what several of their files say together."""

from collections.abc import Sequence
from dataclasses import dataclass

from chain.contracts.base import ContractCall, record
from chain.contracts.token import TokenTaker
from chain.judging import CaseOutcome
from chain.records import Submission
from chain.transactions import Receipt

MOST_FILES = 256
"""NodeCases.MAX_FILES."""


@dataclass(frozen=True)
class CaseView:
    """INodeCases.NodeCase; `bond` in grains. `outcome` is NONE for a number that no case has."""

    pool: int
    node: str
    accuser: str
    bond: int
    trial: int
    outcome: CaseOutcome
    opened_at: int


class NodeCases(TokenTaker):
    """Called by whoever accuses, and by keepers."""

    name = "NodeCases"

    def open(self, files: Sequence[Submission], evidence: bytes) -> ContractCall[int]:
        """Accuse a node by some of its files, in their order: all of one pool, accepted and final. Takes the bond;
        returns the case's number. `evidence`: SHA-256 of what the accuser says, 32 bytes."""
        pool, node = files[0].pool, files[0].node
        inners = [file.inner for file in files]
        sequences, bond = [file.sequence for file in files], self.bond(pool, len(files))
        call = self._taking(bond, "open", pool, node, sequences, inners, evidence)
        return self._returning(call, "CaseOpened", "nodeCase")

    def conclude(self, case: int) -> ContractCall[Receipt]:
        """Keeper: once its jury is done, end a case or have its jury replaced."""
        return self.call("conclude", case)

    def bond(self, pool: int, files: int) -> int:
        """What a case in a pool takes that names so many files, 1 to MOST_FILES: grains."""
        return int(self.read("bondOf", pool, files))

    def tried(self, pool: int, sequences: Sequence[int]) -> int:
        """The case over exactly these files that is open or was decided; 0 if there is none."""
        return int(self.read("triedIn", pool, list(sequences)))

    def case_of(self, case: int) -> CaseView:
        values = self.read("caseOf", case)
        return record(CaseView, values | {"outcome": CaseOutcome(values["outcome"])})
