"""How the worker of `muster node up` is kept apart from the machine, and what is said about it."""

from pathlib import Path
from typing import Any, get_args

from cli.profile import Profile
from protocol.encoding import load_document
from protocol.errors import ConfigError
from sandbox.policy import Wanted


def with_isolation(profile: Profile, wanted: str | None) -> Profile:
    """The profile with what an option says instead. Raises ConfigError for a word that means nothing."""
    if wanted is None:
        return profile
    if wanted not in get_args(Wanted):
        raise ConfigError(f"there is no isolation {wanted!r}", f"choose one of {', '.join(get_args(Wanted))}")
    return profile.model_copy(update={"isolation": wanted})


def isolation_values(profile: Profile) -> dict[str, Any]:
    """What the worker's configuration says of it."""
    return {"isolation": profile.isolation, "isolation_image": profile.isolation_image}


def isolation_words(config_path: Path) -> str:
    """The mode that a worker's configuration comes to on this machine, and what that protects. Raises ConfigError when
    the one asked for does not work here."""
    from sandbox.launch import choose
    from worker.config import WorkerConfig
    from worker.main import absolute, words, worker_policy

    config = load_document(config_path, WorkerConfig)
    choice = choose(config.isolation, config.isolation_image)
    return "\n".join(f"isolation: {line}" for line in words(choice, worker_policy(absolute(config), choice.mode)))
