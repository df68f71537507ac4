"""What was judged in a run besides the first outcomes of its files: disputes, opened canaries, cases against nodes,
penalties. Times in Unix seconds."""

from typing import Annotated

from protocol.api.base import Amount, ResponseBody, Rows, at_most


class SlashEntry(ResponseBody):
    """A penalty of a node (`who` is its address) or of a seat (its number)."""

    kind: str
    who: str
    sequence: int
    reason: str
    amount: Amount
    block: int
    time: int
    tx: str = ""


class DisputeEntry(ResponseBody):
    sequence: int
    disputer: str
    time: int
    resolved: bool
    overturned: bool
    outcome: str
    reward: Amount


class CanaryEntry(ResponseBody):
    """An opened canary with the seats it accuses; `slashed`: seat → base units."""

    sequence: int
    reason: str
    accused: Rows[int]
    concluded: bool
    upheld: bool
    slashed: Annotated[dict[str, Amount], at_most(1000)]
    time: int


class CaseEntry(ResponseBody):
    """A case against `node` for what its files `sequences` say together. The outcome is open before its jury (`trial`,
    of `jurors` seats) has decided, then upheld, refuted, dismissed or lapsed. `committed`: jurors that voted; `votes`:
    opened ones by code; `reason`: what their majority said, empty without one; `slashed`: of the stake, `back`: of the
    bond."""

    case: int
    node: str
    accuser: str
    sequences: Rows[int]
    trial: int
    jurors: int
    drawn: bool
    committed: int
    votes: Annotated[dict[str, int], at_most(100)]
    outcome: str
    reason: str
    bond: Amount
    back: Amount
    slashed: Amount
    time: int
