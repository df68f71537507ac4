"""Real tasks in GENESYS's schema out of what installed packages ship.

Examples of their documentation and equations of their tests are programs whose last line's outcome is asked
(`code_output_prediction`, `verifiable_code_understanding`), or, where that is a number or a formula, mathematics
(`verifiable_math`); functions that stand alone are asked for (`verifiable_code`); reasoning_gym's datasets are what
they are (`reasoning_gym`). What packages say of an outcome is not believed: programs are run.
"""

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from benchmarks.genesys_asserts import Equation, equations
from benchmarks.genesys_code import code_tasks
from benchmarks.genesys_examples import documented
from benchmarks.genesys_gym import gym_rows
from benchmarks.genesys_source import PackageFile, source_files
from benchmarks.genesys_truth import UNEVALUATED, outcomes

PACKAGES = ("sympy", "mpmath", "networkx", "numpy", "toolz", "sortedcontainers", "packaging", "fonttools")
"""Distributions of the lock whose documentation and tests are full of such programs."""
LONGEST_PROMPT, LONGEST_OUTPUT = 400, 48
"""In bytes of UTF-8, each a token of the smallest model. Reference programs may be longer."""
MOST_OF_ONE_ANSWER = 600
PRINTED = "What does the last line print?\n"
EQUAL = "What is the last line equal to, as Python writes it?\n"
NUMBER = "Compute the number that the last line stands for.\n"
FORMULA = "Find ${question}$. Give the answer in LaTeX.\n"
_MACHINES = (" at 0x", "Traceback", "...", "seconds", "object>", "/")
"""What tells that an output is another one on another machine, or a failure, or left out in part."""
_NUMBERS = ("sympy/ntheory", "sympy/functions", "mpmath", "sympy/utilities", "sympy/concrete", "sympy/stats")
_INDEFINITE = re.compile(r"\\i+nt ")
"""An integral without bounds has many answers."""
_NOT_READ = ("\\operatorname", "\\text", "\\phi", "!")
"""What math-verify compares as text alone."""
Row = dict[str, Any]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class TaskCount:
    """Of a package: `found` candidates, of which `true` have the outcome that the package says."""

    package: str
    version: str
    licence: str
    found: int
    true: int


def tasks(progress: Progress, packages: Sequence[str] = PACKAGES, gym: int = 60) -> tuple[list[Row], list[TaskCount]]:
    """The rows in the order of packages, files and lines, then `gym` of each dataset of reasoning_gym; and how many of
    which package. They are as they come: `muster env screen` is what drops repetitions and the rest."""
    rows, counts = list[Row](), []
    for package in packages:
        about = metadata.distribution(package)
        licence = _licence(about)
        source = f"{about.name} {about.version}"
        made = list(_of_package(source, list(source_files(about))))
        given = Counter[str]()
        kept = [one for one in made if _fits(one[0], given)]
        found = outcomes([run for _, run in kept if run], progress)
        true = [row for (row, run), said in zip(kept, _spread(kept, found), strict=True) if _confirmed(row, run, said)]
        rows += [row | {"metadata": {"licence": licence[:100]}} for row in true]
        counts.append(TaskCount(package, about.version, licence[:100], len(made), len(true)))
        progress(f"{source}: {len(true)} of {len(made)}")
    added = [row for row in gym_rows(gym) if len(row["prompt"].encode()) <= LONGEST_PROMPT]
    counts.append(TaskCount("reasoning_gym", metadata.version("reasoning_gym"), "Apache-2.0", len(added), len(added)))
    return rows + added, counts


def _licence(about: metadata.Distribution) -> str:
    """As the package states it, its first line."""
    names = [name for name in ("License-Expression", "License") if name in about.metadata]
    return about.metadata[names[0]].split("\n")[0] if names else "unknown"


