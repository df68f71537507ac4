"""Environments that are files: where they lie on this machine (by their hash, in a folder of the process or of the
user), and the parameters that all of them take."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from environments.threshold import THRESHOLD, take_threshold
from protocol.environments import EnvironmentConfig
from protocol.errors import ConfigError
from protocol.files import user_cache

_LICENCE = "licence"


def data_folder(data: Path | None = None) -> Path:
    """The given folder, else the user's cache."""
    return data or user_cache("environments")


def needs_file(config: EnvironmentConfig) -> bool:
    """Whether an environment is a file of the pool's bucket, named by its hash."""
    return config.name in ("genesys", "program", "verifiers")


def carried_files(data: Path, config: EnvironmentConfig) -> list[str]:
    """The hashes of further files that an environment's file, which lies in the folder `data`, names. Raises
    ConfigError, IntegrityError where that file is not what it should be."""
    if config.name != "verifiers":
        return []
    from environments.verifiers.lock import read_lock

    return read_lock(data / config.content, config.content).carried


def content_path(data: Path | None, config: EnvironmentConfig) -> Path:
    """Where the environment's file should be. Raises ConfigError where the configuration names none."""
    if not config.content:
        raise ConfigError(f"environment {config.called} names no `content`", "write the SHA-256 of its file")
    return data_folder(data) / config.content


def file_params(config_name: str, params: dict[str, Any], more: Sequence[str] = ()) -> tuple[float, str]:
    """`score_threshold` (environments/threshold.py), and `licence`, what the owner says of the file. Raises ConfigError
    for any other parameter; those named in `more` were taken before."""
    own = dict(params)
    threshold = take_threshold(own)
    licence = own.pop(_LICENCE, "unknown")
    if own or not isinstance(licence, str) or len(licence) > 100:
        wrong = next(iter(own), _LICENCE)
        raise ConfigError(
            f"{config_name} has no such parameter: `{wrong}`",
            f"it has {', '.join((THRESHOLD, *more))} and {_LICENCE}, a text",
        )
    return threshold, licence
