"""Every environment that is offered: problems and scores in two processes of different surroundings; hostile text;
cost.

A type is a dataset of reasoning_gym, a task type of GENESYS's schema (rows that are made here, so many different ones),
or a program of one's own. `disagreements`: problems that differ, in question or in any score of a handful of answers,
between the processes; `findings` names the first. After the first FULL_SIZE problems, four generators that search
for most of their time make smaller ones. It is done in slices, every type's first problems before any type's
last; they are kept in build/environments, and `--resume` goes on after them. The rest is what
benchmarks/environments_sandbox.py measures.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.environment_slices import TypeSlices
from benchmarks.environments_sandbox import hostile_text, mathematics_cost, starts
from environments import program
from environments.base import Environment
from environments.checking import HOSTILE_PROBLEMS, EnvironmentCheck, check_environment, sample_seeds
from environments.gym import OFFERED
from environments.registry import load_environment
from protocol.environments import EnvironmentConfig

KEPT = Path(__file__).parents[1] / "build" / "environments"
PROBLEMS, QUICK_PROBLEMS = 10_000, 20
FULL_SIZE = 400
SMALLER: Mapping[str, dict[str, Any]] = {
    "reasoning_gym/futoshiki": {"max_board_size": 5},
    "reasoning_gym/knight_swap": {"min_pieces": 1, "max_pieces": 1},
    "reasoning_gym/sokoban": {"max_w": 7, "max_h": 7},
    "reasoning_gym/zebra_puzzles": {"num_people": 3, "num_characteristics": 3},
}
QUICK_TYPES = ("reasoning_gym/chain_sum", "reasoning_gym/ransom_note", "verifiable_math", "program")


def run(
    quick: bool,
    progress: Callable[[str], None],
    problems: int | None = None,
    only: str | None = None,
    resume: bool = False,
    seconds: int | None = None,
) -> dict[str, Any]:
    """See the module. `problems`: of each type; `only`: types whose name holds this text; `seconds`: after which no
    further slice is begun."""
    count = problems or (QUICK_PROBLEMS if quick else PROBLEMS)
    folder, end = KEPT / str(count), time.monotonic() + (seconds or float("inf"))
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    offered = dict(types(folder, count))
    wanted = [name for name in offered if (only or "") in name and (only or not quick or name in QUICK_TYPES)]
    slices = TypeSlices(folder / "slices.jsonl")
    while (turn := slices.next(wanted, count)) and time.monotonic() < end:
        name, first, last = turn
        config = offered[name]()
        if first >= FULL_SIZE and name in SMALLER:
            config = config.model_copy(update={"params": SMALLER[name]})
        environment = load_environment(config, folder)
        seeds = sample_seeds(environment.rows, count)[first:last]
        slices.keep(name, check_environment(config, environment, folder, seeds, 0 if first else HOSTILE_PROBLEMS))
        progress(f"{name}: {last} problems, {slices.of(name).disagreements} disagreements")
    found = {"wanted": count, **summary(list(map(slices.of, wanted)), count)}
    progress("hostile programs and answers")
    scored, won = found.pop("hostile_scored"), found.pop("hostile_won")
    found["hostile"] = hostile_text() | {"scored": scored, "of_scored": won}
    progress("cost")
    found |= {"scoring_share": mathematics_cost(2)["scoring_share"], "sandbox_ms": starts(4)}
    return found


def summary(made: list[EnvironmentCheck], wanted: int) -> dict[str, Any]:
    """Of all types together, and the findings. `complete`: types with as many problems as were wanted; `fewest`: of the
    type with the fewest."""
    return {
        "types": len(made),
        "complete": sum(one.problems >= wanted for one in made),
        "fewest": min((one.problems for one in made), default=0),
        "problems": sum(one.problems for one in made),
        "scores": sum(one.scores for one in made),
        "disagreements": sum(one.disagreements for one in made),
        "hostile_scored": sum(one.hostile for one in made),
        "hostile_won": sum(one.won for one in made),
        "slowest_ms": {one.name: round(one.slowest_ms) for one in sorted(made, key=lambda one: -one.slowest_ms)[:5]},
        "findings": [f"{one.name}: {line}" for one in made for line in one.findings],
    }


def types(folder: Path, count: int) -> Iterator[tuple[str, Callable[[], EnvironmentConfig]]]:
    """Each type's name and how to make its configuration; the files that they are lie in the folder by their hash."""
    for name in sorted(OFFERED):
        called = f"reasoning_gym/{name}"
        yield called, partial(EnvironmentConfig, name=called)
    for task_type in ROWS:
        yield task_type, cache(partial(_data_file, folder, task_type, count))
    yield "program", lambda: EnvironmentConfig(name="program", content=_written(folder, program.read().encode()))


def _data_file(folder: Path, task_type: str, count: int) -> EnvironmentConfig:
    made = ({"problem_id": str(n), "task_type": task_type, **ROWS[task_type](n)} for n in range(count))
    content = _written(folder, "".join(json.dumps(row) + "\n" for row in made).encode())
    return EnvironmentConfig(name="genesys", label=task_type, content=content, rows=count)


def _written(folder: Path, data: bytes) -> str:
    content = hashlib.sha256(data).hexdigest()
    (folder / content).write_bytes(data)
    return content


def _mathematics(number: int) -> dict[str, Any]:
    """A fraction or a root: what cannot be decided by comparing plain numbers."""
    truth = rf"\frac{{{number + 1}}}{{{number + 3}}}" if number % 2 else rf"{number + 2}\sqrt{{2}}"
    return {"prompt": f"Simplify problem {number}.", "verification_info": {"ground_truth": truth}}


def _program(number: int) -> dict[str, Any]:
    cases = [{"type": "stdin_stdout", "input": f"{k}\n", "output": f"{k + number}\n"} for k in (1, 5)]
    return {
        "prompt": f"Read a number and print it plus {number}.",
        "gold_standard_solution": f"print(int(input()) + {number})",
        "verification_info": {"language": "python", "test_cases": cases},
    }


def _calls(number: int) -> dict[str, Any]:
    info = {"fn_name": "f", "inputs": [[1], [5]], "outputs": [1 + number, 5 + number]}
    return {
        "prompt": f"Write f(x) that adds {number}.",
        "gold_standard_solution": f"def f(x):\n    return x + {number}",
        "verification_info": info,
    }


def _output(number: int) -> dict[str, Any]:
    return {
        "prompt": f"What does f({number}) give?",
        "verification_info": {"ground_truth": {"x": [number, str(number)]}},
    }


def _gym(number: int) -> dict[str, Any]:
    dataset = ("chain_sum", "gcd", "word_ladder")[number % 3]
    return {
        "prompt": f"Problem {number}.",
        "gold_standard_solution": _dataset(dataset).problem(number).answer,
        "verification_info": {"dataset": dataset, "seed": number, "params": {}},
    }


@cache
def _dataset(name: str) -> Environment:
    return load_environment(EnvironmentConfig(name=f"reasoning_gym/{name}"))


ROWS: dict[str, Callable[[int], dict[str, Any]]] = {
    "verifiable_math": _mathematics,
    "verifiable_code": _program,
    "prime_rl_code": _calls,
    "code_output_prediction": _output,
    "verifiable_code_understanding": _output,
    "reasoning_gym": _gym,
}
"""Task type → the fields of row `number`."""
