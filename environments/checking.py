"""Answers that want to hang, break or fool a scorer, whatever the question."""

import hashlib
import json
import locale
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import protocol
from environments.base import Environment, InTurns, Problem
from environments.genesys import GenesysRow, problem_of, read_row, reference_of, scored
from environments.parquet import is_parquet, unpack
from environments.registry import load_environment
from environments.row_formats import json_rows, normalised
from protocol.config import EnvironmentConfig, candidate_seed
from protocol.encoding import canonical_json, parse_json
from protocol.errors import ConfigError, IntegrityError, MusterError, ScoringUnavailable, printable
from protocol.files import explained

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
"""What it is → how to make it."""


# The probe, `python -m environments.checking`: it reads one JSON document from standard input, {config, data, seeds,
# hostile, state}, makes and scores problems, and writes one line of JSON per seed. What libraries print goes to
# standard error.


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
    """Return a problem's hash, the scores of a handful of answers to it, and how long all that took (s)."""
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
    """Return what an environment of several turns replies to each text and to some in a row, and what these are worth,
    as one hash; empty for others."""
    if environment.declared.turns.most == 1 or not isinstance(environment, InTurns):
        return ""
    found: list[Any] = []
    for turns in (*([text] for text in texts), texts[:2], texts[-3:]):
        found += [environment.reply(problem, turns), environment.score_turns(problem, turns)]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _score(environment: Environment, problem: Problem, text: str) -> float | str:
    """Return a score, or what was raised instead of one."""
    try:
        return environment.score(problem, text)
    except MusterError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


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
        "the question": problem.question[:_LONGEST],
    }


# The comparison of two probes with different surroundings


_SURROUNDINGS = (
    {"PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati", "LC_ALL": "C"} | {"threads": "1"},
    {"PYTHONHASHSEED": "4242", "TZ": "America/New_York", "LC_ALL": "C.UTF-8"} | {"threads": "3"},
)
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
HOSTILE_PROBLEMS = 2
_START_SECONDS, _PROBLEM_SECONDS = 600.0, 20.0
_TOLD = 5
_WON = 0.5  # some scorers give any text a little, where a pool keeps partial credit


@dataclass(frozen=True)
class EnvironmentCheck:
    """`disagreements`: problems that differ between the two processes, in question, a score or a reply. `solved`:
    references that reach 1, of `references`. `won`: hostile answers worth half or more. Times are of the first process,
    in milliseconds; `findings` say in words what is wrong."""

    name: str
    problems: int
    scores: int
    disagreements: int
    references: int
    solved: int
    hostile: int
    won: int
    problem_ms: float
    score_ms: float
    slowest_ms: float
    findings: tuple[str, ...]


