"""A swarm of unlike models: who gains how much from what others share?

Six members, two of each model of benchmarks/swarm_models.py (three sizes, two architectures, two tokenizers), which
know as different a lot before they begin: with own groups alone, with as many shared as own ones as in the paper, and
the same with the defences of a swarm of strangers; the same number trained on, several seeds of problems, noise and
draws. A row is {seed, mix,
rounds, start, end, curves, taken, signal, doubted, seconds}: for each model the held-out reward of its members before
the first and after the last round, and every few rounds; how many groups of others its members trained on, how many of
all groups that they trained on had an advantage, and how many of others they doubted. `weakest`: the model with the
lowest held-out reward when alone. `gains`: what sharing adds to it at the end; `gains_defended` with the defences;
`gains_mean` and `gains_mean_defended` to the mean of the curve, which says how soon. `log_odds` and
`log_odds_defended`: what it adds to ln(p / (1 − p)) of the held-out reward p, of each seed: one that is right in 5% of
its answers and then in 7% gains as much as one that goes from 50 to 59%.
"""

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.swarm_members import MemberKit, ShelfExchange, SwarmCase, SwarmSettings, swarm_model
from benchmarks.swarm_models import MODELS, SwarmModel
from localnet.plan import DEMO_ENVIRONMENT
from swarm.config import MixConfig
from swarm.evaluation import HeldOut
from swarm.member import SwarmMember

EACH = 2
ROUNDS = 20
RATE = 3e-4
"""Twice the demo's. An update's length follows from it alone, not from how many groups had an advantage: with
small ones everybody walks as far, whatever it hears."""
STRANGERS = MixConfig(own=4, shared=4, window=2, seconds=3600.0)
"""With all defences: of what others say as much counts as the own policy would say itself."""


@dataclass(frozen=True)
class MixedArm:
    """A way of taking part. `mix`: None for the paper's, where nobody is hostile."""

    name: str
    own: int
    shared: int
    mix: MixConfig | None = None

    @property
    def case(self) -> SwarmCase:
        return SwarmCase(self.own, self.shared, EACH * len(MODELS), ROUNDS)

    @property
    def settings(self) -> SwarmSettings:
        mix = SwarmSettings.of(self.case).mix if self.mix is None else self.mix
        return SwarmSettings(mix, RATE)


ALONE, SHARED, DEFENDED = MixedArm("8/0", 8, 0), MixedArm("4/4", 4, 4), MixedArm("4/4, defended", 4, 4, STRANGERS)
ARMS = (ALONE, SHARED, DEFENDED)
SEEDS = (7, 1, 42)
BASES = Path(__file__).parent.parent / "build" / "swarm_models"
HELD_OUT = 512
"""Problems on which each member is measured: a gain of two members and three seeds is known to ±0.01."""
_EVERY = 10


