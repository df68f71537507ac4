"""A command's connection: the deployment, the chain, and the key it acts with."""

import logging
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from chain.client import ChainClient
from chain.deployment import Deployment, known_rpc
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.state import State
from chain.suite import Suite
from protocol.accounts import LocalAccount
from protocol.api.endpoints import POOL, Get
from protocol.encoding import parse_document
from protocol.errors import ConfigError, IntegrityError, UnreachableError
from protocol.files import user_cache
from protocol.http.signing import service_url
from runtime.keystore import open_key
from runtime.signed_client import ClientLimits, ServiceError, SignedClient

log = logging.getLogger("muster.cli")
_PATIENCE, _GLANCE, _SERVICE_SECONDS = 8.0, 3.0, 5.0
A = TypeVar("A")


class Session:
    """The suite of a deployment, and the projected state; with a key if the command sends something."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self.client = suite.client
        self.deployment = suite.deployment

    @property
    def account(self) -> LocalAccount:
        """The key. Raises ConfigError if there is none."""
        if self.client.account is None:
            raise ConfigError("this needs a key", "pass --keystore FILE")
        return self.client.account

    def pool(self, pool: int) -> dict[str, Any]:
        """The pool now, as Pools.Pool. Raises ConfigError if there is none of that number."""
        count = self.suite.pools.pool_count()
        if not 1 <= pool <= count:
            have = f"pools are 1 to {count}" if count else "there is no pool yet"
            raise ConfigError(f"there is no pool {pool} on this deployment", f"{have}; check --pool")
        return self.suite.pools.pool_of(pool)

    def pool_number(self, number: int | None = None, url: str | None = None) -> int:
        """Return the number of the pool that is named, or of the only one. Raises ConfigError, UnreachableError."""
        if number is None and url is None:
            count = self.suite.pools.pool_count()
            if count != 1:
                raise ConfigError(f"{count or 'no'} pools are on this deployment", "name one with --pool")
            return 1
        number = number or self._number_of(url or "")
        self.pool(number)
        return number

    def _number_of(self, url: str) -> int:
        access = ask_access(url)
        if access.deployment.contracts != self.deployment.contracts:
            raise ConfigError(f"the pool of {url} is on another deployment", "check --pool and --deployment")
        return access.pool

    def state(self) -> State:
        """Return the suite's state up to the latest block. Events that are known come from the user's cache folder."""
        with tempfile.TemporaryDirectory(prefix="muster-") as spare:
            try:
                follower = Follower(self.client, self.deployment, self._cache())
            except (ConfigError, OSError) as error:
                log.info("using a copy of the events that are known: %s", error)
                follower = Follower(self.client, self.deployment, _copied(self._cache(), Path(spare)))
            with closing(follower):
                projection = Projection(follower)
                projection.refresh()
        return projection.state

    def _cache(self) -> Path:
        """A file of its own per deployment; other chains with the same id differ in their genesis block."""
        suite = f"{self.deployment.chain_id}-{self.deployment.genesis[2:14]}-{self.suite.pools.address[2:14].lower()}"
        return user_cache("events") / f"{suite}.sqlite"


def _copied(events: Path, folder: Path) -> Path:
    """Copy an event file that another process may be writing, if it can be read; return the path of the copy."""
    copy = folder / "events.sqlite"
    try:
        with closing(sqlite3.connect(f"file:{events}?mode=ro", uri=True, timeout=2.0)) as source:
            with closing(sqlite3.connect(copy)) as target:
                source.backup(target)
    except (sqlite3.Error, OSError) as error:
        log.info("reading all events again: %s", error)
        copy.unlink(missing_ok=True)
    return copy


def load_deployment(path: Path | None) -> Deployment:
    """The deployment in a file, or in the folder that `muster deploy` wrote. Raises ConfigError."""
    if path is None:
        raise ConfigError("no deployment is named", "run muster init with --pool URL first, or pass --deployment FILE")
    return Deployment.load(deployment_file(path))


def deployment_file(path: Path) -> Path:
    """The file that is named, or the one in the folder that is."""
    return path / "deployment.json" if path.is_dir() else path


def deployment_rpc(suite: Deployment, rpc: str | None) -> list[str]:
    """The RPC URLs for a deployment. Raises ConfigError if none is known."""
    return rpc_urls(suite.network, rpc, suite.services.get("rpc", ""))


def rpc_urls(network: str, rpc: str | None, announced: str = "") -> list[str]:
    """The RPC URLs to use: those named (separated by commas), else the deployment file's, else the network's own."""
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


class NotKnownError(UnreachableError):
    """A service answers that it has no such document."""


def ask_service(url: str, endpoint: Get[A]) -> A:
    """Return a document of a pool's service. Raises NotKnownError, ConfigError (no such service), UnreachableError."""
    limits = ClientLimits(timeout=_SERVICE_SECONDS, attempts=1, exchange=4 * _SERVICE_SECONDS)
    client, where = SignedClient(url, limits=limits), url.rstrip("/") + endpoint.path
    try:
        return client.get(endpoint)
    except ServiceError as error:
        kind = NotKnownError if error.status == 404 else UnreachableError
        raise kind(f"the service {where} answers {error.status}", "check the URL") from None
    except UnreachableError as error:
        what = f"the service {where} does not answer ({error.what})"
        raise UnreachableError(what, "start it or correct the URL") from None
    except IntegrityError as error:
        raise ConfigError(f"{url} is not a pool's service: {error.what}", "check the URL") from None
    finally:
        client.close()


@dataclass(frozen=True)
class Access:
    """A pool that somebody wants to take part in. `url`: its service; `rpc`: the chain's URLs."""

    url: str
    pool: int
    rpc: tuple[str, ...]
    deployment: Deployment
    config_hash: str

    def save_deployment(self, path: Path, replace: bool = False) -> None:
        """Write the deployment file. Raises ConfigError rather than replace another deployment's, unless asked to."""
        if not replace and path.exists() and Deployment.load(path).contracts != self.deployment.contracts:
            what = f"{path} belongs to another deployment than {self.url}'s"
            hint = "muster init --force replaces it and keeps the keys; or name another profile with MUSTER_PROFILE"
            raise ConfigError(what, hint)
        self.deployment.save(path)


def ask_access(url: str, rpc: str | None = None) -> Access:
    """What the service at `url` says; `rpc` instead of the URLs that it names. Raises ConfigError, UnreachableError."""
    url = service_url(url)
    answer = ask_service(url, POOL)
    document = parse_document(answer.deployment.encode(), Deployment, f"the deployment that {url} names")
    document.check_abis(f"the deployment that {url} names")
    named = tuple(rpc_urls(document.network, rpc, ",".join(answer.rpc)))
    return Access(url, answer.pool, named, document, answer.config_hash)


def check_access(access: Access, state: State) -> None:
    """Raise IntegrityError unless the chain bears out what the service says of the pool."""
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
