"""How much of their time sites train, on links as INTELLECT-1 had them: `utilisation` of `python -m benchmarks diloco`.

A simulation: sites that train for as long as INTELLECT-1's did, on lines as fast as theirs, follow the run's own
schedule (trainer/sites/schedule.py) and its time-outs; what they send has the length that was measured of real
contributions, or that a normal distribution gives. INTELLECT-1's report gives 38 minutes for 100 inner steps and the
median time of its int8 ring all-reduce of 10 B parameters; the line's rate follows from these. Not simulated: changes
of the rate, other traffic, failures.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainer.sites.events import Event, HashesSigned, OuterPhase, PayloadOpened, StepSettled
from trainer.sites.schedule import Schedule
from trainer.sites.timeouts import Timeouts

PARAMETERS, TRAINING, OUTER_STEPS = 10_000_000_000, 38 * 60.0, 4
RING_SECONDS = {"one country": 103.0, "two continents": 382.0, "three continents": 469.0}
PUBLISHED = {"one country": 0.96, "two continents": 0.856, "three continents": 0.83}
SITES, ROUND_TRIP = 8, 0.15
"""Sites of the simulated runs, and seconds to a bucket or the log and back."""
CHECKS, ROUNDS = 0.25, 9
"""Where each reduces a shard: how often a site computes another's again, and round trips from the last payload to the
settlement: products, means and word of these are put, read by the keeper and read in the log."""
CORES = 32
ENCODED, DECODED, MULTIPLIED = 126e6, 400e6, 830e6
"""Elements a second and core, by docs/sites.md."""
Way = Literal["all fetch all", "all fetch all, once it is settled", "each reduces a shard"]


def line_rate(ring_seconds: float, sites: int = SITES) -> float:
    """Bytes a second, each way, that a ring all-reduce of a byte per parameter in that time needs."""
    return 2 * (sites - 1) / sites * PARAMETERS / ring_seconds


@dataclass(frozen=True)
class SiteLine:
    """`rate`: bytes a second in each direction, which do not hinder one another."""

    rate: float
    round_trip: float = ROUND_TRIP


@dataclass(frozen=True)
class Load:
    """Of one site and outer step. `upload`, `download`: bytes. `before`: seconds of its processors from the end of its
    inner steps to its signature; `after`: from the last byte to the new weights. `settling`: bytes that the log's
    keeper fetches before it settles the step, and sites before they fetch anything; 0: they send and fetch at once.
    `rounds`: round trips between the last byte and the new weights."""

    upload: float
    download: float
    before: float
    after: float
    settling: float = 0.0
    rounds: int = 0


def load(way: Way, parameters: float, sites: int, bytes_each: float, cores: int = CORES) -> Load:
    payload, pairs = parameters * bytes_each, sites * (sites + 1) / 2
    encoding = parameters / ENCODED / cores
    if way != "each reduces a shard":
        work = (sites * parameters / DECODED + pairs * parameters / MULTIPLIED) / cores
        settling = sites * payload if way == "all fetch all, once it is settled" else 0.0
        return Load(payload, (sites - 1) * payload, encoding, work, settling)
    part = parameters / sites
    work = (sites * part / DECODED + pairs * part / MULTIPLIED + part / ENCODED + parameters / DECODED) / cores
    work += CHECKS * (sites * part / DECODED + pairs * part / MULTIPLIED) / cores
    download = (2 + CHECKS) * (sites - 1) / sites * payload
    return Load(payload + payload / sites, download, encoding, work, rounds=ROUNDS)


@dataclass
class _Simulation:
    """`due`: what happens when, in order; `now`: seconds."""

    schedule: Schedule
    now: float = 0.0
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now + seconds, self._count, action))

    def tell(self, event: Event) -> None:
        self.schedule = self.schedule.after(event)

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            self.now, _, action = heapq.heappop(self._due)
            action()


def utilisation(
    lines: Sequence[SiteLine], training: float, loads: Load, overlapped: float = 0.0, window: float = 1 << 20
) -> float:
    """The share of all time in which the sites take inner steps, over some outer steps. `training`: seconds of the
    inner steps between two contributions, of which the first `overlapped` are made while the contribution before them
    is exchanged. `window`: seconds of SitesConfig; payloads that do not arrive in it do not count. Raises
    AssertionError if a site is given up."""
    names = [f"site {number}" for number in range(len(lines))]
    run = _Simulation(Schedule(b"0", members=frozenset(names)))
    sites, limits, left = dict(zip(names, lines, strict=True)), Timeouts.of(window, training), training
    while run.schedule.step < OUTER_STEPS:
        _outer_step(run, sites, left, overlapped, loads, limits)
        left = training - overlapped
    return (OUTER_STEPS * training + overlapped) / run.now


def _outer_step(
    run: _Simulation, sites: dict[str, SiteLine], left: float, overlapped: float, loads: Load, limits: Timeouts
) -> None:
    """All sites begin now with the `left` seconds until their contribution; at the end all hold the step's result and
    have made the steps that overlap with the exchange."""
    step, arrived = run.schedule.step, list[str]()
    base = run.schedule.digest

    def sign(site: str) -> None:
        run.tell(HashesSigned(site, step, base, site))
        if run.schedule.phase == OuterPhase.OPEN:
            for other, line in sites.items():
                run.later(line.round_trip / 2, lambda one=other: move(one))  # type: ignore[misc]

    def move(site: str) -> None:
        """What a site fetches is there as soon as its line is free for it, since all send at once and a shard at a
        time. The last round trips are of what it asked for last."""
        line = sites[site]
        up = loads.upload / line.rate + line.round_trip
        assert up < limits.window, "the payload does not arrive within the window"
        run.later(up, lambda: opened(site, run.now - up))
        if not loads.settling:
            exchanged = max(up, loads.download / line.rate + line.round_trip) + line.round_trip + loads.after
            exchanged += loads.rounds * line.round_trip
            run.later(max(exchanged, overlapped), lambda: arrived.append(site))

    def opened(site: str, began: float) -> None:
        run.tell(PayloadOpened(site, step, site))
        if loads.settling and run.schedule.phase == OuterPhase.SETTLE:
            keeper = max(sites.values(), key=lambda line: line.rate)
            settled = loads.settling / keeper.rate + 2 * keeper.round_trip + loads.after
            for other, line in sites.items():
                fetched = loads.download / line.rate + 2 * line.round_trip + loads.after
                seconds = max(settled, began + overlapped - run.now) + fetched
                run.later(seconds, lambda one=other: arrived.append(one))  # type: ignore[misc]

    for site, line in sites.items():
        run.later(left + loads.before + line.round_trip / 2, lambda one=site: sign(one))  # type: ignore[misc]
    run.run(lambda: len(arrived) == len(sites) and run.schedule.phase == OuterPhase.SETTLE)
    run.tell(StepSettled(step, run.schedule.attempt, b"%d" % (step + 1)))
    assert run.schedule.step == step + 1, "the step was not settled"
    assert run.schedule.members == frozenset(sites), "a site was given up"


def simulated(bytes_each: float) -> dict[str, dict[str, float]]:
    """Utilisation on each of INTELLECT-1's lines."""

    def of(way: Way, overlap: float) -> dict[str, float]:
        loads = load(way, PARAMETERS, SITES, bytes_each)
        return {
            name: round(utilisation([SiteLine(line_rate(seconds))] * SITES, TRAINING, loads, overlap * TRAINING), 4)
            for name, seconds in RING_SECONDS.items()
        }

    ways: dict[str, tuple[Way, float]] = {
        "once it is settled": ("all fetch all, once it is settled", 0.0),
        "once it is settled, half of the steps overlapped": ("all fetch all, once it is settled", 0.5),
        "all fetch all at once": ("all fetch all", 0.0),
        "each reduces a shard": ("each reduces a shard", 0.0),
    }
    return {name: of(*one) for name, one in ways.items()}
