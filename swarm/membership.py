"""Whom a member shares with: friends, or those whose stake lies on chain."""

from typing import Any, Protocol

from protocol.swarm.document import SwarmDocument
from protocol.swarm.envelope import EnvelopeLimits
from protocol.swarm.identity import NO_CHAIN
from protocol.swarm.sampling import Filter
from protocol.swarm.seeds import NO_START
from swarm.exchange import Exchange


class Membership(Protocol):
    """`limits`: of envelopes that are taken; `exchange`: where envelopes lie."""

    limits: EnvelopeLimits
    exchange: Exchange

    def is_member(self, address: str) -> bool:
        """Whether envelopes of an address are read. Raises MusterError where that is not known yet."""
        ...

    def start_of(self, address: str) -> bytes:
        """What was fixed after a member joined, 32 bytes."""
        ...

    def own_start(self) -> bytes:
        """The same of the member itself. A reorganisation may change it."""
        ...

    def filters(self) -> list[Filter]:
        """What of the envelopes that were read may still be drawn."""
        ...

    def found_two(self, first_key: str, second: bytes) -> None:
        """A member signed two envelopes of one round: the first lies under `first_key`."""
        ...

    def recorded(self) -> int:
        """The first round that no recorded root of the member covers, as far as is known: it signs none before."""
        ...

    def before_round(self) -> None: ...

    def after_round(self) -> None: ...

    def finish(self) -> None:
        """At the end of the process."""
        ...

    def status(self) -> dict[str, Any]:
        """What of it belongs into the member's status."""
        ...


class Friends:
    """A swarm that no chain knows: nobody's stake stands behind anything, and keys cost nothing. `members` ():
    everybody."""

    def __init__(self, document: SwarmDocument, members: tuple[str, ...], exchange: Exchange) -> None:
        self.limits, self.exchange = EnvelopeLimits.of(NO_CHAIN, document), exchange
        self._members = frozenset(members)

    def is_member(self, address: str) -> bool:
        return not self._members or address in self._members

    def start_of(self, address: str) -> bytes:
        return NO_START

    def own_start(self) -> bytes:
        return NO_START

    def filters(self) -> list[Filter]:
        return []

    def found_two(self, first_key: str, second: bytes) -> None:
        """It is in the receiver's own record, and nobody else asks."""

    def recorded(self) -> int:
        return 0

    def before_round(self) -> None: ...

    def after_round(self) -> None: ...

    def finish(self) -> None: ...

    def status(self) -> dict[str, Any]:
        return {}
