"""A pool by nothing but its service's URL: what the service says of chain and contracts, checked against the chain."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chain.deployment import Deployment
from protocol.encoding import parse_document
from protocol.errors import ConfigError, IntegrityError

if TYPE_CHECKING:
    from chain.indexer.state import State


@dataclass(frozen=True)
class Access:
    """A pool that somebody wants to take part in. `url`: its service; `rpc`: the chain's URLs."""

    url: str
    pool: int
    rpc: tuple[str, ...]
    deployment: Deployment
    config_hash: str

    def save_deployment(self, path: Path) -> None:
        """Write the deployment file. Raises ConfigError rather than replace one of another deployment."""
        if path.exists() and Deployment.load(path).contracts != self.deployment.contracts:
            what = f"{path} is of another deployment than {self.url}'s"
            raise ConfigError(what, "move the old profile's folder away, or name another with MUSTER_PROFILE")
        self.deployment.save(path)


def ask_access(url: str, rpc: str | None = None) -> Access:
    """What the service at `url` says; `rpc` instead of the URLs that it names. Raises ConfigError, UnreachableError."""
    from cli.doctor.services import ask_orchestrator
    from cli.session import rpc_urls
    from protocol.api.endpoints import POOL
    from protocol.http.signing import service_url

    url = service_url(url)
    told = ask_orchestrator(url, POOL)
    document = parse_document(told.deployment.encode(), Deployment, f"the deployment that {url} names")
    document.check_abis(f"the deployment that {url} names")
    named = tuple(rpc_urls(document.network, rpc, ",".join(told.rpc)))
    return Access(url, told.pool, named, document, told.config_hash)


def check_access(access: Access, state: "State") -> None:
    """Raise IntegrityError unless the chain says the same as the service: the pool, its configuration, and where its
    owner announced its service."""
    pool = state.pools.get(access.pool)
    if pool is None:
        raise IntegrityError(f"there is no pool {access.pool}, of which {access.url} speaks", "ask the pool's owner")
    if pool.config_hash.hex() != access.config_hash:
        what = f"{access.url} names another configuration than the chain does for pool {access.pool}"
        raise IntegrityError(what, "ask the pool's owner")
    if pool.service_url.rstrip("/") != access.url.rstrip("/"):
        announced = f"answers at {pool.service_url}" if pool.service_url else "was never announced"
        raise IntegrityError(
            f"on chain the service of pool {access.pool} {announced}, not at {access.url}",
            "use the announced URL, or ask the pool's owner",
        )
