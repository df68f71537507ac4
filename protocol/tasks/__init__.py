"""Tasks and the rewards, prompts and answers that worker, validator and trainer must agree on bit for bit."""

from protocol.config import TaskConfig
from protocol.errors import ConfigError
from protocol.tasks.base import Problem, Task

__all__ = ["Problem", "Task", "load_task"]


def load_task(config: TaskConfig) -> Task:
    """The task a pool's configuration names. Raises ConfigError for an unknown task or a wrong parameter."""
    family, _, name = config.name.partition("/")
    if family == "reasoning_gym" and name:
        from protocol.tasks.gym import GymTask

        return GymTask(name, config.params)
    raise ConfigError(f"unknown task `{config.name}`", "use `reasoning_gym/<dataset>`, e.g. `reasoning_gym/chain_sum`")
