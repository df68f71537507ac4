"""What an image imports before it is kept: the standard library's usual modules, and packages of pure Python."""

import hashlib
import importlib.util
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import wasmtime

from protocol.errors import MusterError, ScoringUnavailable
from protocol.files import write_atomic
from sandbox import guest, wasi, wasm_module
from sandbox.wasi import MIB, Ended, Ending, Instance, SandboxLimits, SandboxOutcome, SandboxProgram, System

_LEFT_OUT = {"tests", "benchmarks", "testing"}


@dataclass(frozen=True)
class ImageRecipe:
    """`packages`: taken from this machine's Python, with all modules; `own`: module name → a file of this repository.
    `imports`: of these, what is imported beforehand; `warm`: Python that fills caches. `sha256`: of the result;
    `sources`: of what it is made from (`sources`), which tells in a moment that the result is another."""

    name: str
    sha256: str
    sources: str = ""
    packages: tuple[str, ...] = ()
    own: tuple[tuple[str, str], ...] = ()
    imports: tuple[str, ...] = ()
    warm: str = ""


RECIPES = {
    "python": ImageRecipe(
        "python",
        "c0832d6327aa1875146f7a8c2610f8fc53a2d36021607643f21279e2a227ad18",
        "6c6a6c91a22cbbc65f8ef2f6fc077184be67390976eacd30fecb8236b63bdea0",
    ),
    "mathematics": ImageRecipe(
        "mathematics",
        "974b0df13dd32b9a3502f2a503080e4b5f155dad506bdd5f9770c0ff73903c86",
        "021c85fed705d5ad5ce641d63cf70f48125678ff12450ac20f5efe6e29ff5f33",
        packages=("mpmath", "sympy"),
        own=(("muster_mathematics", "environments/scorers/mathematics_guest.py"),),
        imports=("muster_mathematics",),
        warm="import muster_mathematics\nmuster_mathematics.warm()\n",
    ),
}


def bundled(wanted: ImageRecipe) -> bytes:
    """Return what the interpreter reads while an image is made. Raise ScoringUnavailable for a missing package."""
    modules = [module for package in wanted.packages for module in _modules(package)]
    root = Path(__file__).resolve().parents[1]
    modules += [(name, False, (root / path).read_bytes()) for name, path in wanted.own]
    sizes = [(name, is_package, len(text)) for name, is_package, text in modules]
    head = json.dumps({"modules": sizes, "imports": wanted.imports, "warm": wanted.warm}).encode()
    return b"%8d" % len(head) + head + b"".join(text for _, _, text in modules)


def _modules(package: str) -> Iterator[tuple[str, bool, bytes]]:
    """Yield (name, whether it is a package, source) in the order of their names, tests left out."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ScoringUnavailable(f"`{package}` is not installed", "run `make setup`")
    (folder,) = map(Path, spec.submodule_search_locations)
    names = []
    for path in folder.rglob("*.py"):
        parts = (package, *path.relative_to(folder).with_suffix("").parts)
        if not _LEFT_OUT & set(parts):
            is_package = parts[-1] == "__init__"
            names.append((".".join(parts[:-1] if is_package else parts), is_package, path))
    for name, is_package, path in sorted(names):
        yield name, is_package, path.read_bytes()


# The interpreter runs up to a point where it asks for the time, and its memory is kept as it is then. A run maps that
# memory, copy on write, and calls the prepared function: it neither starts nor imports anything. Making an image is
# deterministic, so its hash is pinned: a machine with other packages or another interpreter cannot score.

_READY = b"ready\n"
_LIMITS = SandboxLimits(fuel=2_000_000_000_000, memory=1024 * MIB, output=MIB, calls=10_000_000)
# Offset of `tp_call` in CPython's type objects, in a memory of 32-bit addresses
_CALL_SLOT = 16 * 4


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
            raise Ended(Ending.EXITED, 0)
        return super()._clock_time_get(clock, precision, at)


def load_image(name: str) -> Image | None:
    """Return an image from the cache; None where it has not been made, or is damaged and made again."""
    path = _path(name)
    memory, about = wasi.load(path), path.with_suffix(".json")
    if memory is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            fields = json.loads(about.read_bytes())
            return Image(name, memory, Entry(**fields["entry"]), fields["size"])
    about.unlink(missing_ok=True)
    return None


def is_made(name: str) -> bool:
    return all(path.exists() for path in (wasi.cached("code"), _path(name), _path(name).with_suffix(".json")))


def copy_made(folder: Path) -> None:
    """Copy this user's images into another cache, whose users may write to it. Raise OSError."""
    for name in filter(is_made, RECIPES):
        for path in (wasi.cached("code"), _path(name)):
            for file in (path, path.with_suffix(".sha256"), path.with_suffix(".json")):
                if file.is_file() and not (folder / file.name).is_file():
                    write_atomic(folder / file.name, file.read_bytes())


