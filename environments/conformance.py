"""Whether this machine scores as every other one does: one corpus of cases with one hash, and the versions behind it.

A case is a problem with its prompt, an answer to it, and the score. Seeds, answers and their order follow from this
file alone, so the SHA-256 over all cases is the same wherever scoring is. An honest worker whose interpreter or
libraries score differently would be slashed; it is refused before it joins.
"""

import contextlib
import hashlib
import io
import platform
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from environments.base import THRESHOLD
from environments.genesys import scored
from environments.gym import NEEDS_OWN_PROCESS, GymEnvironment, offered
from environments.lookup import LookupEnvironment
from environments.prompts import prompt_text
from environments.registry import CONFORMANCE_SHA256
from environments.scorers.gym_answers import AGREEMENTS, ANSWER_FORMS
from protocol.config import ModelConfig, candidate_seed
from protocol.encoding import canonical_json
from protocol.errors import ConfigError

# Print it and registry.CONFORMANCE_SHA256 with `python -m environments.conformance` after a change of what scores
QUICK_SHA256 = "486fade67a02f1f0dee52eb1dc6e6baebffb970d7ef36584f90795e4ea7eebc1"
QUICK = 300  # of the cases that need no sandbox

_SLOW = frozenset(
    {"futoshiki", "sokoban", "zebra_puzzles", "word_ladder", "knight_swap", "simple_integration", "puzzle24"}
)
_SEEDS, _SLOW_SEEDS, _LOOKUPS, _SUMS, _PROGRAMS = 16, 2, 160, 600, 98
_MODEL = ModelConfig(source="none", prompt_template="Question: {question}\n")


def quick_check() -> None:
    """Score the first cases, in about two seconds. Raise ConfigError where the result is not everybody's."""
    with contextlib.redirect_stdout(io.StringIO()):  # some scorers print
        corpus = corpus_hash(islice(_light_cases(), QUICK))
    if corpus != QUICK_SHA256:
        raise ConfigError(
            f"this Python scores differently: conformance {corpus[:16]}…, expected {QUICK_SHA256[:16]}…",
            "install the packages of the lock file, and another build of Python if they are there already",
        )


def corpus_hash(cases: Iterator[Any]) -> str:
    """Return the hex SHA-256 over the canonical JSON of all cases, each with a newline after it."""
    total = hashlib.sha256()
    for case in cases:
        total.update(canonical_json(case) + b"\n")
    return total.hexdigest()


def cases() -> Iterator[list[Any]]:
    yield from _light_cases()
    for name in sorted(NEEDS_OWN_PROCESS):
        for problem_cases in _gym(name):
            yield from problem_cases
    yield from _mathematics()
    yield from _programs()


def _light_cases() -> Iterator[list[Any]]:
    """Yield what this process scores alone, environments in turn, so that a prefix has some of each."""
    first = ANSWER_FORMS.keys() | AGREEMENTS.keys()  # what a pattern of ours decides: fewest lines show most there
    names = sorted(offered() - NEEDS_OWN_PROCESS.keys(), key=lambda name: (name in _SLOW, name not in first, name))
    sources = [_lookup(), _outputs(), *map(_gym, names)]
    while sources:
        for source in tuple(sources):
            if (problem_cases := next(source, None)) is None:
                sources.remove(source)
            else:
                yield from problem_cases


def _gym(name: str) -> Iterator[list[list[Any]]]:
    """Yield the cases of one dataset, a problem at a time: its own reference, near misses, another problem's."""
    environment, other = GymEnvironment(name, {THRESHOLD: 0}), ""
    for number in range(_SLOW_SEEDS if name in _SLOW else _SEEDS):
        problem = environment.problem(candidate_seed(number))
        answer, prompt = problem.answer, prompt_text(_MODEL, problem, 100 * number)
        position = number % max(1, len(answer))
        changed = answer[:position] + "7" + answer[position + 1 :]
        near = {f" {answer}\n", answer.lower(), changed, answer + "0", f"{answer}\u0663\U00011f51"}
        texts = sorted({answer, *near, other, problem.question[-200:]})
        yield [[name, number, prompt, answer, text, environment.score(problem, text)] for text in texts]
        other = answer


