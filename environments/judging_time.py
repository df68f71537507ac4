"""How long validators may have to compute for a pool's own programs, against the windows that its terms give them.

A program's scorer is its owner's, and may take its full time for each answer. Every row of a file is scored, whatever
the audit rate, and a seat votes on a full lane at once. Other scorers are muster's own or reviewed. Pure.
"""

import math
from dataclasses import dataclass

from environments.base import Turns
from environments.program.limits import LEAST, SECONDS, take_seconds
from environments.turns.parameters import take_tools, take_turns
from protocol.config import PoolConfig
from protocol.environments import EnvironmentConfig
from protocol.verdict import LANE

_SHARE = 0.5
"""Of a window, for scoring: the rest is for weights, the model's own pass, slower cores."""


@dataclass(frozen=True)
class ProgramTime:
    """What an environment's program may take of a core for one file, at worst: so many `calls` of `seconds` each."""

    environment: str
    calls: int
    seconds: float

    @property
    def file(self) -> float:
        """Seconds."""
        return self.calls * self.seconds


@dataclass(frozen=True)
class SlowPool:
    """Why a pool's files could not be judged in time, in one line, and what its owner can change."""

    what: str
    hint: str


def slowest_program(config: PoolConfig) -> ProgramTime | None:
    """Of a pool's programs the one that may take longest, if all problems of a file fall to it; None without any.
    Raises ConfigError for a wrong parameter."""
    times = [_time(config, one) for one in config.environments if one.name == "program"]
    return max(times, key=lambda time: time.file, default=None)


def _time(config: PoolConfig, one: EnvironmentConfig) -> ProgramTime:
    own, work = dict(one.params), config.work
    turns, seconds = take_turns(own, Turns(tools=take_tools(own))), take_seconds(own)
    return ProgramTime(one.called, work.problems_per_file + work.rows * turns.most, seconds)


def too_slow(config: PoolConfig, commit_window: int, jury_commit_window: int) -> SlowPool | None:
    """Where the worst case does not fit: a full lane into half of a committee's window, one file into half of a jury's
    (both in seconds). Raises ConfigError for a wrong parameter."""
    time = slowest_program(config)
    if time is None:
        return None
    asked = (
        (f"a lane of {LANE} files", LANE * time.calls, "commit_window", commit_window),
        ("a file before a jury", time.calls, "jury_commit_window", jury_commit_window),
    )
    most = min(_SHARE * window / calls for _, calls, _, window in asked)
    for what, calls, name, window in asked:
        if calls * time.seconds > _SHARE * window:
            said = f"{time.environment}: scoring {what} may take {calls} calls of {time.seconds:g} s"
            return SlowPool(
                f"{said}, {calls * time.seconds:.0f} s of a core; of `{name}` {_SHARE * window:g} s are for that",
                f"{_shorter(most)}make files smaller, or raise `{name}`",
            )
    return None


def _shorter(most: float) -> str:
    rounded = math.floor(1000 * most) / 1000
    return f"set `params.{SECONDS}` to {rounded:g} or less, " if rounded >= LEAST else ""
