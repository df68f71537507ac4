"""What `muster env check` is given: an environment's name, its file, or a pool's configuration."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from environments.base import Environment
from environments.registry import data_folder, load_environment
from protocol.config import MAX_FILE_BYTES, EnvironmentConfig, PoolConfig
from protocol.encoding import parse_document
from protocol.errors import ConfigError, MusterError
from protocol.files import explained, file_sha256, read_bounded, write_file

_KINDS = {".py": "program", ".jsonl": "genesys", ".lock": "verifiers"}
_CONFIGS = (".toml", ".json")
_BUILT_IN = ("lookup",)


@dataclass(frozen=True)
class CheckTarget:
    """An environment that is to be checked. `data`: the folder of its file, where that is not the usual one."""

    config: EnvironmentConfig
    environment: Environment
    data: Path | None = None


@contextmanager
def targets(named: str, params: dict[str, Any]) -> Iterator[list[CheckTarget]]:
    """Yield the environments that are meant. Raises ConfigError, IntegrityError for a wrong row, ScoringUnavailable."""
    path = Path(named).expanduser()
    if path.suffix in _CONFIGS:
        if params:
            raise ConfigError("--param does not go with a pool's configuration", "write `params` into the file")
        document = PoolConfig.load(path)
        held_out = [
            evaluation_set.environment
            for evaluation_set in document.evaluation.sets
            if evaluation_set.environment is not None
        ]
        yield [CheckTarget(candidate, load_environment(candidate)) for candidate in (*document.environments, *held_out)]
    elif path.suffix in _KINDS:
        with TemporaryDirectory() as name:
            folder = Path(name)
            try:
                target = _of_file(path, params, folder)
            except MusterError as error:  # it names the place where the file is tried
                (tried,) = (*folder.glob("?" * 64), folder)[:1]
                what = error.what.replace(str(tried), str(path)).replace(tried.name, str(path))
                raise type(error)(what, error.hint) from None
            yield [target]
    elif path.suffix == ".parquet":
        raise ConfigError(f"{named} is no file of JSON lines", f"muster env screen {named} --out rows.jsonl")
    elif named in _KINDS.values():
        hint = f"name the file itself ({', '.join(_KINDS)}) or the pool's configuration"
        raise ConfigError(f"`{named}` is a file", hint)
    elif "/" not in named and named not in _BUILT_IN:
        hint = "use reasoning_gym/DATASET, lookup, a file (.py, .jsonl, .lock) or a configuration"
        raise ConfigError(f"`{named[:80]}` is no environment", hint)
    else:
        config = _config(name=named, params=params)
        yield [CheckTarget(config, load_environment(config))]


def keep_file(path: Path, content: str) -> Path:
    """Put an environment's file where pools of this machine look for it: under its hash in the user's cache."""
    stored = data_folder() / content
    write_file(stored, read_bounded(path, MAX_FILE_BYTES), "check the folder, or set XDG_CACHE_HOME")
    return stored


def _of_file(path: Path, params: dict[str, Any], folder: Path) -> CheckTarget:
    """Place the file under its hash in a folder of its own: nothing of the user's is written to."""
    with explained(f"read {path}", "check the path"):
        content = file_sha256(path)
    (folder / content).symlink_to(path.resolve())
    kind = _KINDS[path.suffix]
    config = _config(name=kind, params=params, content=content)
    if kind == "genesys":
        from environments.genesys import ProblemFile

        config = config.model_copy(update={"rows": len(ProblemFile(folder / content, content))})
    if kind == "verifiers":
        from environments.registry import data_folder
        from environments.verifiers.install import read_lock

        lock = read_lock(folder / content, content)
        for wheel in lock.carried:  # the wheels that it carries come from the user's cache
            (folder / wheel).symlink_to(data_folder() / wheel)
        config = config.model_copy(update={"rows": lock.rows})
    return CheckTarget(config, load_environment(config, folder), folder)


def _config(**fields: Any) -> EnvironmentConfig:
    return parse_document(json.dumps(fields).encode(), EnvironmentConfig, "the environment")
