"""Every environment that is offered: problems and scores in two processes; hostile text; what scoring costs.

A type is a dataset of reasoning_gym, a task type of GENESYS's schema (with rows made here), or the template program.
`disagreements` counts problems that differ between two processes of different surroundings, in the question or in a
score; `findings` names the first. After FULL_SIZE problems, four generators that search make smaller ones.
`scoring_share` is the processor time of a check over that of generating 1,024 tokens with a model of 135M parameters.
"""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from attacks.hostile import ANSWERS, DECEITS, hostile
from environments import program
from environments.base import Environment
from environments.checking import HOSTILE_PROBLEMS, EnvironmentCheck, check_environment, sample_seeds
from environments.genesys import scored
from environments.gym import offered
from environments.registry import load_environment
from environments.scorers import mathematics
from protocol.config import EnvironmentConfig
from protocol.errors import ScoringUnavailable
from sandbox.pool import SandboxPool, shared_pool
from sandbox.wasi import MIB, SandboxLimits, SandboxProgram

PROBLEMS, QUICK_PROBLEMS = 10_000, 20
FULL_SIZE = 400
SMALLER: Mapping[str, dict[str, Any]] = {
    "reasoning_gym/futoshiki": {"max_board_size": 5},
    "reasoning_gym/knight_swap": {"min_pieces": 1, "max_pieces": 1},
    "reasoning_gym/sokoban": {"max_w": 7, "max_h": 7},
    "reasoning_gym/zebra_puzzles": {"num_people": 3, "num_characteristics": 3},
}
QUICK_TYPES = ("reasoning_gym/chain_sum", "reasoning_gym/ransom_note", "verifiable_math", "program")
AT_ONCE = 16
LIMITS = SandboxLimits(fuel=400_000_000, memory=96 * MIB, output=100_000, calls=5_000)
# Tokens, and the pace of SmolLM2-135M under vLLM on two cores (64 streams)
GENERATED, TOKENS_PER_SECOND, CORES = 1024, 356, 2
ADD = {"fn_name": "add", "inputs": [[1, 2], [20, 22]], "outputs": [3, 42]}
# (reference, answer): four that sympy decides, four that are decided without it
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
SOURCE = """
import random, time, uuid
d = {str(i): hash(str(i)) for i in range(200)}
print(random.random(), time.time(), uuid.uuid4(), {*'abcdef'}, id(d), sum(d.values()))
"""
_RUNS = """
import sys, hashlib
from sandbox.image import load_image, run_image
from sandbox.wasi import SandboxLimits, SandboxProgram, code
image, module = load_image("python"), code()
for _ in range(int(sys.argv[1])):
    print(repr(run_image(module, image, SandboxProgram(sys.argv[2]), SandboxLimits())))
"""


def run(
    quick: bool, progress: Callable[[str], None], problems: int | None = None, only: str | None = None
) -> dict[str, Any]:
    """Measure all parts. `problems`: of each type; `only`: types whose name holds this text."""
    count = problems or (QUICK_PROBLEMS if quick else PROBLEMS)
    checks = list[EnvironmentCheck]()
    with TemporaryDirectory() as place:
        folder = Path(place)
        for name, make in types(folder, count):
            if (only or "") not in name or (quick and not only and name not in QUICK_TYPES):
                continue
            config = make()
            for first, last, params in ((0, FULL_SIZE, {}), (FULL_SIZE, count, SMALLER.get(name, {}))):
                own = config.model_copy(update={"params": config.params | params})
                environment = load_environment(own, folder)
                if seeds := sample_seeds(environment.rows, count)[first:last]:
                    checks.append(check_environment(own, environment, folder, seeds, 0 if first else HOSTILE_PROBLEMS))
                    progress(f"{name}: {len(seeds)} problems, {checks[-1].disagreements} disagreements")
    found = summary(checks, count)
    progress("hostile programs and answers")
    found["hostile"] = hostile_text() | {"scored": found.pop("hostile_scored"), "of_scored": found.pop("hostile_won")}
    progress("cost")
    found |= mathematics_cost(2 if quick else 10)
    found["sandbox_ms"] = starts(4 if quick else 20)
    progress("the same in every process")
    found["same"] = same_everywhere(4 if quick else 100, 5 if quick else 10)
    return found


