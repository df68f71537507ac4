"""One process's connection to the chain: the contracts, and the state projected from their events."""

import logging
import threading

from chain.client import ChainClient
from chain.deployment import Deployment
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.state import State
from chain.suite import Suite
from protocol.accounts import LocalAccount
from runtime.process import ProcessConfig, make_home

log = logging.getLogger("muster.chain")
_PATIENCE = 20.0


class ChainConnection:
    """`suite`: the contracts; transactions are sent as `account`, if there is one. `home`: this process's folder for
    state that is valid on this chain only.

    `refresh`, `state` and `suite` may be used from several threads. The constructor raises ConfigError for a wrong
    deployment or chain, UnreachableError when no RPC endpoint answers.
    """

    def __init__(self, config: ProcessConfig, account: LocalAccount | None = None) -> None:
        self._config = config
        self.deployment = Deployment.load(config.deployment)
        self.client = ChainClient(config.rpc, self.deployment.chain_id, account, patience=_PATIENCE)
        self.suite = Suite(self.client, self.deployment)
        # A chain that was started anew, or contracts deployed again, must not find the state of the former ones.
        self.home = config.home / f"{self.deployment.genesis[2:10]}-{self.suite.court.address[2:10].lower()}"
        make_home(self.home)
        self._follower = Follower(self.client, self.deployment, self.home / "events.sqlite")
        self.projection = Projection(self._follower)
        self._refreshing = threading.Lock()

    @property
    def state(self) -> State:
        """The newest snapshot of the chain; a snapshot never changes (`chain.indexer.projection`)."""
        return self.projection.state

    @property
    def now(self) -> int:
        """Chain time as of the last refresh."""
        return self._follower.time

    def refresh(self) -> State:
        """Poll the chain once and return the newest state. After a reorganisation nothing read before holds."""
        with self._refreshing:
            before = self.state.generation
            self.projection.refresh()
            if self.state.generation != before:
                log.info("the chain was reorganised: continuing from block %d", self.state.head)
            return self.state

    def account_suite(self, account: LocalAccount) -> Suite:
        """Return the same contracts, sending as another account."""
        client = ChainClient(self._config.rpc, self.deployment.chain_id, account, patience=_PATIENCE)
        return Suite(client, self.deployment, check=False)

    def close(self) -> None:
        self.client.close()
