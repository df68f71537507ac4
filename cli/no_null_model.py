"""Pools in which no node case can convict: said where a pool is shown, and before anybody loses a bond there."""

from typing import TYPE_CHECKING, Any

import typer

from protocol.errors import ConfigError, MusterError

if TYPE_CHECKING:
    from chain.indexer.records import Pool


def pool_without_null_model(service: str | None, known: dict[str, Any]) -> str:
    """Why none can, by the configuration that the pool's service has; empty if one can, or the configuration cannot be
    had. `known`: the chain's facts as `muster pool status` keeps them, older programs' too."""
    from cli.up.pool_document import fetch_pool_config
    from validator.challenges import no_null_model

    if not service or "audit_rate" not in known:
        return ""
    try:
        return no_null_model(fetch_pool_config(service, bytes.fromhex(known["config"])), known["audit_rate"])
    except MusterError:
        return ""


def refuse_no_null_model(pool: "Pool") -> None:
    """Raise ConfigError for a pool whose juries refute every case. One whose configuration cannot be had is said on
    stderr."""
    from cli.up.pool_document import fetch_pool_config
    from validator.challenges import no_null_model

    try:
        if not pool.service_url:
            raise ConfigError("its owner announced no service", "ask the owner for the configuration")
        config = fetch_pool_config(pool.service_url, pool.config_hash)
    except MusterError as error:
        typer.echo(f"pool {pool.pool}: whether it names a null model was not checked: {error}", err=True)
        return
    if why := no_null_model(config, pool.terms.auditRate):
        raise ConfigError(
            f"{why}: its juries refute every case, and the bond would be lost", "only its owner can remove the node"
        )