def _of_package(source: str, files: Sequence[PackageFile]) -> Iterator[tuple[Row, dict[str, str] | None]]:
    """Rows, and what is run to confirm each."""
    for file in files:
        for example in documented(file):
            before, last = _split(example.program)
            place = f"{example.where}:{example.place}"
            row = _row(source, file.path, place, "code_output_prediction", PRINTED + example.program, example.printed)
            yield row, {"kind": "printed", "before": before, "last": last}
        for equation in equations(file):
            made = _of_equation(source, file.path, equation)
            if made:
                yield made
    for task in code_tasks(files):
        row = _row(source, task.path, task.function, "verifiable_code", task.prompt, "")
        yield row | {"gold_standard_solution": task.reference, "verification_info": task.verification}, None


def _of_equation(source: str, path: str, equation: Equation) -> tuple[Row, dict[str, str]] | None:
    """A formula where it can be written as one, a number where the package is about numbers, otherwise a value."""
    before, last, literal = "\n".join(equation.before) + "\n", ast.unparse(equation.left), equation.literal
    call = equation.left
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in UNEVALUATED:
        right = ast.unparse(equation.right)
        asked = {"kind": "formula", "before": before, "last": last, "right": right}
        return _row(source, path, equation.where, "verifiable_math", FORMULA, right), asked
    if literal is None:
        return None
    asked = {"kind": "value", "before": before, "last": last}
    if path.startswith(_NUMBERS) and literal.lstrip("-").replace(".", "", 1).isdigit():
        return _row(source, path, equation.where, "verifiable_math", NUMBER + equation.program, literal), asked
    kind = "verifiable_code_understanding"
    return _row(source, path, equation.where, kind, EQUAL + equation.program, literal), asked


def _row(source: str, path: str, place: str, task_type: str, prompt: str, answer: str) -> Row:
    predicted = json.dumps({"output": answer}, ensure_ascii=False)
    return {
        "problem_id": f"{source}/{path}:{place}"[-200:],
        "source": source,
        "in_source_id": f"{path}:{place}"[-200:],
        "task_type": task_type,
        "prompt": prompt,
        "gold_standard_solution": rf"\boxed{{{answer}}}" if task_type == "verifiable_math" else predicted,
        "verification_info": {"ground_truth": answer},
    }


def _split(program: str) -> tuple[str, str]:
    """What stands before the last statement, and that statement."""
    tree = ast.parse(program)
    lines = program.splitlines(keepends=True)
    first = tree.body[-1].lineno - 1
    return "".join(lines[:first]), "".join(lines[first:])


def _fits(row: Row, given: Counter[str]) -> bool:
    """Short, the same everywhere, and not one more of the answers that most programs have."""
    output = str(row["verification_info"].get("ground_truth", ""))
    given[output] += row["task_type"] not in ("verifiable_code", "verifiable_math")
    short = len(row["prompt"].encode()) <= LONGEST_PROMPT and len(output.encode()) <= LONGEST_OUTPUT
    return short and given[output] <= MOST_OF_ONE_ANSWER and not any(map(output.count, _MACHINES))


def _spread(kept: Sequence[tuple[Row, dict[str, str] | None]], found: Sequence[Any]) -> Iterator[Any]:
    """The outcomes, each beside its row."""
    left = iter(found)
    for _, run in kept:
        yield next(left) if run else None


def _confirmed(row: Row, run: dict[str, str] | None, said: Any) -> bool:
    """Whether a run gave what the row says; a formula's row is completed with what it gave."""
    if run is None:
        return True
    if run["kind"] != "formula":
        return bool(said == row["verification_info"]["ground_truth"])
    if said is None:
        return False
    question, answer = said
    if _INDEFINITE.search(question) or not _is_read(answer):
        return False
    row["prompt"] = FORMULA.replace("{question}", question)
    row["verification_info"] = {"ground_truth": answer}
    row["gold_standard_solution"] = rf"\boxed{{{answer}}}"
    return len(row["prompt"].encode()) <= LONGEST_PROMPT and len(answer.encode()) <= LONGEST_OUTPUT


def _is_read(answer: str) -> bool:
    """Whether math-verify understands a formula, so that it knows other ways to write it."""
    endless = "\\infty" in answer and answer not in ("\\infty", "-\\infty")
    return not endless and not any(map(answer.count, _NOT_READ))
