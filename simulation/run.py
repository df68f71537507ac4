"""One simulation from its seed: a calm beginning, faults, and a calm end in which everything has to work again."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulation import faults, oracles
from simulation.disks import Disks
from simulation.faults import Fault
from simulation.scheduler import Deadlock, Process, Scheduler
from simulation.world import World, make_plan, quiet_logging

_LOOK_SECONDS = 60.0
_CALM_BEFORE, _FAULTS_LAST, _CALM_AFTER = 30.0, 70.0, 900.0


@dataclass(frozen=True)
class Scenario:
    """What is simulated: so many `hours` with a fault every `pause` seconds on average, or the `schedule` instead; then
    calm, until all is at rest."""

    seed: int
    hours: float = 1.0
    pause: float = 5.0
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


def found(scheduler: Scheduler, disks: Disks, folder: Path, workers: int, validators: int, cheats: int) -> World:
    """Return a world that many schedules can begin from. The scheduler is installed already."""
    world = World(scheduler, disks, make_plan(folder, workers, validators, cheats))
    with quiet_logging(scheduler, None):
        scheduler.run(world.found, Process("founder"))
    return world


def simulate(world: World, scenario: Scenario, log: Path | None = None) -> Outcome:
    """Run a scenario, until a violation or until all is at rest after the faults. A world serves one."""
    scheduler, outcome = world.scheduler, Outcome(scenario.seed)
    founded = scheduler.now

    def main() -> None:
        world.open(scenario.seed)
        begin, schedule = scheduler.now, scenario.schedule
        calm = begin + scenario.hours * 3600
        if schedule is None:
            schedule = faults.make_schedule(
                scenario.seed, list(world.machines), _CALM_BEFORE, calm - begin, scenario.pause
            )
        outcome.schedule = list(schedule)
        world.spawn("faults", lambda: faults.play(world, outcome.schedule, begin))
        unfinished = list[str]()
        while not world.violations:
            time.sleep(_LOOK_SECONDS)
            world.violations += oracles.look(world)
            if scheduler.now > calm + _FAULTS_LAST:
                unfinished = list(oracles.at_rest(world, calm + _FAULTS_LAST))
                if not unfinished:
                    break
            if scheduler.now > calm + _CALM_AFTER:
                world.violations += unfinished
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
    outcome.story = [(at - founded, text) for at, text in world.said]
    outcome.faults, outcome.transactions = world.faults + world.network.faults, world.chain.executed
    outcome.hours = (scheduler.now - founded) / 3600
    return outcome
