"""From an environment's name in a pool's configuration to the environment."""

from environments.base import Environment
from protocol.config import TaskConfig
from protocol.errors import ConfigError


def load_environment(config: TaskConfig) -> Environment:
    """The environment a configuration names. Raises ConfigError for an unknown one or a wrong parameter."""
    family, _, name = config.name.partition("/")
    if family == "reasoning_gym" and name:
        from environments.gym import GymEnvironment

        return GymEnvironment(name, config.params)
    raise ConfigError(
        f"unknown environment `{config.name}`", "use `reasoning_gym/<dataset>`, e.g. `reasoning_gym/chain_sum`"
    )
