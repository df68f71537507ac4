"""A pool's configuration document, from its service by its hash on chain, and what it means for who takes part."""

import hashlib
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import typer

from chain.indexer.records import Pool
from cli.profile import find_profile
from cli.session import Session
from environments.program import too_slow
from protocol.api.endpoints import OBJECTS
from protocol.config import PoolConfig
from protocol.errors import ConfigError, IntegrityError, MusterError
from storage.keys import object_key
from storage.transfers import HttpObjects
from validator.challenges import no_evidence

_MAX_BYTES = 1 << 20


def service_objects(service: str, seconds: float) -> closing[HttpObjects]:
    """Open a pool's bucket through its service, wherever that points: who asks named it, and sees the answer alone."""
    return closing(HttpObjects([service.rstrip("/") + OBJECTS], timeout=seconds, allow_private=True))


def fetch_pool_config(service: str, config_hash: bytes) -> PoolConfig:
    """Fetch a pool's configuration. Raises UnreachableError, or IntegrityError for another document."""
    with service_objects(service, 20.0) as objects:
        data = objects(object_key("configs", config_hash), _MAX_BYTES)
    if hashlib.sha256(data).digest() != config_hash:
        raise IntegrityError(f"{service} sent another configuration than the pool's", "ask the pool's owner")
    return PoolConfig.parse(data, "the pool's configuration document")


def pool_without_evidence(service: str | None, known: dict[str, Any]) -> str:
    """Return why no node challenge can convict in a pool; empty if one can, or its configuration cannot be had."""
    if not service or not known:
        return ""
    try:
        return no_evidence(fetch_pool_config(service, bytes.fromhex(known["config"])).evidence)
    except MusterError:
        return ""


def _checked_config(pool: Pool, service: str, question: str) -> PoolConfig | None:
    """Fetch a pool's configuration. If it cannot be had, a line on standard error says which `question` stays open."""
    try:
        if not service:
            raise ConfigError("its owner announced no service", "ask the owner for the configuration")
        return fetch_pool_config(service, pool.config_hash)
    except MusterError as error:
        typer.echo(f"pool {pool.pool}: whether {question} was not checked: {error}", err=True)
        return None


def refuse_no_evidence(pool: Pool) -> None:
    """Raise ConfigError for a pool whose juries refute every challenge."""
    config = _checked_config(pool, pool.service_url, "it has `evidence`")
    if config is not None and (why := no_evidence(config.evidence)):
        what = f"{why}: its juries refute every challenge, and the bond would be lost"
        raise ConfigError(what, "only its owner can remove the node")


def refuse_slow_pools(session: Session, groups: Iterable[int]) -> None:
    """Raise ConfigError for the first pool that cannot be judged in time, which its seats are fined for. Of a validator
    group, the process refuses what is too slow."""
    pools, profile = session.state().pools, find_profile("validator")
    for pool in (pools[number] for number in groups if number in pools):
        own = profile.service if profile is not None and profile.pool == pool.pool else ""
        config = _checked_config(pool, own or pool.service_url, "it can be judged in time")
        windows = pool.terms.commitWindow, pool.terms.juryCommitWindow
        if config is not None and (slow := too_slow(config, *windows)):
            raise ConfigError(f"pool {pool.pool} is refused: {slow.what}", f"its owner can mend that: {slow.hint}")
