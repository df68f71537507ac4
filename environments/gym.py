"""The datasets of reasoning_gym: which of them a pool may use, in which process each runs, and why others are refused.

Reviewed for version 0.1.25: a dataset gives the same problem for a seed in fresh processes with different hash seeds
and global random states; those in NEEDS_OWN_PROCESS only under a fixed hash seed. Its scorer neither evaluates the
answer as code nor takes long over hostile text, if need be because scorers/gym_answers.py lets through only answers of
a known form.
"""

import atexit
import copy
import dataclasses
import importlib.metadata
import json
import math
import os
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from environments.base import (
    THRESHOLD,
    Declaration,
    Params,
    Problem,
    check_seed,
    content_hash,
    credited,
    read_params,
    tagged_answer,
)
from environments.scorers.gym_answers import may_be_scored, portable
from protocol.encoding import parse_json
from protocol.errors import ConfigError, ScoringUnavailable, first_line
from sandbox.exchange import ask, end, start

REVIEWED_VERSION = "0.1.25"

REFUSED = {
    "codeio": "it runs code snippets that depend on hash order, the clock and global randomness",
    "composite": "it is a mixture of datasets; name these as environments with weights",
    "intermediate_integration": "its scorer simplifies whatever formula an answer holds, without a bound on time",
    "propositional_logic": "its scorer takes a premise, copied from the question, for a conclusion",
}

# The generator uses its seed while it is built; of others one object serves all seeds.
REBUILT_PER_SEED = frozenset({"acre", "gsm_symbolic", "list_functions", "survo"})

# Hash order or a global random state decides, or something is printed: made and scored in a process of their own.
NEEDS_OWN_PROCESS = {
    "bf": "what it prints",
    "isomorphic_strings": "hash order",
    "knight_swap": "hash order",
    "list_functions": "global randomness",
    "polynomial_multiplication": "hash order",
    "pool_matrix": "global randomness (numpy)",
    "ransom_note": "hash order",
    "word_ladder": "hash order",
}


@cache
def datasets() -> dict[str, tuple[type, type]]:
    """Return all datasets of reasoning_gym by name: class, and class of the configuration."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of a package that it imports, once in an installation
        from reasoning_gym.factory import DATASETS
    for name, module in list(sys.modules.items()):
        if name.startswith("reasoning_gym."):
            vars(module).setdefault("sum", _sum)
    return dict(DATASETS)


@cache
def offered() -> frozenset[str]:
    """Return the datasets that strangers may run: all that were reviewed and not refused."""
    return frozenset(datasets()) - REFUSED.keys()


def _sum(values: Iterable[Any], /, start: Any = 0) -> Any:
    """Add from left to right: since Python 3.12, `sum` compensates the rounding errors of floats."""
    for value in values:
        start = start + value
    return start


RESERVED = ("seed", "size")
_TRIES, _STRIDE = 16, 0x9E3779B97F4A7C15


class GymGenerator:
    """One dataset. Raises ConfigError for a refused dataset, another version, or wrong parameters."""

    def __init__(self, dataset: str, params: dict[str, Any]) -> None:
        self.name = f"reasoning_gym/{dataset}"
        version = importlib.metadata.version("reasoning_gym")
        if version != REVIEWED_VERSION:
            what = f"reasoning_gym {version} is installed, but problems are defined by {REVIEWED_VERSION}"
            raise ConfigError(what, f"pip install reasoning_gym=={REVIEWED_VERSION}")
        if dataset in REFUSED:
            raise ConfigError(f"{self.name} cannot be used: {REFUSED[dataset]}", "choose another dataset")
        if dataset not in offered():
            what = f"unknown dataset `{dataset}` of reasoning_gym"
            raise ConfigError(what, f"use one of {', '.join(sorted(offered()))}")
        self._dataset_class, config_class = datasets()[dataset]
        known = {field.name for field in dataclasses.fields(config_class)} - set(RESERVED)
        for key in params:
            if key not in known:
                what = f"{self.name} has no parameter `{key}`"
                raise ConfigError(what, f"its parameters are {', '.join(sorted(known))}")
        self._rebuilt = dataset in REBUILT_PER_SEED
        self._alone_in_process = dataset in NEEDS_OWN_PROCESS
        try:
            self._config = config_class(**params, seed=0, size=1)
            self._dataset = self._dataset_class(self._config)
            self.problem(0)
        except Exception as error:  # generators check their parameters in many ways
            raise ConfigError(f"{self.name} refuses its parameters: {first_line(error)}", "mend `params`") from None

    def problem(self, seed: int) -> Problem:
        """Return the problem of a seed, or of the first that follows from it where the generator gives up (one seed in
        some thousands of `maze`). Raise ValueError for no unsigned 64-bit number, and what it raises at last."""
        check_seed(seed)
        for attempt in range(_TRIES - 1):
            try:
                return self._generate((seed + attempt * _STRIDE) % (1 << 64))
            except (OSError, MemoryError, RecursionError):  # this machine's, not the seed's
                raise
            except Exception:  # generators give up in many ways
                continue
        return self._generate((seed + (_TRIES - 1) * _STRIDE) % (1 << 64))

    def _generate(self, seed: int) -> Problem:
        if self._alone_in_process:  # elsewhere, other code may count on the global state
            random.seed(seed)
            np.random.seed(seed % (1 << 32))
        own = seed % (1 << 32) if self.name.endswith("/pool_matrix") else seed  # numpy takes no larger seeds
        if self._rebuilt:
            dataset = self._dataset_class(dataclasses.replace(self._config, seed=own))
        else:
            # Building one may read word lists for 0.1 s; the shared object is left alone (threads).
            dataset = copy.copy(self._dataset)
            dataset.seed = own
        entry = dataset[0]
        return Problem(entry["question"], str(entry["answer"]), entry["metadata"])

    def score(self, problem: Problem, answer_text: str) -> float:
        """Return what the dataset's scorer gives, 0 where it chokes. Raise ScoringUnavailable if this machine fails."""
        entry = {"question": problem.question, "answer": problem.answer, "metadata": problem.metadata}
        try:
            value = float(self._dataset.score_answer(answer_text, entry))
        except (OSError, MemoryError) as error:  # this machine's, not the answer's
            what = f"{self.name} could not score an answer: {type(error).__name__}: {first_line(error)}"
            raise ScoringUnavailable(what, "see this machine's load and memory") from error
        except Exception:  # a scorer that chokes on a stranger's text saw no right answer
            return 0.0
        return value if math.isfinite(value) else 0.0


