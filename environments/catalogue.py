"""From an environment's name in a pool's configuration to the environment, of exactly the version it names."""

from pathlib import Path

from environments.base import Environment
from environments.data import content_path
from protocol.environments import EnvironmentConfig
from protocol.errors import ConfigError


def load_environment(config: EnvironmentConfig, data: Path | None = None) -> Environment:
    """The environment a configuration names; its file, if it has one, lies in the folder `data` by its hash. Raises
    ConfigError for an unknown one, a wrong parameter, a missing file, or another version than the configuration's."""
    environment = _load(config, data)
    declared = environment.declared
    if config.content and declared.content != config.content:
        raise ConfigError(
            f"environment {config.called}: the pool's content is {config.content[:16]}…, this machine has "
            f"{declared.content[:16]}… (version {declared.version})",
            "install the version of muster and of its packages that the pool was made with",
        )
    if environment.rows != config.rows:
        raise ConfigError(
            f"environment {config.called} has {environment.rows} rows, the configuration says {config.rows}",
            f"set `rows` to {environment.rows}",
        )
    return environment


def _load(config: EnvironmentConfig, data: Path | None) -> Environment:
    family, _, name = config.name.partition("/")
    if family == "reasoning_gym" and name:
        from environments.gym.environment import GymEnvironment

        return GymEnvironment(name, config.params)
    if config.name == "genesys":
        from environments.genesys.environment import GenesysEnvironment

        return GenesysEnvironment(content_path(data, config), config.content, config.params)
    if config.name == "program":
        from environments.program.environment import ProgramEnvironment

        return ProgramEnvironment(content_path(data, config), config.content, config.params)
    if config.name == "lookup":
        from environments.lookup.environment import LookupEnvironment

        return LookupEnvironment(config.params)
    if config.name == "verifiers":
        from environments.verifiers.environment import VerifiersEnvironment

        return VerifiersEnvironment(content_path(data, config), config.content, config.params)
    raise ConfigError(
        f"unknown environment `{config.name}`",
        "use `reasoning_gym/<dataset>`, `genesys`, `program`, `verifiers` or `lookup`",
    )
