"""Decoded logs of the suite's contracts, one by one and as a poll of the follower brings them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """`contract` and `name` as in the ABIs, e.g. `Pools`, `WorkSubmitted`.

    `args` by the ABI's names: integers, checksum addresses, bytes, booleans, strings, lists of them, and dicts for
    structs. `timestamp` is the block's, Unix seconds.
    """

    block: int
    block_hash: bytes
    tx_hash: str
    log_index: int
    contract: str
    name: str
    args: dict[str, Any] = field(hash=False)
    timestamp: int

    @property
    def key(self) -> tuple[str, str]:
        return self.contract, self.name


@dataclass(frozen=True)
class Batch:
    """What one poll of the follower brought. `rollback_to`: events above this block were withdrawn (None: no
    reorganisation); `events`: the new ones in chain order; `head`: the block followed up to."""

    rollback_to: int | None
    events: list[Event]
    head: int