def one_run(arm: MixedArm, seed: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """All rounds of the members, in turn."""
    case = arm.case
    bases = {model: model.taught(BASES, DEMO_ENVIRONMENT, SEEDS[0]) for model in MODELS}
    with tempfile.TemporaryDirectory(prefix="muster-mixed-") as temporary:
        kit = MemberKit(case, seed, Path(temporary), ShelfExchange(), arm.settings)
        # Unlike ones next to each other, so that no model's members are always the last of a round.
        members = [(model, kit.member(number, bases[model])) for number, model in enumerate(MODELS * EACH)]
        began = time.process_time()
        taken, signal, doubted = ({model.name: 0 for model in MODELS} for _ in range(3))
        curves = [[0, measured(case, members, bases)]]
        for number in range(case.rounds):
            for model, member in members:
                done = member.round(number)
                taken[model.name] += len(done.shared)
                signal[model.name] += done.signal
                doubted[model.name] += done.doubted
            if number % _EVERY == _EVERY - 1 or number == case.rounds - 1:
                curves.append([number + 1, measured(case, members, bases)])
                progress(f"{arm.name}, seed {seed}: round {number + 1}, held-out {curves[-1][1]}")
    return {
        "seed": seed, "mix": arm.name, "rounds": case.rounds, "start": curves[0][1], "end": curves[-1][1],
        "curves": curves, "taken": taken, "signal": signal, "doubted": doubted,
        "seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def measured(
    case: SwarmCase, members: Sequence[tuple[SwarmModel, SwarmMember]], bases: dict[SwarmModel, Path]
) -> dict[str, float]:
    """The mean held-out reward of the members of each model; all are asked the same."""
    found: dict[str, list[float]] = {}
    named = SwarmCase(1, 0).document.digest
    for model, member in members:
        asked = HeldOut(named, swarm_model(case, bases[model]), bases[model], HELD_OUT)
        found.setdefault(model.name, []).append(asked.reward(member.parts.engine))
    return {name: round(statistics.fmean(rewards), 4) for name, rewards in found.items()}


def missing(
    rows: Sequence[dict[str, Any]], progress: Callable[[str], None], seconds: int | None
) -> Iterator[dict[str, Any]]:
    """The runs that are not there yet, seed by seed; none is begun after so many seconds."""
    began, done = time.monotonic(), {(row["mix"], row["seed"], row["rounds"]) for row in rows}
    for seed in SEEDS:
        for arm in ARMS:
            late = seconds is not None and time.monotonic() - began > seconds
            if not late and (arm.name, seed, ROUNDS) not in done:
                yield one_run(arm, seed, progress)


def table(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """{seeds, alone, shared, defended, gains, …, weakest, rows}: means over the seeds that have all arms."""
    found = {(row["mix"], row["seed"]): row for row in rows}
    seeds = [seed for seed in SEEDS if {(arm.name, seed) for arm in ARMS} <= found.keys()]
    if not seeds:
        return {"rows": list(rows)}
    ends, means = (
        {
            arm.name: {
                model.name: round(statistics.fmean(value(found[arm.name, seed], model.name) for seed in seeds), 4)
                for model in MODELS
            }
            for arm in ARMS
        }
        for value in (at_the_end, over_the_rounds)
    )
    gains = {
        f"{key}{ending}": {name: round(values[arm.name][name] - alone, 4) for name, alone in values[ALONE.name].items()}
        for arm, ending in ((SHARED, ""), (DEFENDED, "_defended"))
        for key, values in (("gains", ends), ("gains_mean", means))
    }
    alone = ends[ALONE.name]
    weakest = min(alone, key=lambda name: alone[name])
    kinds = {"alone": alone, "shared": ends[SHARED.name], "defended": ends[DEFENDED.name]}
    odds = {
        f"log_odds{ending}": {
            model.name: [log_odds_gain(found[arm.name, seed], found[ALONE.name, seed], model.name) for seed in seeds]
            for model in MODELS
        }
        for arm, ending in ((SHARED, ""), (DEFENDED, "_defended"))
    }
    return {"seeds": seeds, **kinds, **gains, **odds, "weakest": weakest, "rows": list(rows)}


def log_odds(reward: float) -> float:
    """ln(p / (1 − p)) of a held-out reward; none and all as if half of an answer were right, or wrong."""
    least = 1 / (2 * EACH * HELD_OUT)
    inside = min(max(reward, least), 1 - least)
    return math.log(inside / (1 - inside))


def log_odds_gain(row: dict[str, Any], alone: dict[str, Any], model: str) -> float:
    return round(log_odds(at_the_end(row, model)) - log_odds(at_the_end(alone, model)), 3)


def at_the_end(row: dict[str, Any], model: str) -> float:
    """The held-out reward after the last round."""
    end: float = row["end"][model]
    return end


def over_the_rounds(row: dict[str, Any], model: str) -> float:
    """The mean of the held-out rewards that were measured after the start."""
    return statistics.fmean(values[model] for trained, values in row["curves"] if trained)
