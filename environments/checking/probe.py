"""`python -m environments.checking.probe`: makes and scores problems of an environment as this process does it.

Reads one JSON document from standard input, {config, data, seeds, hostile, state}, and writes lines of JSON to standard
output, for each seed in its turn what was made of it (environments/checking/compare.py reads them). What libraries
print does not get there.
"""

import hashlib
import json
import locale
import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from environments.base import Environment, InTurns, Problem
from environments.catalogue import load_environment
from environments.checking.hostile import HOSTILE
from protocol.environments import EnvironmentConfig
from protocol.errors import MusterError

REFERENCE_FORMS = ("reference", "boxed", "as JSON", "as a block")
_LONGEST = 4096


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    asked = json.loads(sys.stdin.buffer.read())
    random.seed(asked["state"])
    with suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
    try:
        data = Path(asked["data"]) if asked["data"] else None
        environment = load_environment(EnvironmentConfig.model_validate(asked["config"]), data)
        for place, seed in enumerate(asked["seeds"]):
            out.write(json.dumps(_looked_at(environment, seed, seed in asked["hostile"])) + "\n")
            if place % 64 == 0:
                out.flush()
    except MusterError as error:
        out.write(json.dumps({"unavailable": error.what, "hint": error.hint}) + "\n")
    out.flush()


def _looked_at(environment: Environment, seed: int, hostile: bool) -> dict[str, Any]:
    """A problem's hash, the scores of a handful of answers to it, and how long all that took (s)."""
    begin = time.perf_counter()
    try:
        problem = environment.problem(seed)
    except ValueError as error:
        return {"seed": seed, "wrong": f"`problem` raises ValueError: {str(error)[:200]}"}
    made = time.perf_counter() - begin
    about = json.dumps([problem.question, problem.answer, problem.fault]).encode()
    found = {"seed": seed, "problem": hashlib.sha256(about).hexdigest(), "fault": problem.fault, "made": made}
    answers = dict(answers_to(problem))
    if hostile:
        texts = {f"hostile: {name}": make() for name, make in HOSTILE.items()}
        answers |= {name: text for name, text in texts.items() if text != problem.answer}  # that one is right
    scores, slowest, total = {}, 0.0, 0.0
    for name, text in answers.items():
        begin = time.perf_counter()
        scores[name] = _score(environment, problem, text)
        took = time.perf_counter() - begin
        slowest, total = max(slowest, took), total + took
    found |= {"scores": scores, "slowest": slowest, "scoring": total, "reference": bool(problem.answer)}
    found["replies"] = _replies(environment, problem, list(answers.values()))
    return found


def _replies(environment: Environment, problem: Problem, texts: Sequence[str]) -> str:
    """What an environment of several turns replies to each text and to some in a row, and what these are worth, as one
    hash; empty for others."""
    if environment.declared.turns.most == 1 or not isinstance(environment, InTurns):
        return ""
    found: list[Any] = []
    for turns in (*([text] for text in texts), texts[:2], texts[-3:]):
        found += [environment.reply(problem, turns), environment.score_turns(problem, turns)]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _score(environment: Environment, problem: Problem, text: str) -> float | str:
    """A score, or what was raised instead of one."""
    try:
        return environment.score(problem, text)
    except MusterError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def answers_to(problem: Problem) -> dict[str, str]:
    """The reference in the forms that scorers want, and texts that are nearly right or wrong."""
    info = problem.metadata.get("info")
    truth = info.get("ground_truth", "") if isinstance(info, dict) else ""
    reference = problem.answer or (truth if isinstance(truth, str) else json.dumps(truth))
    return {
        "reference": reference,
        "boxed": rf"\boxed{{{reference}}}",
        "as JSON": json.dumps({"output": truth or reference}),
        "as a block": f"```python\n{reference}\n```",
        "in a sentence": f"The answer is {reference}.",
        "longer": reference + "0",
        "backwards": reference[::-1],
        "the question": problem.question[:_LONGEST],
    }


if __name__ == "__main__":
    main()