# Datasets in a process of their own, with hash seed 0 and a global random state that nobody else uses


START_SECONDS = 300.0  # its imports take seconds of an idle machine
ANSWER_SECONDS = 120.0  # the slowest generator takes half a second of one
_MAX_ANSWER_BYTES = 1 << 22


class GymProcess:
    """`python -m environments.gym`, started on first use: one question at a time, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: dict[str, Any]) -> Any:
        """Return an answer. Raise the ConfigError that it reports, ScoringUnavailable where it fails twice."""
        failure = ""
        for _ in range(2):
            with self._lock:
                try:
                    answer = self._answer(json.dumps(question).encode() + b"\n")
                except (OSError, ValueError) as error:
                    failure = str(error)
                    self.close()
                    continue
            if "refused" in answer:
                raise ConfigError(answer["refused"], answer["hint"])
            return answer["value"]
        what = f"reasoning_gym/{question['dataset']} failed twice in a process of its own: {failure}"
        raise ScoringUnavailable(what, "see this machine's load and memory")

    def close(self) -> None:
        """End the process; the next question starts another."""
        process, self._process = self._process, None
        if process is not None:
            end(process)

    def _answer(self, question: bytes) -> Any:
        if self._process is None:
            env = {"PATH": os.defpath, "PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"}
            self._process = start("environments.gym", env=env, seconds=START_SECONDS)
        answer = parse_json(ask(self._process, question, ANSWER_SECONDS, _MAX_ANSWER_BYTES))
        if not isinstance(answer, dict) or not answer.keys() & {"value", "refused"}:
            raise ValueError("its answer is malformed")
        return answer


PROCESS = GymProcess()
atexit.register(PROCESS.close)
MAX_ANSWER_CHARS = 4096
MAX_SECONDS = 5.0


class GymEnvironment:
    """One dataset of reasoning_gym with its parameters: the generator's own, and those of every environment. Problems
    and scores of one that is NEEDS_OWN_PROCESS raise ScoringUnavailable where the process fails twice."""

    rows = 0

    def __init__(self, dataset: str, params: dict[str, Any]) -> None:
        own = dict(params)
        common = {THRESHOLD: own.pop(THRESHOLD)} if THRESHOLD in own else {}
        self._threshold = read_params(Params, "reasoning_gym", common).score_threshold
        self._asked: dict[str, Any] = {"dataset": dataset, "params": own}
        self._generator = None if dataset in NEEDS_OWN_PROCESS else GymGenerator(dataset, own)
        if self._generator is None:
            self.problem(0)  # raises ConfigError for wrong parameters
        self.declared = Declaration(REVIEWED_VERSION, content_hash("reasoning_gym"), "Apache-2.0", MAX_SECONDS)

    def problem(self, seed: int) -> Problem:
        check_seed(seed)
        if self._generator is not None:
            return self._generator.problem(seed)
        return Problem(**PROCESS.ask(self._asked | {"seed": seed}))

    def score(self, problem: Problem, answer_text: str) -> float:
        answer = tagged_answer(answer_text)
        if len(answer) > MAX_ANSWER_CHARS or not may_be_scored(self._asked["dataset"], answer, problem.answer):
            return 0.0
        answer = answer if answer == problem.answer else portable(answer)
        if self._generator is not None:
            score = self._generator.score(problem, answer)
        else:
            score = float(PROCESS.ask(self._asked | {"problem": vars(problem), "answer": answer}))
        return credited(score, self._threshold)


@cache
def _generator(dataset: str, params: str) -> GymGenerator:
    return GymGenerator(dataset, json.loads(params))


def _answer(question: dict[str, Any]) -> Any:
    generator = _generator(question["dataset"], json.dumps(question["params"]))
    if "seed" in question:
        return vars(generator.problem(question["seed"]))
    return generator.score(Problem(**question["problem"]), question["answer"])


def main() -> None:
    """Answer one question per line until standard input ends. What libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print("ready", file=out, flush=True)
    for line in sys.stdin.buffer:
        try:
            answer = {"value": _answer(json.loads(line))}
        except ConfigError as error:
            answer = {"refused": error.what, "hint": error.hint}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