def _lookup() -> Iterator[list[list[Any]]]:
    """Yield rollouts of the built-in tool environment: turns, the reply after them, their score."""
    environment = LookupEnvironment({THRESHOLD: 0})
    for number in range(_LOOKUPS):
        problem = environment.problem(candidate_seed(number))
        first, second = problem.metadata["asked"]
        call = f'<tool_call>{{"name": "open", "arguments": {{"box": "{second}"}}}}</tool_call>'
        turns = [f"[{first}]", call, f"It is {problem.answer}." if number % 3 else f"{number}"]
        about = ["lookup", number, prompt_text(_MODEL, problem, 0), problem.answer]
        yield [
            [*about, begun, environment.reply(problem, begun), environment.score_turns(problem, begun)]
            for begun in (turns[:1], turns[:2], turns)
        ]


def _outputs() -> Iterator[list[list[Any]]]:
    """Yield predictions of a program's output, right and wrong, in several spellings."""
    truths = [5, -3.5, "abc", [1, 2, [3]], {"a": 1, "b": [True, None]}, True, 1e300, "", "\u00e9"]
    for number, truth in enumerate(truths * 8):
        right = canonical_json(truth).decode()
        other = canonical_json(truths[(number + 1 + number // 9) % 9]).decode()
        texts = [f'{{"output": {right}}}', f'First {{"output": {other}}}, then\n{{"output": {right}}} done.',
                 f'{{"output": {other}}}', f'{{"result": {right}}}', right, f"```json\n{{\"output\": {right}}}\n```",
                 f"{{'output': {right}}}", f'{{"output": {right}, "x": {"[" * number + "]" * number}}}']  # fmt: skip
        yield [["code_output_prediction", truth, text, scored("code_output_prediction", {"ground_truth": truth}, text)]
               for text in texts]  # fmt: skip


def _mathematics() -> Iterator[list[Any]]:
    """Yield pairs of a reference and an answer; about a third of them the sandbox decides."""
    forms = (
        *("{a}", "-{a}", "{a}.{b}", "\\frac{{{a}}}{{{b}}}", "{a}/{b}", "{a},{b}00", "\\sqrt{{{a}}}", "{a}x+{b}"),
        *("({a}, {b})", "\\{{{a}, {b}\\}}", "x \\le {a}", "{a}\\%", "{a}\\pi", "{b}^{{{a}}}", "[{a}, {b})"),
    )
    for number in range(_SUMS):
        form, draw = forms[number % len(forms)], candidate_seed(number)
        a, b, kind = 2 + draw % 17, 3 + draw // 17 % 7, draw // 119 % 5
        reference, near = form.format(a=a, b=b), form.format(a=a + kind % 2, b=b + kind // 3)
        text = (f"\\boxed{{{reference}}}", f"So we get $\\boxed{{ {near} }}$.", f"The answer is ${reference}$.",
                f"\\boxed{{{reference} \\text{{ cm}}}}", f"\\boxed{{{near}, 1}}")[kind]  # fmt: skip
        yield ["verifiable_math", reference, text, scored("verifiable_math", {"ground_truth": reference}, text)]


def _programs() -> Iterator[list[Any]]:
    """Yield small programs, with standard input or as functions, which pass their test or fail it."""
    bodies = ["a + b", "a * b", "max(a, b)", "a % (b + 1)", "round(a / (b + 1), 3)", "hash((a, b)) % 97"]
    bodies.append("sum([0.1] * a)")
    for number in range(_PROGRAMS):
        body, draw = bodies[number % len(bodies)], candidate_seed(number)
        a, b, wrong = draw % 50, draw // 50 % 50, draw // 2500 % 3 == 0
        expected = wrong + dict(zip(bodies, (a + b, a * b, max(a, b), a % (b + 1)), strict=False)).get(body, 0)
        test: dict[str, Any]
        if number % 2:
            source = f"a, b = map(int, input().split())\nprint({body})"
            test = {"type": "stdin_stdout", "input": f"{a} {b}\n", "output": str(expected)}
        else:
            source = f"def solve(a, b):\n    return {body}"
            test = {"type": "function_call", "fn_name": "solve", "input": [a, b], "output": expected}
        text, info = f"Here:\n```python\n{source}\n```\n", {"language": "python", "test_cases": [test]}
        yield ["verifiable_code", source, test, scored("verifiable_code", info, text)]


def main() -> None:
    """Print both hashes; exit with 1 where they are not everybody's."""
    with contextlib.redirect_stdout(io.StringIO()):
        quick, full = corpus_hash(islice(_light_cases(), QUICK)), corpus_hash(cases())
    print(f"Python {platform.python_version()}\nQUICK {quick}\nFULL  {full}")
    sys.exit((quick, full) != (QUICK_SHA256, CONFORMANCE_SHA256))


if __name__ == "__main__":
    main()
