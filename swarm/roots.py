"""What a member shared, recorded on chain: one root over the envelopes of many rounds in one transaction."""

import logging
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from chain.errors import ContractError
from chain.swarms import Swarms
from protocol.errors import ConfigError
from protocol.swarm.envelope import EnvelopeLimits, open_envelope
from protocol.swarm.roots import SharedRound, rounds_root
from storage.keys import parse_key
from swarm.chain_access import SwarmChain
from swarm.exchange import Exchange
from swarm.listing import ListingEntry

log = logging.getLogger("muster.swarm")
_LINES = TypeAdapter(SharedRound)
MOST_ROUNDS = 4096
"""In one root; what is more waits for the next."""


class RootRecorder:
    """Keeps a line of every envelope that was sent in `path`, and records them `every` so many rounds. `member` is the
    chain's account. The constructor raises ConfigError for a damaged file."""

    def __init__(self, chain: SwarmChain, member: str, path: Path, every: int) -> None:
        self._chain, self._member, self._path, self._every = chain, member, path, every
        self._shared = self._read()
        """By round, ascending. All are kept: a reorganisation may undo a root, however old the rounds under it."""
        self.next = 0
        """The first round that no recorded root covers, as far as is known."""
        self._looked = False

    @property
    def waiting(self) -> list[SharedRound]:
        """Rounds that no recorded root covers, ascending."""
        return self._shared[self._first :]

    @property
    def unrecorded(self) -> int:
        """How many wait."""
        return len(self._shared) - self._first

    @property
    def _first(self) -> int:
        return bisect_left(self._shared, self.next, key=lambda one: one.round)

    def note(self, shared: SharedRound) -> None:
        """An envelope was sent. Of a round that is known, the first stands."""
        if self._shared and shared.round <= self._shared[-1].round:
            return
        with self._path.open("ab") as file:
            file.write(_LINES.dump_json(shared) + b"\n")
        self._shared.append(shared)

    def look(self) -> None:
        """Ask the chain, until it has answered once, what is recorded: another process or home may have done it."""
        if not self._looked:
            self._chain.attempt("reading which rounds are recorded", self._look)

    def record(self, at_least: int | None = None) -> None:
        """Record what waits, if there are enough rounds of it; else, or without the chain, it waits on."""
        if self.unrecorded < (self._every if at_least is None else at_least):
            return
        try:
            self._chain.attempt("recording a root", self._record, sends=True)
        except ContractError as error:
            log.warning("no root is recorded: %s", error)

    def _look(self, swarms: Swarms) -> None:
        self.next = swarms.member_of(self._chain.swarm, self._member).next_round
        self._looked = True

    def _record(self, swarms: Swarms) -> None:
        # What was sent before and counted as lost may have been mined.
        self._look(swarms)
        rounds = self.waiting[:MOST_ROUNDS]
        if not rounds:
            return
        first, last, groups = rounds[0].round, rounds[-1].round, sum(one.groups for one in rounds)
        receipt = self._chain.send(swarms.record(self._chain.swarm, first, last, groups, rounds_root(rounds)))
        self.next = last + 1
        log.info("rounds %d to %d, %d groups, are recorded for %d gas", first, last, groups, receipt.gas_used)

    def _read(self) -> list[SharedRound]:
        """Without a last line that a kill cut off."""
        if not self._path.is_file():
            return []
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self._path.write_bytes(whole)
        try:
            lines = [_LINES.validate_json(line) for line in whole.splitlines()]
        except ValidationError:
            raise ConfigError(f"{self._path} is damaged", "delete it: what it names is not recorded then") from None
        kept: list[SharedRound] = []
        for line in lines:
            if not kept or line.round > kept[-1].round:
                kept.append(line)
        return kept


class RecordingExchange:
    """An exchange that notes what the member sends."""

    def __init__(self, exchange: Exchange, recorder: RootRecorder, limits: EnvelopeLimits) -> None:
        self._exchange, self._recorder, self._limits = exchange, recorder, limits

    def publish(self, data: bytes) -> str:
        key = self._exchange.publish(data)
        envelope = open_envelope(data, self._limits)
        sha256 = parse_key(key).digest
        self._recorder.note(SharedRound(envelope.round, envelope.root, sha256, len(envelope.groups)))
        return key

    def listed(self) -> Iterator[ListingEntry]:
        return self._exchange.listed()

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        return self._exchange.get(entry, limit)
