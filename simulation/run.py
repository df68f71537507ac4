"""One simulation from its seed: a calm beginning, faults, and a calm end in which everything has to work again."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulation import faults, oracles
from simulation.faults import Fault
from simulation.scheduler import START, Deadlock, Process, Scheduler
from simulation.world import World, make_plan, quiet_logging

_LOOK_SECONDS = 60.0
_CALM_BEFORE, _CALM_AFTER = 120.0, 900.0
LEAST_HOURS = (_CALM_BEFORE + _CALM_AFTER) / 3600 + 0.15


@dataclass(frozen=True)
class Scenario:
    """What is simulated: so many `hours` with a fault every `pause` seconds on average, or the `schedule` instead."""

    seed: int
    hours: float = 1.0
    workers: int = 3
    validators: int = 3
    cheats: int = 1
    pause: float = 30.0
    schedule: Sequence[Fault] | None = None


@dataclass
class Outcome:
    """What came of it. `digest`: equal for equal runs; `story`: (seconds, what) in order."""

    seed: int
    violations: list[str] = field(default_factory=list)
    schedule: list[Fault] = field(default_factory=list)
    story: list[tuple[float, str]] = field(default_factory=list)
    digest: str = ""
    faults: int = 0
    files: int = 0
    steps: int = 0
    switches: int = 0
    transactions: int = 0
    hours: float = 0.0

    @property
    def kind(self) -> str:
        """The oracle that the first violation is of; empty for none."""
        return self.violations[0].partition(":")[0] if self.violations else ""


def simulate(scheduler: Scheduler, scenario: Scenario, folder: Path, log: Path | None = None) -> Outcome:
    """Run a scenario with its files in `folder`, until a violation or the end. The scheduler is installed already."""
    scheduler.begin(scenario.seed)
    plan = make_plan(folder, scenario.seed, scenario.workers, scenario.validators, scenario.cheats)
    world, outcome = World(scheduler, plan), Outcome(scenario.seed)

    def main() -> None:
        world.bring_up()
        end = START + scenario.hours * 3600
        calm = end - _CALM_AFTER
        machines, begin = list(world.machines), scheduler.now
        schedule = scenario.schedule
        if schedule is None:
            schedule = faults.make_schedule(scenario.seed, machines, _CALM_BEFORE, calm - begin, scenario.pause)
        outcome.schedule = list(schedule)
        world.spawn("faults", lambda: faults.play(world, outcome.schedule, begin))
        while scheduler.now < end and not world.violations:
            time.sleep(_LOOK_SECONDS)
            world.violations += oracles.look(world)
        if not world.violations:
            world.violations += oracles.at_rest(world, calm + 100.0)
        outcome.files = len(world.observer.state.submissions)
        outcome.steps = len(world.observer.state.pools[1].steps)

    with quiet_logging(scheduler, log):
        try:
            scheduler.run(main, Process("onlooker"))
        except Deadlock as error:
            world.violations.append(f"deadlock: {error}")
    for violation in world.violations:
        world.say(f"VIOLATION {violation}")
    outcome.violations, outcome.digest, outcome.switches = world.violations, scheduler.digest, scheduler.switches
    outcome.story = [(at - START, text) for at, text in world.said]
    outcome.faults, outcome.transactions = world.faults + world.network.faults, world.chain.executed
    outcome.hours = (scheduler.now - START) / 3600
    return outcome
