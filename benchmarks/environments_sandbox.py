"""The sandbox and the scorers of mathematics and code: start, determinism, hostile text, cost.

Milliseconds of processor time do not depend on what else the machine does; those on the wall do. `scoring_share`:
processor time of a check over that of generating 1,024 tokens with a model of 135M parameters on two cores.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from attacks.hostile import ANSWERS, DECEITS, hostile
from environments.scorers import code, mathematics
from protocol.errors import ScoringUnavailable
from sandbox.pool import SandboxPool, shared_pool
from sandbox.wasi import MIB, SandboxLimits, SandboxProgram

AT_ONCE = 16
LIMITS = SandboxLimits(fuel=400_000_000, memory=96 * MIB, output=100_000, calls=5_000)
GENERATED, TOKENS_PER_SECOND, CORES = 1024, 356, 2
"""Tokens, and the pace of SmolLM2-135M under vLLM on two cores (64 streams)."""
ADD = {
    "test_cases": [
        {"type": "function_call", "fn_name": "add", "input": [a, b], "output": a + b} for a, b in ((1, 2), (20, 22))
    ]
}
CHECKS = (
    (r"\frac{1}{2}", r"so \boxed{0.5}"),
    (r"\frac{3}{4}", r"so \boxed{\frac{6}{8}}"),
    (r"x^2+3x+1", r"\boxed{(x+1)^2+x}"),
    (r"\sqrt{8}", r"\boxed{2\sqrt{2}}"),
    ("(1, 2)", r"\boxed{(2,1)}"),
    ("12", "it is 13"),
    ("12", r"\boxed{13}"),
    ("113", r"\boxed{113}"),
)
"""(reference, answer): four for math-verify, four that are decided without it."""
SOURCE = """
import random, time, uuid
d = {str(i): hash(str(i)) for i in range(200)}
print(random.random(), time.time(), uuid.uuid4(), {*'abcdef'}, id(d), sum(d.values()))
"""
_RUNS = """
import sys, hashlib
from sandbox.image import load_image
from sandbox.wasi import code
from sandbox.wasi import SandboxLimits, SandboxProgram
from sandbox.image import run_image
image, module = load_image("python"), code()
for _ in range(int(sys.argv[1])):
    print(repr(run_image(module, image, SandboxProgram(sys.argv[2]), SandboxLimits())))
"""


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    """See the module."""
    progress("hostile programs and answers")
    found: dict[str, Any] = {"hostile": hostile_text()}
    progress("starts")
    found["sandbox_ms"] = starts(4 if quick else 20)
    progress("mathematics")
    found |= mathematics_cost(2 if quick else 10)
    progress("the same in every process")
    found["same"] = same_everywhere(4 if quick else 100, 5 if quick else 10)
    return found


def hostile_text() -> dict[str, int]:
    """How many were tried; how many got out (made the file that they wanted to), hung (were stopped by the clock), or
    won a score."""
    marker = Path.home() / ".muster-hostile-marker"
    pool = shared_pool("python")
    tried = escaped = hung = won = 0
    for bad in hostile(str(marker)):
        tried += 1
        try:
            won += b"won" in pool.run(SandboxProgram(bad.source), LIMITS).stdout
        except ScoringUnavailable:
            hung += 1
    for source in DECEITS.values():
        tried += 1
        won += code.score(f"```python\n{source}\n```", ADD) > 0
    for _, answer in ANSWERS:
        tried += 1
        won += mathematics.score(answer(), "12") > 0
    escaped += marker.exists()
    return {"tried": tried, "escaped": escaped, "hung": hung, "won": won}


def starts(rounds: int) -> dict[str, Any]:
    """From asking for a program that does nothing to its end, in processes that wait for programs."""
    pool = SandboxPool("python", AT_ONCE)
    pool.start(AT_ONCE)
    processes = [psutil.Process(process.pid) for process in pool._idle]
    empty = SandboxProgram("pass")

    def one(_: int) -> float:
        begin = time.perf_counter()
        pool.run(empty, LIMITS)
        return 1e3 * (time.perf_counter() - begin)

    alone = [one(0) for _ in range(rounds * AT_ONCE)]
    before = _used(processes)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        begin = time.perf_counter()
        together = list(threads.map(one, range(rounds * AT_ONCE)))
        wall = time.perf_counter() - begin
    used = _used(processes) - before
    pool.close()
    return {
        "alone": _quantiles(alone),
        "sixteen_at_once": _quantiles(together),
        "wall_per_start": round(1e3 * wall / len(together), 2),
        "processor_per_start": round(1e3 * used / len(together), 2),
        "load": round(os.getloadavg()[0], 1),
    }


def mathematics_cost(rounds: int) -> dict[str, Any]:
    """Processor time of a check, and its share of generation's."""
    pool = shared_pool("mathematics")
    pool.start()
    process = psutil.Process(pool._idle[-1].pid)
    own, before = time.process_time(), _used([process])
    for _ in range(rounds):
        mathematics._compare.cache_clear()
        for reference, answer in CHECKS:
            mathematics.score(answer, reference)
    milliseconds = 1e3 * (time.process_time() - own + _used([process]) - before) / (rounds * len(CHECKS))
    generation = 1e3 * CORES * GENERATED / TOKENS_PER_SECOND
    return {"check_ms": round(milliseconds, 2), "scoring_share": round(milliseconds / generation, 4)}


def same_everywhere(processes: int, runs: int) -> dict[str, int]:
    """One program in processes of different hash seeds, time zones and locales: outcomes with their fuel."""
    found = set[str]()
    for number in range(processes):
        settings = {
            "PYTHONHASHSEED": str(number),
            "TZ": f"UTC{number % 24 - 12:+}",
            "LC_ALL": ("C", "C.UTF-8")[number % 2],
        }
        found |= set(
            subprocess.run(
                [sys.executable, "-c", _RUNS, str(runs), SOURCE],
                env=os.environ | settings,
                capture_output=True,
                check=True,
                timeout=300,
                text=True,
            ).stdout.splitlines()
        )
    return {"processes": processes, "runs": processes * runs, "different_outcomes": len(found) - 1}


def _used(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _quantiles(milliseconds: list[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    return {"median": round(statistics.median(ordered), 1), "p95": round(ordered[int(0.95 * (len(ordered) - 1))], 1)}
