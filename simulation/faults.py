"""What goes wrong, and when: a schedule that follows from a seed, can be written down, and can be made smaller."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from protocol.errors import ConfigError
from protocol.files import read_bounded

if TYPE_CHECKING:
    from simulation.world import World

_MOST_BYTES = 1 << 24
_RECOVERY_SECONDS = 30.0


@dataclass(frozen=True, order=True)
class Fault:
    """One fault: it begins `at` so many seconds and lasts `seconds`. `who`: a process, or two of them with a space
    between. `amount`: a probability, blocks, seconds, or exchanges and writes until the power is cut."""

    at: float
    kind: str
    who: str = ""
    seconds: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        rest = [
            self.who,
            f"for {self.seconds:.0f} s" if self.seconds else "",
            f"{self.amount:g}" if self.amount else "",
        ]
        return " ".join(word for word in (f"[{self.at:.0f} s]", self.kind, *rest) if word)


def make_schedule(seed: int, machines: Sequence[str], first: float, last: float, pause: float) -> list[Fault]:
    """Return faults between two times (seconds), `pause` apart on average. Each schedule chooses a few kinds and
    machines, which so meet more often than if all came in turn; what is left in peace between two of the same kind
    can recover."""
    random, faults, at = Random(f"faults {seed}"), list[Fault](), first
    kinds = random.sample(list(_KINDS), random.randint(2, len(_KINDS)))
    some = random.sample(list(machines), random.randint(1, len(machines)))
    free = dict[tuple[str, str], float]()
    while (at := at + random.expovariate(1 / pause)) < last:
        for _ in range(8):
            fault = _KINDS[random.choice(kinds)](random, round(at, 3), some)
            if at >= free.get((fault.kind, fault.who), at):
                free[fault.kind, fault.who] = at + 1.5 * fault.seconds + _RECOVERY_SECONDS
                faults.append(fault)
                break
    return faults


def _kill(random: Random, at: float, machines: list[str]) -> Fault:
    return Fault(at, "kill", random.choice([*machines, "s3"]), round(random.expovariate(1 / 10), 1))


def _cut(random: Random, at: float, machines: list[str]) -> Fault:
    pair = random.choice(machines), random.choice(["rpc", "orchestrator", "s3"])
    return Fault(at, "cut", " ".join(pair), round(random.uniform(5, 60), 1))


def _weather(kind: str, most: float) -> Callable[[Random, float, list[str]], Fault]:
    def make(random: Random, at: float, machines: list[str]) -> Fault:
        return Fault(at, kind, "", round(random.uniform(5, 60), 1), round(random.uniform(0.02, most), 3))

    return make


def _cut_power(random: Random, at: float, machines: list[str]) -> Fault:
    return Fault(at, "cut power", random.choice(machines), 60.0, float(random.randrange(1, 60)))


def _set_clock(random: Random, at: float, machines: list[str]) -> Fault:
    seconds, ahead = round(random.uniform(5, 60), 1), round(random.uniform(-10, 10), 1)
    return Fault(at, "set clock", random.choice(machines), seconds, ahead)


def _fill_disk(random: Random, at: float, machines: list[str]) -> Fault:
    return Fault(at, "fill disk", random.choice(machines), round(random.uniform(5, 40), 1))


def _halt(random: Random, at: float, machines: list[str]) -> Fault:
    return Fault(at, "halt", "", round(random.uniform(5, 60), 1))


def _reorganise(random: Random, at: float, machines: list[str]) -> Fault:
    return Fault(at, "reorganise", "", amount=float(random.randrange(1, 7)))


_KINDS: dict[str, Callable[[Random, float, list[str]], Fault]] = {
    "kill": _kill,
    "cut power": _cut_power,
    "set clock": _set_clock,
    "fill disk": _fill_disk,
    "cut": _cut,
    "lose requests": _weather("lose requests", 0.5),
    "lose answers": _weather("lose answers", 0.5),
    "duplicate": _weather("duplicate", 0.5),
    "break off": _weather("break off", 0.5),
    "slow links": _weather("slow links", 0.9),
    "halt": _halt,
    "delay transactions": _weather("delay transactions", 0.9),
    "drop transactions": _weather("drop transactions", 0.5),
    "reorganise": _reorganise,
}
_WEATHER = {
    "lose requests": "lose_request",
    "lose answers": "lose_answer",
    "duplicate": "duplicate",
    "break off": "cut",
    "slow links": "delay",
}
_SEQUENCER = {"halt": "halted", "delay transactions": "delay", "drop transactions": "drop"}


def play(world: "World", faults: Sequence[Fault], begin: float) -> None:
    """Bring the faults about; each ends by itself. Runs until the last has begun."""
    scheduler = world.scheduler
    for fault in faults:
        time.sleep(max(0.0, begin + fault.at - scheduler.now))
        world.say(str(fault))
        scheduler.trace("fault", fault)
        world.spawn(f"fault at {fault.at}", lambda fault=fault: _happen(world, fault))  # type: ignore[misc]


def _happen(world: "World", fault: Fault) -> None:
    weather, sequencer = world.network.weather, world.chain.sequencer
    world.faults += 1
    if fault.kind == "kill" and fault.who == "s3":
        world.scheduler.kill(world.network.servers["s3"][0])
        time.sleep(fault.seconds)
        world.start_store()
    elif fault.kind == "kill":
        world.kill(fault.who, fault.seconds)
    elif fault.kind == "cut power":
        machine, end = world.machines[fault.who], world.scheduler.now + fault.seconds
        while not machine.process.alive and world.scheduler.now < end:  # what is down has no power to lose
            time.sleep(1.0)
        process = machine.process
        process.cut_after = int(fault.amount)
        time.sleep(end - world.scheduler.now)
        process.cut_after = 0
        world.faults -= not process.power_cut
    elif fault.kind == "set clock":
        machine = world.machines[fault.who]
        machine.clock_ahead = machine.process.clock_ahead = fault.amount
        time.sleep(fault.seconds)
        machine.clock_ahead = machine.process.clock_ahead = 0.0
    elif fault.kind == "fill disk":
        machine = world.machines[fault.who]
        machine.disk_full = machine.process.disk_full = True
        time.sleep(fault.seconds)
        machine.disk_full = machine.process.disk_full = False
    elif fault.kind == "cut":
        one, other = fault.who.split()
        world.network.partitions.add((one, other))
        time.sleep(fault.seconds)
        world.network.partitions.discard((one, other))
    elif fault.kind in _WEATHER:
        name, calm = _WEATHER[fault.kind], type(weather)()
        setattr(weather, name, fault.amount)
        time.sleep(fault.seconds)
        setattr(weather, name, getattr(calm, name))
    elif fault.kind in _SEQUENCER:
        setattr(sequencer, _SEQUENCER[fault.kind], fault.amount or True)
        time.sleep(fault.seconds)
        setattr(sequencer, _SEQUENCER[fault.kind], False)
    elif fault.kind == "reorganise":
        world.chain.reorganise(int(fault.amount), lose=0.5)


def save(path: Path, faults: Sequence[Fault]) -> None:
    path.write_text(json.dumps([asdict(fault) for fault in faults], indent=1) + "\n")


def load(path: Path) -> list[Fault]:
    """Read a schedule. Raises ConfigError."""
    try:
        return [Fault(**entry) for entry in json.loads(read_bounded(path, _MOST_BYTES))]
    except (TypeError, ValueError):
        raise ConfigError(f"{path} is no schedule of faults", "name a file that `simulate --save` wrote") from None


def minimise(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool], most: int = 60) -> list[Fault]:
    """Return a part of a failing schedule that still fails, found in at most `most` runs: ever smaller parts are left
    out while that keeps it failing."""
    failing, size, runs = list(faults), max(1, len(faults) // 2), 0
    while failing and runs < most:
        at, smaller = 0, False
        while at < len(failing) and runs < most:
            candidate = failing[:at] + failing[at + size :]
            runs += 1
            if fails(candidate):
                failing, smaller = candidate, True
            else:
                at += size
        if size == 1 and not smaller:
            break
        size = max(1, size // 2)
    return failing
