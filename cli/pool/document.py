"""A pool's configuration document, from its service by its hash on chain, and what it means for who takes part."""

import hashlib
from contextlib import closing
from typing import TYPE_CHECKING, Any

import typer

from protocol.api.endpoints import OBJECTS
from protocol.config import PoolConfig
from protocol.errors import ConfigError, IntegrityError, MusterError
from storage.keys import object_key
from storage.transfers import HttpObjects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chain.indexer.records import Pool
    from cli.session import Session


_MAX_BYTES = 1 << 20


def service_objects(service: str, seconds: float) -> "closing[HttpObjects]":
    """Open what is in the bucket of the pool whose service this is. Whoever asks named the service and sees the answer
    alone, so it may point to wherever its bucket is."""
    return closing(HttpObjects([service.rstrip("/") + OBJECTS], timeout=seconds, allow_private=True))


def fetch_pool_config(service: str, config_hash: bytes) -> PoolConfig:
    """Fetch a pool's configuration. Raises UnreachableError, or IntegrityError for another document."""
    with service_objects(service, 20.0) as objects:
        data = objects(object_key("configs", config_hash), _MAX_BYTES)
    if hashlib.sha256(data).digest() != config_hash:
        raise IntegrityError(f"{service} sent another configuration than the pool's", "ask the pool's owner")
    return PoolConfig.parse(data, "the pool's configuration document")


def pool_without_null_model(service: str | None, known: dict[str, Any]) -> str:
    """Return why no node challenge can convict in a pool, of which `muster pool status` knows the facts `known`; empty
    if one can, or the configuration cannot be had."""
    from validator.challenges import no_null_model

    if not service or not known:
        return ""
    try:
        return no_null_model(fetch_pool_config(service, bytes.fromhex(known["config"])), known["audit_rate"])
    except MusterError:
        return ""


def refuse_no_null_model(pool: "Pool") -> None:
    """Raise ConfigError for a pool whose juries refute every challenge. If its configuration cannot be had, a line on
    standard error says so."""
    from validator.challenges import no_null_model

    try:
        if not pool.service_url:
            raise ConfigError("its owner announced no service", "ask the owner for the configuration")
        config = fetch_pool_config(pool.service_url, pool.config_hash)
    except MusterError as error:
        typer.echo(f"pool {pool.pool}: whether it names a null model was not checked: {error}", err=True)
        return
    if why := no_null_model(config, pool.terms.auditRate):
        what = f"{why}: its juries refute every challenge, and the bond would be lost"
        raise ConfigError(what, "only its owner can remove the node")


def refuse_slow_pools(session: "Session", groups: "Iterable[int]") -> None:
    """Raise ConfigError for the first of these pools whose worst case does not fit into its windows: a seat that judges
    it is fined for what it does not judge in time. A validator group has no terms of its own; the process refuses what
    is too slow of its pools. If a configuration cannot be had, a line on standard error says so."""
    from cli.profile import find_profile
    from validator.pools import slow_pool

    pools, profile = session.state().pools, find_profile("validator")
    for pool in (pools[number] for number in groups if number in pools):
        own = profile.service if profile is not None and profile.pool == pool.pool else ""
        try:
            if not (service := own or pool.service_url):
                raise ConfigError("its owner announced no service", "ask the owner for the configuration")
            config = fetch_pool_config(service, pool.config_hash)
        except MusterError as error:
            typer.echo(f"pool {pool.pool}: whether it can be judged in time was not checked: {error}", err=True)
            continue
        if slow := slow_pool(config, pool):
            raise ConfigError(f"pool {pool.pool} is refused: {slow.what}", f"its owner can mend that: {slow.hint}")
