"""A command's connection: the deployment, the chain, and the key it acts with."""

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from chain.client import ChainClient
from chain.deployment import Deployment
from chain.indexer.projection import Projection
from chain.suite import Suite
from protocol.errors import ConfigError
from protocol.files import user_cache
from runtime.keystore import open_key

if TYPE_CHECKING:
    from chain.contracts import PoolView
    from chain.indexer.state import State
    from protocol.accounts import LocalAccount

log = logging.getLogger("muster.cli")
_PATIENCE, _GLANCE = 8.0, 3.0


class Session:
    """The suite of a deployment, and the projected state; with a key if the command sends something."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self.client = suite.client
        self.deployment = suite.deployment

    @property
    def account(self) -> "LocalAccount":
        """The key. Raises ConfigError if there is none."""
        if self.client.account is None:
            raise ConfigError("this needs a key", "pass --keystore FILE")
        return self.client.account

    def pool(self, pool: int) -> "PoolView":
        """The pool now. Raises ConfigError if there is none of that number."""
        count = self.suite.pools.pool_count()
        if not 1 <= pool <= count:
            have = f"pools are 1 to {count}" if count else "there is no pool yet"
            raise ConfigError(f"there is no pool {pool} on this deployment", f"{have}; check --pool")
        return self.suite.pools.pool_of(pool)

    def state(self) -> "State":
        """The suite's state up to the latest block, projected from its events. Events already seen are kept in the
        user's cache folder, so that only new ones are fetched; a cache that cannot be used costs time only."""
        from chain.indexer.follower import Follower

        with tempfile.TemporaryDirectory(prefix="muster-") as spare:
            try:
                follower = Follower(self.client, self.deployment, self._cache())
            except (ConfigError, OSError) as error:
                log.info("reading all events anew: %s", error)
                follower = Follower(self.client, self.deployment, Path(spare) / "events.sqlite")
            try:
                projection = Projection(follower)
                projection.refresh()
            finally:
                follower.close()
        return projection.state

    def _cache(self) -> Path:
        """A file of its own per deployment; other chains with the same id differ in their genesis block."""
        suite = f"{self.deployment.chain_id}-{self.deployment.genesis[2:14]}-{self.suite.pools.address[2:14].lower()}"
        return user_cache("events") / f"{suite}.sqlite"


def load_deployment(path: Path | None) -> Deployment:
    """The deployment in a file, or in the folder that `muster deploy` wrote. Raises ConfigError."""
    if path is None:
        raise ConfigError("no deployment is named", "pass --deployment FILE (or set MUSTER_DEPLOYMENT)")
    return Deployment.load(deployment_file(path))


def deployment_file(path: Path) -> Path:
    """The file that is named, or the one in the folder that is."""
    return path / "deployment.json" if path.is_dir() else path


def deployment_rpc(suite: Deployment, rpc: str | None) -> list[str]:
    """The RPC URLs for a deployment. Raises ConfigError if none is known."""
    return rpc_urls(suite.network, rpc, suite.services.get("rpc", ""))


def rpc_urls(network: str, rpc: str | None, announced: str = "") -> list[str]:
    """The RPC URLs to use: those named (separated by commas), else the deployment file's, else the network's own."""
    from chain.deployment import known_rpc

    named = [url.strip() for url in (rpc or announced).split(",") if url.strip()]
    urls = named or list(known_rpc(network))
    if not urls:
        raise ConfigError(f"no RPC URL is known for network {network}", "pass --rpc URL")
    return urls


def look_for_chain(deployment: Path | None, rpc: str | None) -> None:
    """Raises UnreachableError within seconds where a session would try for longer, ConfigError as that does."""
    suite = load_deployment(deployment)
    urls = deployment_rpc(suite, rpc)
    ChainClient(urls, suite.chain_id, patience=_GLANCE, timeout=_GLANCE).close()


def open_session(
    deployment: Path | None, rpc: str | None, keystore: Path | None = None, password_file: Path | None = None
) -> Session:
    """Connect; read-only unless a key file is named. Raises ConfigError (file, chain, password), UnreachableError."""
    suite = load_deployment(deployment)
    reader = ChainClient(deployment_rpc(suite, rpc), suite.chain_id, patience=_PATIENCE)
    suite.check_chain(reader)
    if keystore is None:
        return Session(Suite(reader, suite, check=False))
    urls = reader.provider.urls
    reader.close()
    account = open_key(keystore, password_file)
    return Session(Suite(ChainClient(urls, suite.chain_id, account, patience=_PATIENCE), suite, check=False))
