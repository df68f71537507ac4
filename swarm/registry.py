"""Who takes part in a swarm, by the chain: staked, neither left nor ejected. Kept on disk, so that a member who cannot
reach the chain goes on with what it knows."""

import json
import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chain.swarms import MemberView, Swarms
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, MusterError, UnreachableError
from protocol.files import write_atomic
from swarm.chain_access import SwarmChain

log = logging.getLogger("muster.swarm")
_AT_ONCE = 500
_FIRST_SECONDS, _POLL_SECONDS = 120.0, 1.0
ASKED_AT_ONCE = 8
"""Unknown addresses that the chain is asked about one by one in a round; a key costs a stranger nothing."""
SETTLED = 1024
"""Blocks on top of one after which nobody asks any more whether another took its place."""


class UnknownMember(MusterError):
    """An address that is not known to have joined, or not for long enough: that may change."""


@dataclass(frozen=True)
class KnownMember:
    """`start`: what the chain fixed after it joined; `settled`: whether no reorganisation changes that any more.
    `active`: whether its envelopes are read; `ejected`: whether they are not because it signed two of one round;
    `staked`: whether anything is left that a proof could take."""

    start: bytes
    active: bool
    ejected: bool
    settled: bool = False
    staked: bool = True


class SwarmRegistry:
    """Asks about an address when an envelope of it comes, once a round at most, and again every `refresh_seconds`. Of
    unknown ones the first few of a round are asked about at once and the others together before the next round, so
    strangers' keys cost no more calls however many there are. `path`: where it is kept. Blocks with fewer than
    `confirmations` on top may still be replaced: who joined in one is not known yet. One with more may be, too: until
    `SETTLED` lie on it, a member is asked about again in each round in which its envelopes are read."""

    def __init__(self, chain: SwarmChain, path: Path, refresh_seconds: float, confirmations: int) -> None:
        self._chain, self._path = chain, path
        self._every, self._confirmations = refresh_seconds, confirmations
        self._next = 0.0
        self._asked: set[str] = set()
        """In this round."""
        self._left = ASKED_AT_ONCE
        self._postponed: dict[str, None] = {}
        self.members: dict[str, KnownMember] = self._kept()

    def is_member(self, address: str) -> bool:
        """Raises UnknownMember for who is not known to have joined."""
        known = self.members.get(address)
        if known is not None and not known.settled and address not in self._asked:
            self._ask([address])
        return self._known(address).active

    def start_of(self, address: str) -> bytes:
        """Raises UnknownMember."""
        return self._known(address).start

    def first_start_of(self, address: str) -> bytes:
        """The same, waiting until the chain knows it, for two minutes at most. Raises ConfigError for who never joined,
        UnreachableError where the chain is gone before it was ever asked."""
        deadline = time.monotonic() + _FIRST_SECONDS
        while address not in self.members:
            swarms = self._chain.swarms()
            if not swarms.member_of(self._chain.swarm, address).joined_block:
                raise ConfigError(f"{address} is no member of {self._chain.id}", "muster swarm join, with a new home")
            self.read([address], swarms)
            if address not in self.members:
                if time.monotonic() > deadline:
                    what = f"the blocks after the one in which {address} joined did not come"
                    raise UnreachableError(what, "is the chain producing blocks?")
                log.info("waiting for %d blocks after joining", self._confirmations + 1)
                time.sleep(_POLL_SECONDS)
        return self.members[address].start

    def refresh(self, own: str, suspects: Collection[str] = ()) -> None:
        """A round begins: ask about those who had to wait, and, if it is time to, look again at `own`, `suspects` and
        all who ever took part: who left in a block that was replaced has not left. Without the chain, what is known
        holds."""
        due = time.monotonic() >= self._next
        self._asked.clear()
        wanted, self._left, self._postponed = self._postponed, ASKED_AT_ONCE, {}
        if due:
            self._next = time.monotonic() + self._every
            wanted = {own: None, **dict.fromkeys(suspects), **dict.fromkeys(self.members), **wanted}
        self.look(list(wanted))

    def look(self, addresses: Sequence[str]) -> None:
        """Ask about these now; without the chain, what is known holds."""
        if addresses:
            self._ask(list(addresses))

    def may_lose(self, address: str) -> bool:
        """Whether a member, as far as is known, has stake that a proof could take: it is not ejected, or the block in
        which it was is replaced."""
        known = self.members.get(address)
        return known is not None and known.staked and not known.ejected

    def read(self, addresses: Sequence[str], swarms: Swarms) -> None:
        """Read these members, and what the chain fixed after those joined of whom that is not settled. Raises
        MusterError."""
        head = swarms.client.head().number
        views = {one.member: one for one in swarms.members_of(self._chain.swarm, addresses)}
        joined = [one for one in views.values() if 0 < one.joined_block < head - self._confirmations]
        fresh = [one for one in joined if not (known := self.members.get(one.member)) or not known.settled]
        starts = dict(zip((one.member for one in fresh), starts_of(swarms, fresh), strict=True))
        before = dict(self.members)
        # Whose joining was undone is as unknown as before it.
        for address in views:
            self.members.pop(address, None)
        for one in joined:
            known = before.get(one.member)
            start = starts[one.member] if one.member in starts else before[one.member].start
            if known is not None and one.ejected and not known.ejected:
                log.warning("%s is ejected: it signed two envelopes of one round", one.member)
            if known is not None and start != known.start:
                log.warning("a reorganisation changed the problems of %s", one.member)
            settled = one.joined_block + SETTLED < head
            self.members[one.member] = KnownMember(start, one.active, one.ejected, settled, one.stake > 0)
        if self.members != before:
            kept = {address: _document(known) for address, known in self.members.items()}
            write_atomic(self._path, canonical_json(kept))

    def _known(self, address: str) -> KnownMember:
        if address not in self.members and address not in self._asked:
            self._ask_stranger(address)
        if address not in self.members:
            raise UnknownMember(f"{address} is not known as a member of {self._chain.id}")
        return self.members[address]

    def _ask_stranger(self, address: str) -> None:
        """Now, or before the next round."""
        if self._left > 0:
            self._left -= 1
            self._ask([address])
        elif len(self._postponed) < _AT_ONCE:
            self._postponed[address] = None

    def _ask(self, addresses: list[str]) -> None:
        self._asked.update(addresses)
        try:
            self._chain.attempt("reading members of the swarm", partial(self.read, addresses))
        except MusterError as error:
            log.warning("members of the swarm cannot be read: %s", error)

    def _kept(self) -> dict[str, KnownMember]:
        """Raises ConfigError for a damaged file."""
        if not self._path.is_file():
            return {}
        try:
            kept = json.loads(self._path.read_bytes())
            return {
                address: KnownMember(**{**one, "start": bytes.fromhex(one["start"])}) for address, one in kept.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(f"{self._path} is damaged", "delete it: it is read from the chain again") from None


def starts_of(swarms: Swarms, joined: Sequence[MemberView]) -> list[bytes]:
    """The hash of the block after each one's joining: nobody knew it while the key could still be chosen."""
    numbers = [one.joined_block + 1 for one in joined]
    parts = [numbers[first : first + _AT_ONCE] for first in range(0, len(numbers), _AT_ONCE)]
    blocks = [block for part in parts for block in swarms.client.blocks(part)]
    found = [block.hash for block in blocks if block is not None]
    if len(found) < len(numbers):
        raise UnreachableError("the chain's endpoint lacks a block that it has mined", "check the endpoint")
    return found


def _document(known: KnownMember) -> dict[str, Any]:
    return {**vars(known), "start": known.start.hex()}
