"""Proofs against members who signed two envelopes of one round: kept on disk until the chain has judged them."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from chain.errors import ContractError
from chain.swarms import Swarms
from protocol.errors import MusterError, UnreachableError
from protocol.files import write_atomic
from protocol.swarm.envelope import EnvelopeLimits, sealed_by
from protocol.swarm.equivocation import Equivocation, equivocation
from storage.keys import MissingObjectError, parse_key
from swarm.chain_access import SwarmChain
from swarm.exchange import EnvelopeSource
from swarm.listing import ListingEntry

log = logging.getLogger("muster.swarm")
_PROOF = TypeAdapter(Equivocation)
_JUDGED = frozenset({"AlreadyEjected", "NothingAtStake", "NoSuchMember"})
"""Answers after which a proof is of no use any more."""
_DONE = ".judged"
_MOST_UNDRAWN = 8
"""Second envelopes in memory whose first one could not be read yet."""


class ProofDrawer:
    """One proof a member at most, in `folder`: nobody is ejected twice. One that was judged stays, since the block in
    which it was may be replaced. `kept`: where the inbox keeps envelopes; those
    are looked for there first, since who holds the bucket may have removed one meanwhile."""

    def __init__(self, chain: SwarmChain, folder: Path, kept: Path) -> None:
        self._chain, self._folder, self._kept = chain, folder, kept
        self._undrawn: list[tuple[EnvelopeSource, EnvelopeLimits, str, bytes]] = []

    @property
    def waiting(self) -> list[Path]:
        return sorted(self._folder.glob("0x*.json"))

    @property
    def judged(self) -> list[str]:
        """Members about whom the chain has decided."""
        return sorted(path.stem for path in self._folder.glob(f"0x*{_DONE}"))

    def look_again(self, may_lose: Callable[[str], bool]) -> None:
        """Have those wait again whose member is said to have something to lose after all: a reorganisation has undone
        what was judged."""
        for member in filter(may_lose, self.judged):
            log.warning("the proof against %s is sent again: a reorganisation undid what it did", member)
            path = self._folder / f"{member}.json"
            path.with_suffix(_DONE).rename(path)

    def found(self, exchange: EnvelopeSource, limits: EnvelopeLimits, first_key: str, second: bytes) -> None:
        """Another envelope, `second`, of a round of which there was one. Keeps the proof, if the two are one; without
        the first one's bytes there is none. Where these cannot be read now, `send` looks for them again: nobody brings
        the second one again."""
        try:
            path = self._kept / str(parse_key(first_key))
            first = path.read_bytes() if path.is_file() else self._fetched(exchange, limits, first_key, second)
            self.keep(equivocation(first, second, limits))
        except (UnreachableError, OSError) as error:
            log.warning("the proof against the sharer of %s waits: %s", first_key, error)
            self._undrawn = [*self._undrawn, (exchange, limits, first_key, second)][:_MOST_UNDRAWN]
        except MusterError as error:
            log.warning("no proof against the sharer of %s: %s", first_key, error)

    @staticmethod
    def _fetched(exchange: EnvelopeSource, limits: EnvelopeLimits, first_key: str, second: bytes) -> bytes:
        """The first one: below the address of its signer, who is that of the second, or where a gate puts it."""
        try:
            return exchange.get(ListingEntry(first_key, sealed_by(second).lower()), limits.file_bytes)
        except MissingObjectError:
            return exchange.get(ListingEntry(first_key), limits.file_bytes)

    def keep(self, proof: Equivocation) -> None:
        path = self._folder / f"{proof.member}.json"
        if not path.exists() and not path.with_suffix(_DONE).exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, _PROOF.dump_json(proof))

    def send(self) -> list[str]:
        """Send what waits; without the chain it waits on. The members who were judged now."""
        undrawn, self._undrawn = self._undrawn, []
        judged = []
        for one in undrawn:
            self.found(*one)
        for path in self.waiting:
            try:
                proof = _PROOF.validate_json(path.read_bytes())
            except ValidationError:
                log.warning("%s is damaged: it is left out", path)
                path.rename(path.with_suffix(".damaged"))
                continue
            try:
                what = f"showing two envelopes of {proof.member}"
                done = self._chain.attempt(what, partial(show, proof=proof), sends=True)
            except ContractError as error:
                log.warning("the proof against %s is refused: %s", proof.member, error)
                done = error.name in _JUDGED
            if done:
                path.rename(path.with_suffix(_DONE))
                judged.append(proof.member)
        return judged


def show(swarms: Swarms, proof: Equivocation) -> int:
    """Have the chain judge a proof; the gas that it took. Raises ContractError where it is refused."""
    gas = SwarmChain.send(swarms.accuse(proof)).gas_used
    log.warning("%s is ejected: it signed two envelopes of round %d", proof.member, proof.round)
    return gas
