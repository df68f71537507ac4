"""`python -m benchmarks name … [--quick]`: run benchmarks and print one JSON object per benchmark, as its last line.
Without a name: list them.

A benchmark is a module of this package with `run(quick: bool, progress: Callable[[str], None]) -> dict`, whose further
parameters are options for it alone. A full run is kept in benchmarks/results/<name>.json.
"""

import argparse
import ast
import importlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines.torch_process import torch_environment

HERE = Path(__file__).parent
PEERS = HERE.parent / "build" / "peers"
PREPARED = "MUSTER_BENCHMARK_PREPARED"
NUMBERS = {
    "jobs": "processes, one core each",
    "count": "how many of what is counted",
    "problems": "problems of each type",
    "seconds": "end after so long, what can go on later",
    "size": "megabytes",
}


def names() -> dict[str, str]:
    """Return the name and the module of every benchmark."""
    modules = sorted((path.stem, path) for path in HERE.rglob("[!_]*.py") if "\ndef run(" in path.read_text())
    return {name: ".".join(path.relative_to(HERE.parent).with_suffix("").parts) for name, path in modules}


def _source(module: str) -> str:
    return (HERE.parent / module.replace(".", "/")).with_suffix(".py").read_text()


def one(name: str, quick: bool, extra: dict[str, Any]) -> None:
    """Run one benchmark in this process; `extra` are parameters that its `run` must know."""
    if PEERS.is_dir():
        sys.path.append(str(PEERS))
    run = importlib.import_module(names()[name]).run
    unknown = sorted(set(extra) - set(inspect.signature(run).parameters))
    if unknown:
        sys.exit(f"benchmarks: {name} has no --{unknown[0]}")
    record = run(quick, lambda line: print(f"{name}: {line}", file=sys.stderr, flush=True), **extra)
    if not quick and not extra.keys() & {"count", "seed", "only", "problems", "size"}:
        (HERE / "results" / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record), flush=True)


def main(arguments: Sequence[str]) -> int:
    known = names()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="One JSON object as the last line.")
    parser.add_argument("names", nargs="*", metavar="name", help="a list of them without one")
    parser.add_argument("--quick", action="store_true", help="smaller counts, under a minute each")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier run stopped, if it can")
    parser.add_argument("--only", metavar="TEXT", help="only the parts whose name contains this")
    parser.add_argument("--seed", type=int, metavar="N", help="another choice of what is random")
    for name, what in NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, metavar="N", help=what)
    options = parser.parse_args(arguments)
    if min(getattr(options, name) or 1 for name in NUMBERS) < 1:
        parser.error(f"--{', --'.join(NUMBERS)} are at least 1")
    extra = {name: value for name in ("resume", "only", "seed", *NUMBERS) if (value := getattr(options, name))}
    if wrong := sorted(set(options.names) - set(known)):
        parser.error(f"no benchmark {wrong[0]!r}; choose of {', '.join(known)}")
    if not (wanted := options.names):
        for name, module in known.items():
            print(f"{name:16}{(ast.get_docstring(ast.parse(_source(module))) or '').splitlines()[0]}")
        return 0
    if len(wanted) == 1 and os.environ.get(PREPARED) == "1":
        one(wanted[0], options.quick, extra)
        return 0
    # Libraries that torch needs preloaded must be in the environment before the process starts.
    environment = os.environ | torch_environment() | {PREPARED: "1"}
    flags = [flag for flag in arguments if flag not in options.names]
    codes = [
        subprocess.run([sys.executable, "-m", "benchmarks", name, *flags], env=environment, check=False).returncode
        for name in wanted
    ]
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