def summary(checks: list[EnvironmentCheck], wanted: int) -> dict[str, Any]:
    """Add up the checks of all types. `complete`: types with as many problems as wanted; `fewest`: of any type."""
    problems = dict[str, int]()
    for one in checks:
        problems[one.name] = problems.get(one.name, 0) + one.problems
    return {
        "wanted": wanted,
        "types": len(problems),
        "complete": sum(count >= wanted for count in problems.values()),
        "fewest": min(problems.values(), default=0),
        "problems": sum(problems.values()),
        "scores": sum(one.scores for one in checks),
        "disagreements": sum(one.disagreements for one in checks),
        "hostile_scored": sum(one.hostile for one in checks),
        "hostile_won": sum(one.won for one in checks),
        "slowest_ms": {one.name: round(one.slowest_ms) for one in sorted(checks, key=lambda one: one.slowest_ms)[-5:]},
        "findings": [f"{one.name}: {line}" for one in checks for line in one.findings],
    }


def types(folder: Path, count: int) -> Iterator[tuple[str, Callable[[], EnvironmentConfig]]]:
    """Yield each type's name and how to make its configuration; its file lies in the folder by its hash."""
    for name in sorted(offered()):
        called = f"reasoning_gym/{name}"
        yield called, partial(EnvironmentConfig, name=called)
    for task_type in ROWS:
        yield task_type, cache(partial(_data_file, folder, task_type, count))
    yield "program", lambda: EnvironmentConfig(name="program", content=_written(folder, program.template().encode()))


def _data_file(folder: Path, task_type: str, count: int) -> EnvironmentConfig:
    rows = ({"problem_id": str(n), "task_type": task_type, **ROWS[task_type](n)} for n in range(count))
    content = _written(folder, "".join(json.dumps(row) + "\n" for row in rows).encode())
    return EnvironmentConfig(name="genesys", label=task_type, content=content, rows=count)


def _written(folder: Path, data: bytes) -> str:
    content = hashlib.sha256(data).hexdigest()
    (folder / content).write_bytes(data)
    return content


def _row(prompt: str, info: dict[str, Any], solution: str = "") -> dict[str, Any]:
    return {"prompt": prompt, "verification_info": info} | ({"gold_standard_solution": solution} if solution else {})


def _mathematics(number: int) -> dict[str, Any]:
    """A fraction or a root: what cannot be decided by comparing plain numbers."""
    truth = rf"\frac{{{number + 1}}}{{{number + 3}}}" if number % 2 else rf"{number + 2}\sqrt{{2}}"
    return _row(f"Simplify problem {number}.", {"ground_truth": truth})


def _program(number: int) -> dict[str, Any]:
    cases = [{"type": "stdin_stdout", "input": f"{k}\n", "output": f"{k + number}\n"} for k in (1, 5)]
    info = {"language": "python", "test_cases": cases}
    return _row(f"Read a number and print it plus {number}.", info, f"print(int(input()) + {number})")


def _calls(number: int) -> dict[str, Any]:
    info = {"fn_name": "f", "inputs": [[1], [5]], "outputs": [1 + number, 5 + number]}
    return _row(f"Write f(x) that adds {number}.", info, f"def f(x):\n    return x + {number}")


def _output(number: int) -> dict[str, Any]:
    return _row(f"What does f({number}) give?", {"ground_truth": {"x": [number, str(number)]}})


def _gym(number: int) -> dict[str, Any]:
    dataset = ("chain_sum", "gcd", "word_ladder")[number % 3]
    info = {"dataset": dataset, "seed": number, "params": {}}
    return _row(f"Problem {number}.", info, _dataset(dataset).problem(number).answer)


@cache
def _dataset(name: str) -> Environment:
    return load_environment(EnvironmentConfig(name=f"reasoning_gym/{name}"))


# Task type → the fields of row `number`
ROWS: dict[str, Callable[[int], dict[str, Any]]] = {
    "verifiable_math": _mathematics,
    "verifiable_code": _program,
    "prime_rl_code": _calls,
    "code_output_prediction": _output,
    "verifiable_code_understanding": _output,
    "reasoning_gym": _gym,
}


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
        won += scored("verifiable_code", ADD, f"```python\n{source}\n```") > 0
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
    outcomes = set[str]()
    for number in range(processes):
        zone, locale = f"UTC{number % 24 - 12:+}", ("C", "C.UTF-8")[number % 2]
        settings = {"PYTHONHASHSEED": str(number), "TZ": zone, "LC_ALL": locale}
        argv = [sys.executable, "-c", _RUNS, str(runs), SOURCE]
        env = os.environ | settings
        done = subprocess.run(argv, env=env, capture_output=True, check=True, timeout=300, text=True)
        outcomes |= set(done.stdout.splitlines())
    return {"processes": processes, "runs": processes * runs, "different_outcomes": len(outcomes) - 1}


def _used(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _quantiles(milliseconds: list[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    return {"median": round(statistics.median(ordered), 1), "p95": round(ordered[int(0.95 * (len(ordered) - 1))], 1)}
