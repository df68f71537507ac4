"""What a member does on chain beside its rounds, and never waits long for: who takes part, what it shared, who lied."""

import logging
from pathlib import Path
from typing import Any

from protocol.accounts import LocalAccount
from protocol.errors import ConfigError
from protocol.swarm.document import SwarmDocument
from protocol.swarm.envelope import EnvelopeLimits
from protocol.swarm.sampling import Filter
from swarm.chain_access import SwarmChain
from swarm.config import SwarmChainConfig
from swarm.exchange import Exchange
from swarm.proofs import ProofDrawer
from swarm.registry import SwarmRegistry
from swarm.roots import RecordingExchange, RootRecorder

log = logging.getLogger("muster.swarm")


class ChainMember:
    """A membership of a swarm that the chain knows (`swarm.membership`). The constructor asks the chain only where this
    home never did: it raises ConfigError for a key that is no member or a swarm with another document, UnreachableError
    where nobody answers."""

    def __init__(
        self,
        home: Path,
        config: SwarmChainConfig,
        account: LocalAccount,
        document: SwarmDocument,
        exchange: Exchange,
    ) -> None:
        self._chain = SwarmChain(config, account)
        self.limits = EnvelopeLimits.of(self._chain.id, document)
        self._address = str(account.address)
        self.registry = SwarmRegistry(self._chain, home / "members.json", config.refresh_seconds, config.confirmations)
        if self._address not in self.registry.members:
            _check_document(self._chain, document)
        self._start = self.registry.first_start_of(self._address)
        self._roots = RootRecorder(self._chain, self._address, home / "shared.jsonl", config.roots_every)
        self._proofs = ProofDrawer(self._chain, home / "proofs", home / "inbox")
        self.exchange: Exchange = RecordingExchange(exchange, self._roots, self.limits)

    def own_start(self) -> bytes:
        """What the registry says now; what it said last where a reorganisation has undone the joining."""
        known = self.registry.members.get(self._address)
        self._start = known.start if known is not None else self._start
        return self._start

    def is_member(self, address: str) -> bool:
        return self.registry.is_member(address)

    def start_of(self, address: str) -> bytes:
        return self.registry.start_of(address)

    def found_two(self, first_key: str, second: bytes) -> None:
        self._proofs.found(self.exchange, self.limits, first_key, second)

    def recorded(self) -> int:
        return self._roots.next

    def before_round(self) -> None:
        self._roots.look()
        self.registry.refresh(self._address, self._proofs.judged)
        self._proofs.look_again(self.registry.may_lose)

    def after_round(self) -> None:
        self._roots.record()
        self.registry.look(self._proofs.send())

    def finish(self) -> None:
        """At the end of the process: record what waits, however little."""
        self._roots.record(at_least=1)
        self._proofs.send()

    def filters(self) -> list[Filter]:
        """What an ejected member shared before is not trained on either."""
        known = self.registry.members
        return [lambda offers: [one for one in offers if one.sharer in known and not known[one.sharer].ejected]]

    def status(self) -> dict[str, Any]:
        known = self.registry.members
        own = known.get(self._address)
        standing = "unknown" if own is None else "ejected" if own.ejected else "member" if own.active else "left"
        chain = {
            "swarm": self._chain.swarm,
            "reachable": self._chain.reachable,
            "members": sum(one.active for one in known.values()),
            "ejected": sorted(address for address, one in known.items() if one.ejected),
            "standing": standing,
            "recorded_until": self._roots.next,
            "unrecorded": self._roots.unrecorded,
            "proofs": len(self._proofs.waiting),
        }
        return {"chain": chain}


def _check_document(chain: SwarmChain, document: SwarmDocument) -> None:
    on_chain = chain.swarms().swarm_of(chain.swarm).document
    if on_chain != document.digest:
        raise ConfigError(
            f"{chain.id} has the document {on_chain.hex()[:16]}…, this one is {document.digest.hex()[:16]}…",
            "use that swarm's document, or another swarm",
        )
