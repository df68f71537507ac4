"""`python -m simulation.main --seed N`: run simulations from their seeds, each in a process of its own, and tell what
happened; of one that finds a fault, a smaller schedule that still does and the story.

Nothing of the roles is imported before the simulator has taken the place of clock, threads and randomness.
"""

import argparse
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulation.scheduler import Scheduler

if TYPE_CHECKING:
    from simulation.faults import Fault
    from simulation.run import Outcome, Scenario

_HASH_SEED = "PYTHONHASHSEED"
_STORY_LINES = 60
_clock = time.perf_counter  # the real one


class Simulator:
    """Founds a pool once and runs every scenario in a fork of this process, with a copy of the pool's folder: imports
    and founding take longer than a short simulation."""

    def __init__(self, workers: int = 3, validators: int = 3, cheats: int = 1) -> None:
        from simulation import threads

        memory = Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(prefix="muster-simulation-", dir=memory if memory.is_dir() else None)
        self._child = 0
        signal.signal(signal.SIGTERM, self._end)
        scheduler = Scheduler()
        disks = threads.install(scheduler)
        from simulation.run import found

        os.chdir(self._folder.name)  # a copy of the folder serves a fork that works in it: all paths are relative
        self._world = found(scheduler, disks, Path("pool"), workers, validators, cheats)
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)  # of the little that a simulation makes, most is in use until it ends

    def run(self, scenario: "Scenario", log: Path | None = None, planted: str = "") -> "Outcome":
        """Return what came of a scenario. `planted`: see `simulation.planted`."""
        from simulation.faults import Fault
        from simulation.run import Outcome

        with tempfile.TemporaryDirectory(prefix="run-", dir=self._folder.name) as name:
            result = Path(name) / "outcome.json"
            with warnings.catch_warnings():  # the libraries' threads hold no lock that the child takes
                warnings.simplefilter("ignore", DeprecationWarning)
                self._child = os.fork()
            if not self._child:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                self._simulate(scenario, Path(name), log, planted, result)
            os.waitpid(self._child, 0)
            self._child = 0
            if not result.exists():
                return Outcome(scenario.seed, ["simulator: it died"])
            fields: dict[str, Any] = json.loads(result.read_bytes())
            fields["schedule"] = [Fault(**fault) for fault in fields["schedule"]]
            return Outcome(**fields)

    def _end(self, number: int, _: object) -> None:
        """End at once, and leave no process and no folder behind."""
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
        shutil.rmtree(self._folder.name, ignore_errors=True)
        os._exit(128 + number)

    def _simulate(self, scenario: "Scenario", folder: Path, log: Path | None, planted: str, result: Path) -> None:
        from simulation.run import simulate

        code = 1
        try:
            shutil.copytree("pool", folder / "pool")
            os.chdir(folder)
            if planted:
                from simulation.planted import plant

                plant(planted)
            result.write_text(json.dumps(asdict(simulate(self._world, scenario, log))))
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:  # what was killed in the simulation must not be taken apart by the interpreter
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def minimised(self, scenario: "Scenario", outcome: "Outcome") -> "tuple[list[Fault], Outcome]":
        """Return a smaller schedule with a violation of the same kind, and what comes of it."""
        from simulation.faults import minimise

        smallest = outcome

        def fails(schedule: "Sequence[Fault]") -> bool:
            nonlocal smallest
            found = self.run(replace(scenario, schedule=tuple(schedule)))
            if found.kind == outcome.kind:
                smallest = found
            return found.kind == outcome.kind

        return minimise(outcome.schedule, fails), smallest


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.main", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other (default %(default)s)")
    parser.add_argument("--hours", type=float, default=1.0, help="of faults, before a calm end (default %(default)s)")
    parser.add_argument("--nodes", type=int, default=3, help="workers (default %(default)s)")
    parser.add_argument("--validators", type=int, default=3, help="validator processes, which share 12 seats or more")
    parser.add_argument("--cheats", type=int, default=1, help="of the nodes, how many forge (default %(default)s)")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between faults on average (default 5)")
    parser.add_argument("--schedule", type=Path, help="a schedule of faults that was saved, in place of the seed's")
    parser.add_argument("--save", type=Path, help="where to write the smaller schedule of a failure")
    parser.add_argument("--as-is", action="store_true", help="do not look for a smaller schedule of a failure")
    parser.add_argument("--log", type=Path, help="where to write what the roles log")
    parser.add_argument("--planted", nargs="+", default=[], help="put old faults back in, and see which are found")
    options = parser.parse_args()
    if os.environ.get(_HASH_SEED) != "0":  # the order of sets would differ from run to run
        os.execve(
            sys.executable, [sys.executable, "-m", "simulation.main", *sys.argv[1:]], os.environ | {_HASH_SEED: "0"}
        )
    for name in ("schedule", "save", "log"):
        path = getattr(options, name)
        setattr(options, name, path and path.absolute())
    simulator = Simulator(options.nodes, options.validators, options.cheats)
    from simulation import faults
    from simulation.run import Scenario

    schedule = faults.load(options.schedule) if options.schedule else None
    scenarios = [
        Scenario(seed, options.hours, options.pause, schedule)
        for seed in range(options.seed, options.seed + options.seeds)
    ]
    if options.planted:
        found = [_found(simulator, scenarios, planted) for planted in options.planted]
        return 0 if all(found) else 1
    failed = 0
    for scenario in scenarios:
        began = _clock()
        outcome = simulator.run(scenario, options.log)
        seconds = _clock() - began
        print(
            f"seed {scenario.seed}: {outcome.hours:.2f} h in {seconds:.1f} s, {outcome.faults} faults, "
            f"{outcome.files} files, {outcome.steps} steps, {outcome.transactions} transactions, "
            f"{len(outcome.violations)} violations, digest {outcome.digest[:16]}",
            flush=True,
        )
        if outcome.violations:
            failed += 1
            _report(simulator, scenario, outcome, options)
    return 1 if failed else 0


def _found(simulator: Simulator, scenarios: "Sequence[Scenario]", planted: str) -> bool:
    """Return whether a fault that was put back in shows in one of the scenarios, and print in which."""
    for number, scenario in enumerate(scenarios, 1):
        outcome = simulator.run(scenario, planted=planted)
        if outcome.kind not in ("", "simulator"):
            print(f"{planted}: found in schedule {number}, seed {scenario.seed}: {outcome.violations[0]}", flush=True)
            return True
    print(f"{planted}: not found in {len(scenarios)} schedules", flush=True)
    return False


def _report(simulator: Simulator, scenario: "Scenario", outcome: "Outcome", options: argparse.Namespace) -> None:
    from simulation import faults

    print(f"  {outcome.violations[0]}", flush=True)
    schedule, smallest = outcome.schedule, outcome
    if not options.as_is:
        schedule, smallest = simulator.minimised(scenario, outcome)
    print(f"  {len(schedule)} of {len(outcome.schedule)} faults are enough:")
    for at, text in smallest.story[-_STORY_LINES:]:
        print(f"  {at:8.1f} s  {text}")
    if options.save:
        faults.save(options.save, schedule)
        same = " ".join(f"--{name} {getattr(options, name)}" for name in ("hours", "nodes", "validators", "cheats"))
        print(f"  again: python -m simulation.main --seed {scenario.seed} {same} --schedule {options.save}")


if __name__ == "__main__":
    sys.exit(main())
