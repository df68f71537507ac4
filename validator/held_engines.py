"""The engines that a machine judges with: one for everything, others for files of node cases whose worker used them.

Two engines differ by more than small cheats change; one engine differs from itself by far less. So a file of a node
case is measured by the engine that its header names, where this machine has it and the pool's law knows that pair
(docs/evidence.md). A worker that names an engine which it does not use only makes its own errors larger.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from engines.arithmetic import arithmetic_of
from engines.base import Engine
from engines.runtime import vllm_installed
from protocol.errors import ConfigError, printable
from protocol.evidence.figures import engine_key
from runtime.process import EngineConfig, EngineName

log = logging.getLogger("muster.validator")


class OtherEngines:
    """Engines besides the one that judges everything: each is started when a file first needs it, and kept."""

    def __init__(self, configs: Sequence[EngineConfig] = ()) -> None:
        self._configs = {engine_key(one.name, one.dtype, arithmetic_of(one.device)): one for one in configs}
        self._made: dict[str, LoadedEngine] = {}

    def of(self, key: str) -> "LoadedEngine | None":
        """The engine with this arithmetic; None where there is none, or it did not start, which is tried once."""
        if key in self._configs:
            log.info("starting the engine %s for a file that was made with it", key)
            config = self._configs.pop(key)
            try:
                self._made[key] = LoadedEngine(config.make())
            except Exception as error:  # an engine's library raises anything, and the one that judges is left
                log.warning("the engine %s does not start: %s", key, printable(str(error) or repr(error)))
        return self._made.get(key)


class LoadedEngine:
    """An engine that the judges of several pools share, and whose weights it has loaded; `others` are what the machine
    holds besides."""

    def __init__(self, engine: Engine, others: OtherEngines | None = None) -> None:
        self.engine, self.others = engine, others or OtherEngines()
        self._loaded = b""
        self._refused: set[bytes] = set()

    @property
    def key(self) -> str:
        """Its arithmetic, as laws name it."""
        info = self.engine.info
        return engine_key(info.name, info.dtype, info.device)

    def has(self, manifest: bytes) -> bool:
        return self._loaded == manifest

    def load(self, manifest: bytes, folder: Path) -> None:
        self._loaded = b""
        self._refused.add(manifest)
        self.engine.load(folder)
        self._refused.discard(manifest)
        self._loaded = manifest

    def refused(self, manifest: bytes) -> bool:
        """Whether it could not load these weights when it last tried, which may have taken minutes."""
        return manifest in self._refused


def installed() -> tuple[EngineName, ...]:
    """The engines that can be started here."""
    return ("transformers", "vllm") if vllm_installed() else ("transformers",)


def others(own: EngineConfig, names: Sequence[EngineName] | None = None) -> tuple[EngineConfig, ...]:
    """What a machine that judges with `own` holds besides, in the same dtype on the same device; without `names` all
    that are installed. Raises ConfigError for one that is not."""
    here = installed()
    used = (here[-1] if own.name == "auto" else own.name,)
    for name in names or ():
        if name not in here:
            raise ConfigError(f"`case_engines` names {name}, which is not installed", "install it, or leave it out")
    return tuple(
        own.model_copy(update={"name": name}) for name in (here if names is None else names) if name not in used
    )
