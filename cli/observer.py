"""What a process without a key needs to know to read a pool: chain, service, folders."""

from pathlib import Path
from typing import TYPE_CHECKING

from protocol.errors import ConfigError

if TYPE_CHECKING:
    from cli.options import Reading
    from runtime.process import EngineConfig, ProcessConfig


def observer_config(
    look: "Reading", pool: int, orchestrator: str, engine: "EngineConfig", home: Path, cache: Path, allow_private: bool
) -> "ProcessConfig":
    """`home` keeps the chain's events, `cache` the weights. Raises ConfigError if no deployment is named."""
    from cli.session import deployment_file, deployment_rpc, load_deployment
    from runtime.process import ProcessConfig

    if look.deployment is None:
        raise ConfigError("no deployment is named", "pass --deployment FILE (or set MUSTER_DEPLOYMENT)")
    return ProcessConfig(
        home=home,
        cache=cache,
        deployment=deployment_file(look.deployment),
        rpc=tuple(deployment_rpc(load_deployment(look.deployment), look.rpc)),
        pool=pool,
        orchestrator=orchestrator,
        allow_private_sources=allow_private,
        engine=engine,
    )
