"""Where the files of environments lie on this machine: by their hash, in a folder of the process or of the user."""

from pathlib import Path

from protocol.environments import EnvironmentConfig
from protocol.errors import ConfigError
from protocol.files import user_cache


def data_folder(data: Path | None = None) -> Path:
    """The given folder, else the user's cache."""
    return data or user_cache("environments")


def needs_file(config: EnvironmentConfig) -> bool:
    """Whether an environment is a file of the pool's bucket, named by its hash."""
    return config.name in ("genesys", "program")


def content_path(data: Path | None, config: EnvironmentConfig) -> Path:
    """Where the environment's file should be. Raises ConfigError where the configuration names none."""
    if not config.content:
        raise ConfigError(f"environment {config.called} names no `content`", "write the SHA-256 of its file")
    return data_folder(data) / config.content
