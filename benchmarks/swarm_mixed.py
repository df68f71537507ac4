"""A swarm of unlike models: who gains how much from what others share?

Six members, two of each model of benchmarks/swarm_models.py (three sizes, two architectures, two tokenizers), each once
with own groups alone and once with as many shared as own ones, the same number trained on; several seeds. A row is
{seed, mix, rounds, start, end, curves, taken, seconds}: for each model the held-out reward of its members before the
first and after the last round, and every ten rounds; `taken`: how many groups of others its members trained on.
`weakest`: the model with the lowest held-out reward when alone. `gains`: what sharing adds to it at the end.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.swarm_members import HELD_OUT, MemberKit, ShelfExchange, SwarmCase, SwarmSettings, swarm_model
from benchmarks.swarm_models import MODELS, SwarmModel
from demo.pool import DEMO_ENVIRONMENT
from swarm.evaluation import HeldOut
from swarm.member import SwarmMember

EACH = 2
CASES = tuple(SwarmCase(own, 8 - own, members=EACH * len(MODELS)) for own in (8, 4))
SEEDS = (7, 1, 42)
BASES = Path(__file__).parent.parent / "build" / "swarm_models"
_EVERY = 10


def one_run(case: SwarmCase, seed: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """All rounds of the members, in turn."""
    bases = {model: model.taught(BASES, DEMO_ENVIRONMENT, seed) for model in MODELS}
    with tempfile.TemporaryDirectory(prefix="muster-mixed-") as temporary:
        kit = MemberKit(case, seed, Path(temporary), ShelfExchange(), SwarmSettings.of(case))
        # Unlike ones next to each other, so that no model's members are always the last of a round.
        members = [(model, kit.member(number, bases[model])) for number, model in enumerate(MODELS * EACH)]
        began, taken = time.process_time(), dict.fromkeys((model.name for model in MODELS), 0)
        curves = [[0, measured(case, members, bases)]]
        for number in range(case.rounds):
            for model, member in members:
                taken[model.name] += len(member.round(number).shared)
            if number % _EVERY == _EVERY - 1 or number == case.rounds - 1:
                curves.append([number + 1, measured(case, members, bases)])
                progress(f"{case.name}, seed {seed}: round {number + 1}, held-out {curves[-1][1]}")
    return {
        "seed": seed,
        "mix": case.name,
        "rounds": case.rounds,
        "start": curves[0][1],
        "end": curves[-1][1],
        "curves": curves,
        "taken": taken,
        "seconds": round(time.process_time() - began, 1),
    }


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
        for case in CASES:
            late = seconds is not None and time.monotonic() - began > seconds
            if not late and (case.name, seed, case.rounds) not in done:
                yield one_run(case, seed, progress)


def table(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """{models, alone, shared, gains, weakest, rows}: means over the seeds that have both mixes."""
    ends = {(row["mix"], row["seed"]): row["end"] for row in rows}
    alone, shared = (case.name for case in CASES)
    seeds = [seed for seed in SEEDS if {(alone, seed), (shared, seed)} <= ends.keys()]
    if not seeds:
        return {"rows": list(rows)}
    names = [model.name for model in MODELS]
    means = {
        mix: {name: round(statistics.fmean(ends[mix, seed][name] for seed in seeds), 4) for name in names}
        for mix in (alone, shared)
    }
    gains = {name: round(means[shared][name] - means[alone][name], 4) for name in names}
    weakest = min(names, key=lambda name: means[alone][name])
    found = {"seeds": seeds, "alone": means[alone], "shared": means[shared], "gains": gains, "weakest": weakest}
    return found | {"rows": list(rows)}
