"""Before a seat chooses a pool: whether its owner's programs leave a judge enough time."""

from typing import TYPE_CHECKING

import typer

from protocol.errors import ConfigError, MusterError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cli.session import Session
    from protocol.config import PoolConfig


def refuse_slow_pools(session: "Session", groups: "Iterable[int]") -> None:
    """Raise ConfigError for the first of these pools whose worst case does not fit into its windows: a seat that
    chooses it by its number is fined for what it does not judge in time. Families have no terms of their own; what is
    too slow of theirs, the process refuses. A pool whose configuration cannot be had is said on stderr."""
    from validator.pools import slow_pool

    pools = session.state().pools
    for pool in (pools[number] for number in groups if number in pools):
        try:
            config = _config(pool.pool, pool.service_url, pool.config_hash)
        except MusterError as error:
            typer.echo(f"pool {pool.pool}: whether it can be judged in time was not checked: {error}", err=True)
            continue
        if slow := slow_pool(config, pool):
            raise ConfigError(f"pool {pool.pool} is refused: {slow.what}", f"its owner can mend that: {slow.hint}")


def _config(pool: int, announced: str, config_hash: bytes) -> "PoolConfig":
    from cli.profile import find_profile
    from cli.up.pool_document import fetch_pool_config

    profile = find_profile("validator")
    service = profile.service if profile is not None and profile.pool == pool else ""
    if not (service := service or announced):
        raise ConfigError("its owner announced no service", "ask the owner for the configuration")
    return fetch_pool_config(service, config_hash)
