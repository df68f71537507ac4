"""Check an environment in two processes with different surroundings and by hostile answers, and screen a data file."""

import hashlib
import json
import locale
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments.base import Environment, InTurns, Problem
from environments.genesys import GenesysRow, problem_of, read_row, reference_of, scored
from environments.registry import load_environment
from environments.row_formats import json_rows, normalised
from protocol.config import EnvironmentConfig, candidate_seed
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, IntegrityError, MusterError, ScoringUnavailable, printable
from protocol.files import explained
from sandbox.exchange import ROOT

# Answers that want to hang, break or fool a scorer, whatever the question: what it is → how to make it
HOSTILE: Mapping[str, Callable[[], str]] = {
    "nothing": lambda: "",
    "spaces": lambda: " \n\t" * 20_000,
    "a zero byte": lambda: "\0",
    "half a character": lambda: "\ud800",
    "control characters": lambda: "\x1b[2J\r\b" * 1_000,
    "ten megabytes": lambda: "1" * 10_000_000,
    "sixty thousand digits": lambda: "9" * 60_000,
    "a huge exponent": lambda: "1e999999999",
    "a power tower": lambda: "9**9**9**9**9",
    "a huge repetition": lambda: "'a'*10**10",
    "not a number": lambda: "nan",
    "infinity": lambda: "inf",
    "deep brackets": lambda: "[" * 30_000 + "]" * 30_000,
    "deep parentheses": lambda: "(" * 30_000 + "1" + ")" * 30_000,
    "deep braces": lambda: '{"a":' * 10_000 + "1" + "}" * 10_000,
    "boxes": lambda: r"\boxed{" * 8_000,
    "fences": lambda: "```\n" * 16_000,
    "a slow pattern": lambda: "a" * 60_000 + "!",
    "many words": lambda: "a " * 30_000,
    "many lines": lambda: "\n" * 60_000,
    "Python": lambda: "__import__('os')._exit(0)",
    "a format": lambda: "{0.__class__.__mro__}%s%n",
    "a regular expression": lambda: "(.*)*",
    "a claim": lambda: '{"score": 1.0, "reward": 1.0, "output": 1.0}',
    "a true value": lambda: "True",
}
REFERENCE_FORMS = ("reference", "boxed", "as JSON", "as a block")


def answers_to(problem: Problem) -> dict[str, str]:
    """Return the reference in the forms that scorers want, and texts that are nearly right or wrong."""
    info = problem.metadata.get("info")
    truth = info.get("ground_truth", "") if isinstance(info, dict) else ""
    reference = problem.answer or (truth if isinstance(truth, str) else json.dumps(truth))
    if isinstance(truth, float) and problem.metadata.get("task_type") == "verifiable_math":
        reference = problem.answer or reference_of(problem.metadata["info"])  # without an exponent
    return {
        "reference": reference,
        "boxed": rf"\boxed{{{reference}}}",
        "as JSON": json.dumps({"output": truth or reference}),
        "as a block": f"```python\n{reference}\n```",
        "in a sentence": f"The answer is {reference}.",
        "longer": reference + "0",
        "backwards": reference[::-1],
        "the question": problem.question[:4096],
    }


def main() -> None:
    """Be the probe: read {config, data, seeds, hostile, state}, and write a line of JSON per seed. What libraries print
    goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.buffer.read())
    random.seed(request["state"])
    with suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
    try:
        data = Path(request["data"]) if request["data"] else None
        environment = load_environment(EnvironmentConfig.model_validate(request["config"]), data)
        for seed in request["seeds"]:
            out.write(json.dumps(_observation(environment, seed, seed in request["hostile"])) + "\n")
    except MusterError as error:
        out.write(json.dumps({"unavailable": error.what, "hint": error.hint}) + "\n")
    out.flush()


def _observation(environment: Environment, seed: int, hostile: bool) -> dict[str, Any]:
    """Return a problem's hash, the scores of a handful of answers to it, and how long all that took (s)."""
    begin = time.perf_counter()
    try:
        problem = environment.problem(seed)
    except ValueError as error:
        return {"seed": seed, "fault": f"`problem` raises ValueError: {str(error)[:200]}"}
    making = time.perf_counter() - begin
    answers = answers_to(problem)
    if hostile:
        texts = {f"hostile: {name}": make() for name, make in HOSTILE.items()}
        answers |= {name: text for name, text in texts.items() if text != problem.answer}  # that one is right
    scores, durations = dict[str, float | str](), list[float]()
    for name, text in answers.items():
        begin = time.perf_counter()
        try:
            scores[name] = environment.score(problem, text)
        except MusterError:
            raise
        except Exception as error:
            scores[name] = f"{type(error).__name__}: {str(error)[:200]}"
        durations.append(time.perf_counter() - begin)
    replies = list[Any]()
    if environment.declared.turns.most > 1 and isinstance(environment, InTurns):
        all_texts = list(answers.values())
        for turns in (*([text] for text in all_texts), all_texts[:2], all_texts[-3:]):
            replies += [environment.reply(problem, turns), environment.score_turns(problem, turns)]
    return {
        "seed": seed,
        "problem": [problem.question, problem.answer],
        "fault": problem.fault,
        "scores": scores,
        "replies": replies,
        "making": making,
        "durations": durations,
    }


