"""What programs really give: run, some fifty in a process, in two orders and under two hash seeds.

`python -m benchmarks.genesys_truth` is one side: it reads lines of JSON, {kind, before, last, right}, and writes what
came of each, null where nothing did: more than three seconds, an exception, a file written. Kinds: `printed`, what the
last statement prints; `value`, its value as Python writes it; `formula`, what the last expression asks, unevaluated,
and what it is worth, both in LaTeX, where it is really equal to `right`.
"""

import contextlib
import gc
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from protocol.errors import MusterError

SECONDS, MEMORY, LONGEST, TOGETHER = 3, 4 << 30, 3000, 50
LOADED = ("mpmath", "networkx", "numpy", "sympy", "toolz")
"""Packages that are loaded once, for every child."""
HASH_SEEDS = ("1", "4242")
UNEVALUATED = {
    "integrate": "Integral",
    "limit": "Limit",
    "diff": "Derivative",
    "summation": "Sum",
    "product": "Product",
}
_SLICE_SECONDS = 3600.0
_HERE = Path(__file__).parents[1]


def outcomes(programs: Sequence[dict[str, str]], progress: Callable[[str], None]) -> list[Any]:
    """Of each program, where both sides agree; otherwise None. The second side runs them in the opposite order, so that
    nothing rests on what another one left behind."""
    with ThreadPoolExecutor(len(HASH_SEEDS)) as both:
        first, second = both.map(_side, HASH_SEEDS, (programs, programs[::-1]))
    progress(f"{len(programs)} programs were run twice")
    return [one if one == other else None for one, other in zip(first, second[::-1], strict=True)]


def _side(seed: str, programs: Sequence[dict[str, str]]) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.genesys_truth"],
        input="".join(json.dumps(one) + "\n" for one in programs),
        env=os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        cwd=_HERE,
        capture_output=True,
        text=True,
        timeout=_SLICE_SECONDS,
        check=False,
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(said) != len(programs):
        raise MusterError(f"programs could not be run: {done.stderr[-2000:]}")
    return said


def main() -> None:
    for name in LOADED:
        import_module(name)
    gc.freeze()
    asked = [json.loads(line) for line in sys.stdin]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        done = 0
        while done < len(asked):
            part = asked[done : done + TOGETHER]
            said = _apart(part)
            lost = [b"null"] * (len(said) < len(part))  # the one that ended the process
            for line in [*said, *lost]:
                sys.stdout.write(line.decode() + "\n")
            done += len(said) + len(lost)


def _apart(part: Sequence[dict[str, str]]) -> list[bytes]:
    """The outcomes in a process of their own, up to the program that ends it."""
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(there)
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
            for one in part:
                _write(here, one)
        os._exit(0)
    os.close(here)
    with os.fdopen(there, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said.split(b"\n")[:-1]


def _write(here: int, asked: dict[str, str]) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + SECONDS, resource.RLIM_INFINITY))
    signal.alarm(10 * SECONDS)
    try:
        found = json.dumps(_outcome(asked)).encode()
    except Exception:
        found = b"null"
    signal.alarm(0)
    os.write(here, (found if len(found) <= LONGEST else b"null") + b"\n")


def _outcome(asked: dict[str, str]) -> Any:
    space: dict[str, Any] = {"__name__": "__main__"}
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(asked["before"], space)
        if asked["kind"] == "formula":
            return _formula(asked, space)
        if asked["kind"] == "value":
            return repr(eval(asked["last"], space))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(asked["last"], "last", "single"), space)
        return printed.getvalue().removesuffix("\n")


def _formula(asked: dict[str, str], space: dict[str, Any]) -> list[str] | None:
    """The question and the answer in LaTeX."""
    sympy = import_module("sympy")
    value = eval(asked["last"], space)
    if not isinstance(value, sympy.Expr) or value != eval(asked["right"], space) or value.has(*_unevaluated(sympy)):
        return None
    name, _, arguments = asked["last"].partition("(")
    question = eval(f"sympy.{UNEVALUATED[name]}({arguments}", {**space, "sympy": sympy})
    if not isinstance(question, sympy.Expr):
        return None
    return [sympy.latex(question), sympy.latex(value)]


def _unevaluated(sympy: Any) -> list[Any]:
    return [*(getattr(sympy, name) for name in UNEVALUATED.values()), sympy.nan, sympy.zoo, sympy.AccumBounds]


if __name__ == "__main__":
    main()
