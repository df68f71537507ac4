"""One look at machine, chain and service: all input and output of the watch, gathered into `Facts`."""

import shutil
import time
from pathlib import Path
from typing import Any

from chain.client import ChainClient
from chain.deployment import Deployment
from chain.follower import Follower
from chain.projection import Projection
from chain.standing import standing_of
from chain.state import State
from chain.suite import Suite
from protocol.errors import ConfigError, MusterError
from runtime.presence import gone, stalled
from runtime.watch.config import WatchConfig
from runtime.watch.facts import Facts, ServiceFacts, WatchedPool
from runtime.watch.service_look import ServiceView

GAS = 250_000
"""What a transaction takes at most in everyday work: attesting, committing, submitting a file."""
_PATIENCE, _SECONDS = 3.0, 4.0
_COMPUTING = ("generating", "judging")


class ChainView:
    """The chain, followed by events of our own. Opening raises ConfigError, UnreachableError."""

    def __init__(self, config: WatchConfig) -> None:
        deployment = Deployment.load(config.deployment)
        self.client = ChainClient(config.rpc, deployment.chain_id, patience=_PATIENCE, timeout=_SECONDS)
        Suite(self.client, deployment)
        self.projection = Projection(Follower(self.client, deployment, config.home / "events.sqlite"))

    def refresh(self) -> State:
        self.projection.refresh()
        return self.projection.state


class Lookout:
    """Looks again and again; what does not answer is opened anew at the next look."""

    def __init__(self, config: WatchConfig) -> None:
        self._config = config
        private = config.allow_private_sources
        self._service = ServiceView(config.orchestrator, config.node, config.seats_of, config.owner, private)
        self._chain: ChainView | None = None
        self._done: float | None = None
        self._progressed: float | None = None
        self.state: State | None = None
        """The chain's state at the last look that reached it."""

    def look(self) -> Facts:
        """Raises ConfigError for what a person has to put right."""
        now, config = time.time(), self._config
        chain = self._look_at_chain(now)
        found, service_error = self._look_at_service()
        return Facts(
            now=now,
            free={name: free_bytes(path) for name, path in config.folders.items()},
            process_gone=gone(config.process) if config.process else "",
            process_stalled=stalled(config.process) if config.process else "",
            service=found,
            service_error=service_error,
            storage_error=self._look_at_storage() if found and found.ready else "",
            progressed=self._progress(found, now),
            **chain,
        )

    def _look_at_chain(self, now: float) -> dict[str, Any]:
        config = self._config
        try:
            if self._chain is None:
                self._chain = ChainView(config)
            view = self._chain
            self.state = state = view.refresh()
            price = max(1, view.client.gas_price())
            left = {name: view.client.balance(address) // (GAS * price) for name, address in config.accounts.items()}
            age = max(0.0, now - view.client.now())
        except ConfigError:
            raise
        except MusterError as error:
            return {"chain_error": error.what}
        return {"head_age": age, "transactions_left": left, "pool": pool_facts(config, state)}

    def _look_at_service(self) -> tuple[ServiceFacts | None, str]:
        """What it says, or why it says nothing."""
        try:
            return self._service.look(), ""
        except MusterError as error:
            return None, error.what

    def _look_at_storage(self) -> str:
        pool = self.state.pools.get(self._config.pool) if self.state else None
        return self._service.storage_error(pool.config_hash) if pool else ""

    def _progress(self, service: ServiceFacts | None, now: float) -> float | None:
        """When the process got something done last; None unless it computes."""
        if service is None or service.done is None:
            return self._progressed
        if service.done != self._done or not service.phase.startswith(_COMPUTING):
            self._done, self._progressed = service.done, now
        return self._progressed


def pool_facts(config: WatchConfig, state: State) -> WatchedPool | None:
    """What the chain says of the pool, the node, the seats and the key that are watched; None without the pool."""
    pool = state.pools.get(config.pool)
    if pool is None:
        return None
    node = state.nodes.get(config.node) if config.node else None
    account = state.accounts.get((config.pool, config.node)) if config.node else None
    mine = [seat for seat in state.seats.values() if seat.owner == config.seats_of and not seat.closed]
    return WatchedPool(
        step=pool.step,
        step_time=pool.steps[-1].time if pool.steps else 0,
        running=pool.status == "open",
        stake=node.stake if node else None,
        least_stake=pool.terms.minStake,
        standing=standing_of(account) if account else None,
        seats={seat.seat: "was evicted" if seat.evicted else "" for seat in mine},
        service_key_current=pool.service == config.service_key if config.service_key else None,
    )


def free_bytes(path: Path) -> int | None:
    """None for a folder that is not there."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None