# The comparison of two probes with different surroundings

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_SURROUNDINGS: tuple[dict[str, str], ...] = (
    {"PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati", "LC_ALL": "C"} | dict.fromkeys(_THREADS, "1"),
    {"PYTHONHASHSEED": "4242", "TZ": "America/New_York", "LC_ALL": "C.UTF-8"} | dict.fromkeys(_THREADS, "3"),
)
HOSTILE_PROBLEMS = 2
_START_SECONDS, _PROBLEM_SECONDS = 600.0, 20.0
_MOST_FINDINGS = 5
_WON = 0.5  # some scorers give any text a little, where a pool keeps partial credit


@dataclass(frozen=True)
class EnvironmentCheck:
    """`disagreements`: problems that differ between the two processes. `solved`: references that reach 1. `won`:
    hostile answers worth half or more. Times are of the first process; `findings` say what is wrong."""

    name: str
    problems: int
    scores: int = 0
    disagreements: int = 0
    references: int = 0
    solved: int = 0
    hostile: int = len(HOSTILE)
    won: int = 0
    problem_ms: float = 0.0
    score_ms: float = 0.0
    slowest_ms: float = 0.0
    findings: tuple[str, ...] = ()


def sample_seeds(rows: int, count: int) -> list[int]:
    """Return so many of an environment's seeds: rows from its first to its last, or ends and hashes."""
    if rows:
        return sorted({number * (rows - 1) // max(1, count - 1) for number in range(count)})
    return [0, (1 << 64) - 1, *map(candidate_seed, range(2, count))][:count]


def check_environment(
    config: EnvironmentConfig,
    environment: Environment,
    data: Path | None,
    seeds: Sequence[int],
    hostile_problems: int = HOSTILE_PROBLEMS,
) -> EnvironmentCheck:
    """`environment` is what `config` loads; hostile texts answer the first of its problems. Raise ScoringUnavailable
    where this machine cannot score, ConfigError where another process refuses the configuration."""
    try:
        first, second = (_probe(config, data, seeds, hostile_problems, side) for side in range(2))
    except subprocess.TimeoutExpired:
        late = "a process that makes and scores these problems was not done in time: something in it does not end"
        return EnvironmentCheck(config.called, len(seeds), findings=(late,))
    label, limit = "row" if environment.rows else "seed", environment.declared.seconds
    # the author of a program of one turn knows in which form it takes its own references
    takes_reference = config.name == "program" and environment.declared.turns.most == 1
    differing = [seed for seed in seeds if _content(first.get(seed)) != _content(second.get(seed))]
    won, trouble, making, durations = list[str](), list[str](), list[float](), list[float]()
    hostile = references = solved = 0
    for seed in (seed for seed in seeds if seed in first):
        observation, row_name = first[seed], f"{label} {seed}"
        if observation["fault"]:
            trouble.append(f"{row_name}: no problem: {printable(observation['fault'], 240)}")
        if "scores" not in observation:
            continue
        making.append(observation["making"])
        durations += observation["durations"]
        for name, score in observation["scores"].items():
            hostile += ":" in name
            if isinstance(score, str):
                trouble.append(f"{row_name}: scoring `{name}` raised {printable(score)}")
            elif ":" in name and score >= _WON:
                won.append(f"{row_name}: the answer `{name}` scores")
        if (slowest := max(observation["durations"])) > limit:
            trouble.append(f"{row_name}: a score took {slowest:.1f} s, {limit:.0f} s at most")
        if observation["problem"][1]:
            is_solved = any(observation["scores"][form] == 1.0 for form in REFERENCE_FORMS)
            references, solved = references + 1, solved + is_solved
            if takes_reference and not is_solved:
                trouble.append(f"{row_name}: the reference answer is not worth 1")
    findings = [f"{label} {seed}: problem, scores or replies differ between two processes" for seed in differing]
    findings += [*won, *trouble]
    more = len(findings) - _MOST_FINDINGS
    return EnvironmentCheck(
        name=config.called,
        problems=len(seeds),
        scores=len(durations),
        disagreements=len(differing),
        references=references,
        solved=solved,
        hostile=hostile,
        won=len(won),
        problem_ms=1e3 * sum(making) / max(1, len(making)),
        score_ms=1e3 * sum(durations) / max(1, len(durations)),
        slowest_ms=1e3 * max(durations, default=0.0),
        findings=(*findings[:_MOST_FINDINGS], *([f"and {more} more"] if more > 0 else [])),
    )


def _probe(
    config: EnvironmentConfig, data: Path | None, seeds: Sequence[int], hostile: int, side: int
) -> dict[int, dict[str, Any]]:
    """Return what a process of its own observes, by seed. Raise TimeoutExpired where it does not end."""
    request = {
        "config": config.model_dump(mode="json", exclude={"problems"}),
        "data": str(data.resolve()) if data else "",
        "seeds": list(seeds[::-1] if side else seeds),
        "hostile": list(seeds[:hostile]),
        "state": side,
    }
    process = subprocess.run(
        [sys.executable, "-P", "-m", "environments.checking"],
        input=json.dumps(request).encode(),
        env=os.environ | _SURROUNDINGS[side] | {"PYTHONPATH": ROOT},
        capture_output=True,
        timeout=_START_SECONDS + _PROBLEM_SECONDS * len(seeds),
        check=False,
    )
    observations = [json.loads(line) for line in process.stdout.splitlines()]
    if observations and "unavailable" in observations[-1]:
        raise ScoringUnavailable(observations[-1]["unavailable"], observations[-1]["hint"])
    if process.returncode != 0:
        last = (process.stderr[-2000:].decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        what = f"{config.called}: a process that scores it ended with code {process.returncode}: {printable(last)}"
        raise ConfigError(what, "an environment must not end its process")
    return {seen["seed"]: seen for seen in observations}


def _content(seen: dict[str, Any] | None) -> Any:
    """Return what must be the same everywhere."""
    return seen and {name: seen.get(name) for name in ("problem", "fault", "scores", "replies")}


# Screening a data file before a pool is made of it. A pool's file has to be right as a whole; this reads one that is
# not, row by row.


REASONS = {
    "schema": "not of the schema, or of a task type that cannot be verified",
    "repeated": "a problem_id or prompt that an earlier kept row has",
    "long": "a longer prompt than the pool's",
    "unproven": "without a reference answer",
    "wrong": "a reference answer that is not worth 1",
    "given": "worth 1 for an empty answer, or for its own question",
}


class Screen:
    """Judges rows in turn, remembering two hashes of each. `is_short`: whether the prompt fits the pool. `proven`: rows
    need a reference answer."""

    def __init__(self, is_short: Callable[[Problem], bool] = lambda problem: True, proven: bool = False) -> None:
        self._is_short, self._proven = is_short, proven
        self._seen: dict[bytes, int] = {}

    def row(self, number: int, line: bytes) -> tuple[str, str, str]:
        """Return a row's task type, the one of REASONS why it is dropped, and that in words. Raise
        ScoringUnavailable."""
        try:
            row = read_row(line, f"row {number}")
        except IntegrityError as error:
            return "", "schema", error.what
        # what no other row may have: its name, and its prompt whatever the white space
        texts = (f"id {row.problem_id}", f"prompt {' '.join(row.prompt.split())}")
        keys = [hashlib.sha256(text.encode()).digest()[:16] for text in texts]
        before = [self._seen[key] for key in keys if key in self._seen]
        if before:
            return row.task_type, "repeated", f"row {number}: row {before[0]} has the same problem_id or prompt"
        reason, what = self._fault(number, row)
        if reason:
            return row.task_type, reason, f"row {number}: {what}"
        self._seen |= dict.fromkeys(keys, number)
        return row.task_type, "", ""

    def _fault(self, number: int, row: GenesysRow) -> tuple[str, str]:
        problem = problem_of(row, number)
        if not self._is_short(problem):
            return "long", f"a prompt of {len(row.prompt)} characters is too long"
        answers = answers_to(problem)

        def is_right(*texts: str) -> bool:
            return any(scored(row.task_type, row.verification_info, text) >= 1 for text in texts)

        try:
            if is_right("", answers["the question"]):
                return "given", "an empty answer, or the question itself, is worth 1"
            if not answers["reference"]:
                return ("unproven", "there is no reference answer") if self._proven else ("", "")
            if is_right(*(answers[form] for form in REFERENCE_FORMS)):
                return "", ""
        except ScoringUnavailable:
            raise
        except (MusterError, ValueError) as error:
            return "wrong", f"it cannot be scored: {error}"
        return "wrong", "the reference answer is not worth 1"


def screen_file(
    path: Path, out: Path, refused: Path, checks: Screen, say: Callable[[str], None]
) -> tuple[Counter[str], Counter[str]]:
    """Write the rows that `checks` keeps to `out`, and to `refused` which others there were and why; return how many
    are kept, by task type, and dropped, by reason. Raise IntegrityError, ScoringUnavailable, ConfigError."""
    kept, dropped = Counter[str](), Counter[str]()
    hint = "check the paths and the room on the disk"
    with explained(f"read {path} and write {out}", hint), out.open("wb") as good, refused.open("wb") as bad:
        for number, line in enumerate(json_rows(path)):
            task_type, reason, what = checks.row(number, line)
            if reason == "schema":
                with suppress(ValueError):
                    line = normalised(line)
                    task_type, reason, what = checks.row(number, line)
            if reason:
                dropped[reason] += 1
                bad.write(canonical_json({"row": number, "reason": reason, "what": what}) + b"\n")
            else:
                kept[task_type] += 1
                good.write(line + b"\n")
            if number % 1000 == 999:
                say(f"{number + 1} rows, {kept.total()} kept")
    return kept, dropped


if __name__ == "__main__":
    main()