def sample_seeds(rows: int, count: int) -> list[int]:
    """Return so many of an environment's seeds: rows from its first to its last, or ends and hashes."""
    if rows:
        return sorted({place * (rows - 1) // max(1, count - 1) for place in range(count)})
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
    sides = [_probed(config, data, seeds, hostile_problems, side) for side in range(len(_SURROUNDINGS))]
    if any(side is None for side in sides):
        return _never_done(config, len(seeds))
    first, second = ({one["seed"]: one for one in side or ()} for side in sides)
    differing = [seed for seed in seeds if _content(first.get(seed)) != _content(second.get(seed))]
    whole = [one for seed in seeds if "scores" in (one := first.get(seed, {}))]
    hostile = [(one["seed"], name, value) for one in whole for name, value in one["scores"].items() if ":" in name]
    won = [(seed, name) for seed, name, value in hostile if not isinstance(value, str) and value >= _WON]
    scores = sum(len(one["scores"]) for one in whole)
    told = _findings(config, environment, [first[seed] for seed in seeds if seed in first], differing, won)
    return EnvironmentCheck(
        name=config.called,
        problems=len(seeds),
        scores=scores,
        disagreements=len(differing),
        references=sum(one["reference"] for one in whole),
        solved=sum(_solved(one["scores"]) for one in whole if one["reference"]),
        hostile=len(hostile),
        won=len(won),
        problem_ms=_mean(one["made"] for one in whole),
        score_ms=1e3 * sum(one["scoring"] for one in whole) / max(1, scores),
        slowest_ms=1e3 * max((one["slowest"] for one in whole), default=0.0),
        findings=tuple(told),
    )


def _probed(
    config: EnvironmentConfig, data: Path | None, seeds: Sequence[int], hostile: int, side: int
) -> list[Any] | None:
    """Return what a process of its own says of these seeds; None where it does not end."""
    own = dict(_SURROUNDINGS[side])
    own |= dict.fromkeys(_THREADS, own.pop("threads"))
    root = str(Path(protocol.__file__).parents[1])
    asked = {
        "config": config.model_dump(mode="json", exclude={"problems"}),
        "data": str(data.resolve()) if data else "",
        "seeds": list(seeds[::-1] if side else seeds),
        "hostile": list(seeds[:hostile]),
        "state": side,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "environments.checking"],
            input=json.dumps(asked).encode(),
            env=os.environ | own | {"PYTHONPATH": root},
            capture_output=True,
            timeout=_START_SECONDS + _PROBLEM_SECONDS * len(seeds),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    said = [parse_json(line) for line in done.stdout.splitlines()]
    if said and "unavailable" in said[-1]:
        raise ScoringUnavailable(said[-1]["unavailable"], said[-1]["hint"])
    if done.returncode != 0:
        last = (done.stderr[-2000:].decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(
            f"{config.called}: a process that scores it ended with code {done.returncode}: {printable(last)}",
            "an environment must not end its process",
        )
    return said


def _content(one: dict[str, Any] | None) -> Any:
    """Return what must be the same everywhere."""
    return one and {name: one.get(name) for name in ("problem", "scores", "replies", "wrong")}


def _findings(
    config: EnvironmentConfig,
    environment: Environment,
    found: Sequence[dict[str, Any]],
    differing: Sequence[int],
    won: Sequence[tuple[int, str]],
) -> list[str]:
    word = "row" if environment.rows else "seed"
    told = [f"{word} {seed}: problem, scores or replies differ between two processes" for seed in differing]
    told += [f"{word} {seed}: the answer `{name}` scores" for seed, name in won]
    limit = environment.declared.seconds
    for one in found:
        where = f"{word} {one['seed']}"
        if fault := one.get("fault") or one.get("wrong"):
            told.append(f"{where}: no problem: {printable(fault, 240)}")
            continue
        raised = [(name, value) for name, value in one["scores"].items() if isinstance(value, str)]
        told += [f"{where}: scoring `{name}` raised {printable(value)}" for name, value in raised]
        told += [f"{where}: a score took {one['slowest']:.1f} s, {limit:.0f} s at most"] * (one["slowest"] > limit)
        alone = config.name == "program" and environment.declared.turns.most == 1
        if alone and one["reference"] and not _solved(one["scores"]):
            told.append(f"{where}: the reference answer is not worth 1")
    more = len(told) - _TOLD
    return [*told[:_TOLD], *([f"and {more} more"] if more > 0 else [])]


def _never_done(config: EnvironmentConfig, problems: int) -> EnvironmentCheck:
    said = "a process that makes and scores these problems was not done in time: something in it does not end"
    return EnvironmentCheck(config.called, problems, 0, 0, 0, 0, len(HOSTILE), 0, 0.0, 0.0, 0.0, (said,))


def _solved(scores: dict[str, Any]) -> bool:
    """Whether the reference, in any of its forms, is worth 1."""
    return any(scores[name] == 1.0 for name in REFERENCE_FORMS)


def _mean(seconds: Iterable[float]) -> float:
    values = list(seconds)
    return 1e3 * sum(values) / max(1, len(values))


# Screening a data file before a pool is made of it. A pool's file has to be right as a whole; this reads one that is
# not,  row by row.


SCHEMA, REPEATED, LONG, UNPROVEN, WRONG, GIVEN = "schema", "repeated", "long", "unproven", "wrong", "given"
REASONS = {
    SCHEMA: "not of the schema, or of a task type that cannot be verified",
    REPEATED: "a problem_id or prompt that an earlier kept row has",
    LONG: "a longer prompt than the pool's",
    UNPROVEN: "without a reference answer",
    WRONG: "a reference answer that is not worth 1",
    GIVEN: "worth 1 for an empty answer, or for its own question",
}


@dataclass(frozen=True)
class Screened:
    """A row as its file has it, without the line's end, and its number from 0. `reason`: one of REASONS, empty where
    the row is kept; `what`: in words."""

    number: int
    line: bytes
    task_type: str
    reason: str
    what: str = ""


class Screen:
    """Told of every row in turn. `is_short`: whether the prompt fits the pool. `proven`: rows need a reference answer.

    Memory: two hashes for every row that is kept.
    """

    def __init__(self, is_short: Callable[[Problem], bool] = lambda problem: True, proven: bool = False) -> None:
        self._is_short, self._proven = is_short, proven
        self._seen: dict[bytes, int] = {}

    def row(self, number: int, line: bytes) -> Screened:
        """Raise ScoringUnavailable where this machine cannot score."""
        try:
            row = read_row(line, f"row {number}")
        except IntegrityError as error:
            return Screened(number, line, "", SCHEMA, error.what)
        reason, what = self._wrong(number, row)
        if not reason:
            self._seen |= dict.fromkeys(_keys(row), number)
        return Screened(number, line, row.task_type, reason, what and f"row {number}: {what}")

    def _wrong(self, number: int, row: GenesysRow) -> tuple[str, str]:
        before = [self._seen[key] for key in _keys(row) if key in self._seen]
        if before:
            return REPEATED, f"row {before[0]} has the same problem_id or prompt"
        problem = problem_of(row, number)
        if not self._is_short(problem):
            return LONG, f"a prompt of {len(row.prompt)} characters is too long"
        answers = answers_to(problem)
        try:
            if any(scored(row.task_type, row.verification_info, text) >= 1 for text in ("", answers["the question"])):
                return GIVEN, "an empty answer, or the question itself, is worth 1"
            if not answers["reference"]:
                return (UNPROVEN, "there is no reference answer") if self._proven else ("", "")
            forms = (answers[name] for name in REFERENCE_FORMS)
            if any(scored(row.task_type, row.verification_info, text) >= 1 for text in forms):
                return "", ""
        except ScoringUnavailable:
            raise
        except (MusterError, ValueError) as error:
            return WRONG, f"it cannot be scored: {error}"
        return WRONG, "the reference answer is not worth 1"


@dataclass(frozen=True)
class ScreenReport:
    """`kept`: rows by task type; `dropped`: by reason."""

    kept: Counter[str]
    dropped: Counter[str]


def screen_file(path: Path, out: Path, refused: Path, checks: Screen, say: Callable[[str], None]) -> ScreenReport:
    """Write the rows of the file at `path` that `checks` keeps to `out`, as it stands there or in the form of a pool's
    data file, and to `refused` which others there were and why. Raise IntegrityError for a file that cannot be read,
    ScoringUnavailable where this machine cannot score, ConfigError where it cannot write."""
    report = ScreenReport(Counter(), Counter())
    with ExitStack() as stack, explained(f"read {path} and write {out}", "check the paths and the room on the disk"):
        lines = path
        if is_parquet(path):
            lines = Path(stack.enter_context(TemporaryDirectory())) / "rows"
            unpack(path, lines)
        good, bad = (stack.enter_context(one.open("wb")) for one in (out, refused))
        for number, line in enumerate(json_rows(lines)):
            found = checks.row(number, line)
            if found.reason == SCHEMA:
                with suppress(ValueError):
                    line = normalised(line)
                    found = checks.row(number, line)
            if found.reason:
                report.dropped[found.reason] += 1
                bad.write(canonical_json({"row": number, "reason": found.reason, "what": found.what}) + b"\n")
            else:
                report.kept[found.task_type] += 1
                good.write(line + b"\n")
            if number % 1000 == 999:
                say(f"{number + 1} rows, {report.kept.total()} kept")
    return report


def _keys(row: GenesysRow) -> list[bytes]:
    """Return what no other row may have: its name, and its prompt whatever the white space."""
    texts = (f"id {row.problem_id}", f"prompt {' '.join(row.prompt.split())}")
    return [hashlib.sha256(text.encode()).digest()[:16] for text in texts]


if __name__ == "__main__":
    main()
