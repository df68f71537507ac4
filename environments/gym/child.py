"""`python -m environments.gym.child`: answers questions about datasets, a line of JSON each, until its standard input
ends. What the libraries print does not reach its standard output."""

import json
import os
import sys
from typing import Any

from environments.base import Problem
from environments.gym.generator import GymGenerator
from protocol.errors import ConfigError

_GENERATORS: dict[str, GymGenerator] = {}


def answer(question: dict[str, Any]) -> Any:
    key = json.dumps([question["dataset"], question["params"]], sort_keys=True)
    if key not in _GENERATORS:
        _GENERATORS[key] = GymGenerator(question["dataset"], question["params"])
    if "seed" in question:
        return vars(_GENERATORS[key].problem(question["seed"]))
    return _GENERATORS[key].score(Problem(**question["problem"]), question["answer"])


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(document: dict[str, Any]) -> None:
        out.write(json.dumps(document) + "\n")
        out.flush()

    say({"value": "ready"})
    for line in sys.stdin.buffer:
        try:
            say({"value": answer(json.loads(line))})
        except ConfigError as error:
            say({"refused": error.what, "hint": error.hint})


if __name__ == "__main__":
    main()
