"""What governance proposed to the timelock: plain data, filled by `chain.reducers` from its events."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ProposedCall:
    """A call that the timelock will make. `value` is wei."""

    target: str
    value: int
    data: bytes = field(repr=False)


@dataclass
class Proposal:
    """One operation of the timelock: its calls, all or none of them, from `ready_at` (Unix seconds) on and after
    `predecessor`, another operation's id, if that is not zero. `id` is the hash of all but `ready_at`.

    `status` is scheduled, done or cancelled.
    """

    id: bytes
    calls: list[ProposedCall]
    predecessor: bytes
    ready_at: int
    block: int
    salt: bytes = bytes(32)
    status: str = "scheduled"
