"""An environment's problems and scores in two processes of different surroundings: do they agree, what do they cost."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import protocol
from environments.base import Environment
from environments.checking.hostile import HOSTILE
from environments.checking.probe import REFERENCE_FORMS
from environments.errors import ScoringUnavailable
from protocol.encoding import parse_json
from protocol.environments import EnvironmentConfig
from protocol.errors import ConfigError, printable
from protocol.problems import candidate_seed

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
    """So many of an environment's seeds: rows from its first to its last, or ends and hashes."""
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
    """`environment` is what `config` loads; hostile texts answer the first of its problems. Raises ScoringUnavailable
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
    """What a process of its own says of these seeds; None where it does not end."""
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
            [sys.executable, "-P", "-m", "environments.checking.probe"],
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
    """What must be the same everywhere."""
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