def make_image(name: str) -> None:
    """Make an image and keep it in the cache. Raise ScoringUnavailable where it is not the pinned one."""
    wanted = RECIPES[name]
    content, entry = build(wanted)
    if (actual := digest(content, entry)) != wanted.sha256:
        raise ScoringUnavailable(
            f"this machine's image `{name}` is {actual}, not the pinned {wanted.sha256}", "run `make setup`"
        )
    path = _path(name)
    wasi.load_or_compile(path, wasm_module.memory_module(content))
    write_atomic(path.with_suffix(".json"), json.dumps({"entry": asdict(entry), "size": len(content)}).encode())


def digest(content: bytes, entry: Entry) -> str:
    """Return what is pinned: the hash of the memory and of where to begin."""
    return hashlib.sha256(content + json.dumps(asdict(entry), sort_keys=True).encode()).hexdigest()


def sources(wanted: ImageRecipe) -> str:
    """Return the SHA-256 of all that decides what an image holds, except the interpreter, which is pinned itself."""
    return hashlib.sha256(Path(guest.__file__).read_bytes() + bundled(wanted)).hexdigest()


def build(wanted: ImageRecipe) -> tuple[bytes, Entry]:
    """Run the interpreter until it is ready, for seconds to a minute; return its memory and where to begin."""
    first = wasi.load_or_compile(wasi.cached("start"), wasm_module.first_memory_module(wasi.source()))
    instance = Instance(wasi.code(), first, bundled(wanted), _LIMITS, _Photographer)
    system = instance.system
    script = Path(guest.__file__).read_text() + "\nprepare()\n"
    system.arguments, system.environment = ("python", "-S", "-c", script), ("PYTHONHASHSEED=0", "PYTHONUTF8=1")
    start = instance.exports["_start"]
    assert isinstance(start, wasmtime.Func)
    ending, _ = instance.run(start)
    if ending is not Ending.EXITED or not system.written[2].endswith(_READY):
        errors = bytes(system.written[2][-2000:]).decode(errors="replace")
        raise ScoringUnavailable(f"image `{wanted.name}` was not made ({ending}): {errors}", "report this")
    content = bytes(instance.memory.read(instance.store, 0, instance.memory.data_len(instance.store)))
    function, nothing, kind = map(int, system.written[1].split())
    (call,) = struct.unpack_from("<I", content, kind + _CALL_SLOT)
    return content, Entry(instance.stack.value(instance.store), call, function, nothing)


def _path(name: str) -> Path:
    return wasi.cached(name, RECIPES[name].sha256)


def run_image(code: wasmtime.Module, image: Image, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
    """Run a program in an image, the same everywhere to the last unit of fuel. Raise ValueError for too little
    memory."""
    if limits.memory < image.size:
        raise ValueError(f"image `{image.name}` needs {image.size} bytes of memory, the limit is {limits.memory}")
    request = {"source": program.source, "function": program.function, "arguments": program.arguments}
    document = json.dumps(request).encode()
    instance = Instance(code, image.memory, b"%8d" % len(document) + document + program.stdin, limits, System)
    instance.stack.set_value(instance.store, image.entry.stack)
    table = instance.exports["table"]
    assert isinstance(table, wasmtime.Table)
    call: Any = table.get(instance.store, image.entry.call)
    ending, exit_code = instance.run(call, image.entry.function, image.entry.nothing, 0)
    written, memory = instance.system.written, instance.memory.data_len(instance.store)
    return SandboxOutcome(ending, exit_code, bytes(written[1]), bytes(written[2]), instance.used, memory)


def main(arguments: Sequence[str]) -> int:
    """Make these images, all by default; with `--pin` print what they and their sources hash to, for RECIPES."""
    pin = arguments[:1] == ["--pin"]
    for name in arguments[pin:] or RECIPES:
        if pin:
            print(name, digest(*build(RECIPES[name])), sources(RECIPES[name]))
        elif not is_made(name):
            make_image(name)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except MusterError as error:
        sys.exit(f"sandbox: {error}")
