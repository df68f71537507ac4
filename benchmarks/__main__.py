"""`python -m benchmarks [name …] [--quick]`: run benchmarks and print one JSON object per benchmark, as its last line.

A benchmark is a module of this package with `run(quick: bool, progress: Callable[[str], None]) -> dict`. Without a
name all of them run, each in a process of its own. A full run is kept in benchmarks/results/<name>.json. Further
parameters of a benchmark's `run` (resume, jobs, count, seed, only, problems, seconds, size) are options for it alone.
"""

import argparse
import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines.runtime import torch_environment

HERE = Path(__file__).parent
PEERS = HERE.parent / "build" / "peers"
PREPARED = "MUSTER_BENCHMARK_PREPARED"


def names() -> list[str]:
    """Modules of this package that define `run`."""
    return sorted(path.stem for path in HERE.glob("[!_]*.py") if "\ndef run(" in path.read_text())


def one(name: str, quick: bool, extra: dict[str, Any]) -> None:
    """Run one benchmark in this process; `extra` are parameters that its `run` must know."""
    if PEERS.is_dir():
        sys.path.append(str(PEERS))
    run = importlib.import_module(f"benchmarks.{name}").run
    unknown = sorted(set(extra) - set(inspect.signature(run).parameters))
    if unknown:
        sys.exit(f"benchmarks: {name} has no --{unknown[0]}")
    found = run(quick, lambda line: print(f"{name}: {line}", file=sys.stderr, flush=True), **extra)
    text = json.dumps(found)
    if not quick and not extra.keys() & {"count", "seed", "only", "problems", "size"}:
        (HERE / "results").mkdir(exist_ok=True)
        (HERE / "results" / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    print(text, flush=True)


def main(arguments: Sequence[str]) -> int:
    known = names()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="One JSON object as the last line.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(known)}; all without one")
    parser.add_argument("--quick", action="store_true", help="smaller counts, under a minute each")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="of attacks, audits, codec, diloco, evidence, exact, spread, swarm and others: go on",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="attacks: processes, one core each")
    parser.add_argument(
        "--count",
        type=int,
        metavar="N",
        help="attacks: submissions per row; load: nodes; the result is not kept",
    )
    parser.add_argument("--seed", type=int, metavar="S", help="learning: of the base model; the result is not kept")
    parser.add_argument(
        "--only",
        metavar="TEXT",
        help="of broadcast, environments, evidence, families, faults, journeys, joiner, load, recipe, spread, …: name",
    )
    parser.add_argument("--seconds", type=int, metavar="S", help="of what goes on in slices: end after so long")
    parser.add_argument("--problems", type=int, metavar="N", help="environments: of each type; the result is not kept")
    parser.add_argument(
        "--size", type=int, metavar="MB", help="broadcast: beside shardcast; joiner: of the weights; not kept"
    )
    options = parser.parse_args(arguments)
    numbers = (options.jobs, options.count, options.problems, options.seconds, options.size)
    if min(number or 1 for number in numbers) < 1:
        parser.error("--jobs, --count, --problems, --seconds and --size are at least 1")
    parameters = ("resume", "jobs", "count", "seed", "only", "problems", "seconds", "size")
    extra = {name: value for name in parameters if (value := getattr(options, name))}
    wrong = sorted(set(options.names) - set(known))
    if wrong:
        parser.error(f"no benchmark {wrong[0]!r}; choose of {', '.join(known)}")
    wanted = options.names or known
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
