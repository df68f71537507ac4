"""What the sandboxed interpreter runs, as text: it never runs outside. CPython 3.12, WASI, its standard library only.

`prepare` is run once, while an image is made, and leaves everything imported that programs commonly want; `resume` is
where every run of that image begins. Whatever a program does to this interpreter, it does to its own copy: what counts
is decided outside, by what was written to standard output.
"""

import atexit
import builtins
import gc
import io
import json
import os
import sys
import threading
import time
import traceback
import types
import zlib
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from typing import Any

USUAL = """
abc array ast base64 binascii bisect calendar cmath collections collections.abc contextlib copy csv dataclasses
datetime decimal enum fractions functools hashlib heapq inspect itertools keyword locale math numbers operator pprint
queue random re secrets statistics string struct textwrap threading time timeit typing unicodedata uuid warnings
"""


PRELUDE = """
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict, defaultdict, deque
from functools import cache, cmp_to_key, lru_cache, reduce
from heapq import heapify, heappop, heappush, heapreplace, nlargest, nsmallest
from itertools import accumulate, chain, combinations, count, groupby, permutations, product, zip_longest
from math import ceil, comb, factorial, floor, gcd, inf, isqrt, lcm, sqrt
from typing import *
"""
"""What judges of functions import before a solution."""


class Bundle(MetaPathFinder, InspectLoader):
    """Modules from memory: name → whether it is a package, and its compressed source."""

    def __init__(self, modules: dict[str, tuple[bool, bytes]]) -> None:
        self.modules = modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self.modules:
            return None
        return spec_from_loader(name, self, is_package=self.modules[name][0])

    def is_package(self, name: str) -> bool:
        return self.modules[name][0]

    def get_source(self, name: str) -> str:
        return zlib.decompress(self.modules[name][1]).decode()

    def get_code(self, name: str) -> Any:
        return compile(self.get_source(name), f"<{name}>", "exec", dont_inherit=True)


def read_exactly(size: int) -> bytes:
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_request() -> Any:
    """A JSON document after eight digits with its length; what follows is the program's own standard input."""
    return json.loads(read_exactly(int(read_exactly(8))))


def prepare() -> None:
    """Import, tell the host where to go on, and stop here."""
    request = read_request()
    modules = {}
    for name, is_package, size in request["modules"]:
        modules[name] = (is_package, zlib.compress(read_exactly(size), 9))
    if modules:
        sys.meta_path.append(Bundle(modules))
    for name in (*USUAL.split(), *request["imports"]):
        __import__(name)
    exec(request["warm"], {"__name__": "warm"})
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8", "surrogateescape")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8", "surrogateescape")
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "utf-8", "backslashreplace")
    for stream, mode in ((sys.stdin, "r"), (sys.stdout, "w"), (sys.stderr, "w")):
        stream.mode = mode  # type: ignore[misc]  # as Python's own have it: fast readers and writers ask
    for module, name, value in (
        *((sys, f"__{stream}__", getattr(sys, stream)) for stream in ("stdin", "stdout", "stderr")),
        *((builtins, name, sys.exit) for name in ("exit", "quit")),
        (builtins, "input", read_line),
        (threading, "stack_size", lambda size=0: 0),
        (threading.Thread, "start", run_at_once),
        (threading.Thread, "join", lambda self, timeout=None: None),
    ):
        setattr(module, name, value)
    del request, modules
    gc.collect()
    gc.freeze()
    os.write(1, f"{id(resume)} {id(NOTHING)} {id(types.FunctionType)}\n".encode())
    os.write(2, b"ready\n")
    time.time()  # the host takes the memory inside this call


def read_line(prompt: Any = "", /) -> str:
    """In place of `input`, which asks the system about both streams on every call."""
    if prompt != "":
        sys.stdout.write(str(prompt))
    line = sys.stdin.readline()
    if not line:
        raise EOFError("EOF when reading a line")
    return line.removesuffix("\n")


def run_at_once(thread: threading.Thread) -> None:
    """In place of `Thread.start`: there are no threads here, and programs use one for its larger stack."""
    thread._started.set()  # type: ignore[attr-defined]
    thread.run()


def resume() -> None:
    """One run: never returns."""
    code = 1
    try:
        code = run(read_request())
    finally:
        os._exit(code)


def run(request: Any) -> int:
    """Exit code of a program, after its exit handlers, with everything written that it printed."""
    # what judges call is a module like any other: a program's own run, under its guard, is no part of it
    main = types.ModuleType("solution" if request["function"] else "__main__")
    sys.modules["__main__"] = sys.modules[main.__name__] = main
    out = sys.stdout
    if request["function"]:
        sys.stdout = sys.stderr
        exec(PRELUDE, main.__dict__)
    code = 0
    try:
        exec(compile(request["source"], "<program>", "exec", dont_inherit=True), main.__dict__)
        if request["function"]:
            out.write(json.dumps(called(main.__dict__, request["function"], request["arguments"])))
    except SystemExit as error:
        code = exit_code(error.code)
    except BaseException:
        code = 1
        traceback.print_exc()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, out, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except Exception:
            code = code or 120  # as Python ends where it cannot write what it has
    return code


def called(names: dict[str, Any], function: str, arguments: list[Any] | dict[str, Any]) -> Any:
    """Call a function of the program, or a method of its class `Solution` or of the last class that has one."""
    made = names.get(function)
    if made is None:
        own = [one for one in names.values() if isinstance(one, type) and one.__module__ == names["__name__"]]
        having = [one for one in own if hasattr(one, function)]
        if not having:
            raise KeyError(function)
        chosen = names["Solution"] if names.get("Solution") in having else having[-1]
        made = getattr(chosen(), function)
    return made(**arguments) if isinstance(arguments, dict) else made(*arguments)


def exit_code(value: Any) -> int:
    if value is None:
        return 0
    return value & 255 if isinstance(value, int) else 1


NOTHING: tuple[()] = ()
