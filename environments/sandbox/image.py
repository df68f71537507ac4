"""Interpreters that have already started and imported what is wanted: their memory, kept to begin every run with.

An image is made by running the interpreter up to a point where it asks for the time, and keeping its memory as it is
then. A run maps that memory, copy on write, and calls the function that was prepared to be called: it neither starts
nor imports anything. Making one is deterministic, so that the hash of its memory is pinned here: whoever has other
packages, or another interpreter, cannot score and says so.
"""

import hashlib
import json
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

import wasmtime

from environments.errors import ScoringUnavailable
from environments.sandbox import guest, interpreter, wasm
from environments.sandbox.bundle import RECIPES, ImageRecipe, bundled, recipe
from environments.sandbox.instance import Instance
from environments.sandbox.program import MIB, Ending, SandboxLimits
from environments.sandbox.system import Ended, System
from protocol.files import write_atomic

_READY = b"ready\n"
_LIMITS = SandboxLimits(fuel=2_000_000_000_000, memory=1024 * MIB, output=MIB, calls=10_000_000)
_CALL_SLOT = 16 * 4
"""Offset of `tp_call` in CPython's type objects, in a memory of 32-bit addresses."""


@dataclass(frozen=True)
class Entry:
    """Where a run begins: the stack pointer, the place in the function table of what calls a Python function, and the
    addresses of that function and of an empty tuple."""

    stack: int
    call: int
    function: int
    nothing: int


@dataclass(frozen=True)
class Image:
    """A memory and where to begin in it; `size` in bytes."""

    name: str
    memory: wasmtime.Module
    entry: Entry
    size: int


class _Photographer(System):
    """Ends the run at the first question for the time after the interpreter has said that it is ready."""

    def _clock_time_get(self, clock: int, precision: int, at: int) -> int:
        if self.written[2].endswith(_READY):
            raise Ended(0)
        return super()._clock_time_get(clock, precision, at)


def load_image(name: str) -> Image | None:
    """An image from the cache; None where it has not been made, or is damaged: it is then made again by whoever asks
    for it next."""
    path = _path(name)
    memory = interpreter.load(path)
    about = path.with_suffix(".json")
    try:
        told = json.loads(about.read_bytes())
        entry, size = Entry(**told["entry"]), told["size"]
    except (OSError, ValueError, KeyError, TypeError):
        memory = None
    if memory is None:
        about.unlink(missing_ok=True)
        return None
    return Image(name, memory, entry, size)


def is_made(name: str) -> bool:
    """Whether code and image are in the cache."""
    return all(path.exists() for path in (interpreter.cached("code"), _path(name), _path(name).with_suffix(".json")))


def copy_made(folder: Path) -> None:
    """Copy the images that this user has into `folder`, another cache, where they are missing. Copied, not shared:
    whoever uses the other cache may write to it. Raises OSError where it cannot be written to."""
    for name in (one.name for one in RECIPES if is_made(one.name)):
        for path in (interpreter.cached("code"), _path(name)):
            for one in (path, path.with_suffix(".sha256"), path.with_suffix(".json")):
                target = folder / one.name
                if one.is_file() and not target.is_file():
                    write_atomic(target, one.read_bytes())


def make_image(name: str) -> Image:
    """An image from the cache, or made anew. Raises ScoringUnavailable where it is not the pinned one."""
    wanted = recipe(name)
    content, entry = build(wanted)
    found = digest(content, entry)
    if found != wanted.sha256:
        raise ScoringUnavailable(
            f"this machine's image `{name}` is {found}, not the pinned {wanted.sha256}",
            "run `make setup`",
        )
    path = _path(name)
    interpreter.load_or_compile(path, wasm.memory_module(content))
    about = {"entry": asdict(entry), "size": len(content)}
    write_atomic(path.with_suffix(".json"), json.dumps(about).encode())
    made = load_image(name)
    assert made is not None
    return made


def digest(content: bytes, entry: Entry) -> str:
    """What is pinned: the memory and where to begin."""
    return hashlib.sha256(content + json.dumps(asdict(entry), sort_keys=True).encode()).hexdigest()


def sources(wanted: ImageRecipe) -> str:
    """SHA-256 of all that decides what an image holds, but for the interpreter, which is pinned itself."""
    return hashlib.sha256(Path(guest.__file__).read_bytes() + bundled(wanted)).hexdigest()


def build(wanted: ImageRecipe) -> tuple[bytes, Entry]:
    """Run the interpreter until it is ready; its memory and where to begin. Seconds to a minute."""
    code = interpreter.code()
    first = interpreter.load_or_compile(interpreter.cached("start"), wasm.first_memory_module(interpreter.source()))
    instance = Instance(code, first, bundled(wanted), _LIMITS, _Photographer)
    system = instance.system
    script = Path(guest.__file__).read_text() + "\nprepare()\n"
    system.arguments, system.environment = ("python", "-S", "-c", script), ("PYTHONHASHSEED=0", "PYTHONUTF8=1")
    start = instance.exports["_start"]
    assert isinstance(start, wasmtime.Func)
    ending, _ = instance.run(start)
    if ending is not Ending.EXITED or not system.written[2].endswith(_READY):
        told = bytes(system.written[2][-2000:]).decode(errors="replace")
        raise ScoringUnavailable(f"image `{wanted.name}` was not made ({ending}): {told}", "report this")
    content = bytes(instance.memory.read(instance.store, 0, instance.memory.data_len(instance.store)))
    function, nothing, kind = map(int, system.written[1].split())
    (call,) = struct.unpack_from("<I", content, kind + _CALL_SLOT)
    return content, Entry(instance.stack.value(instance.store), call, function, nothing)


def _path(name: str) -> Path:
    return interpreter.cached(name, recipe(name).sha256)
