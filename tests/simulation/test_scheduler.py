"""The scheduler: a virtual clock, an order that follows from the seed, and kills that nothing survives."""

from functools import partial

import pytest

from simulation.scheduler import START, Deadlock, Process, Scheduler


def order(seed: int) -> tuple[list[int], str]:
    """The order in which five tasks that wake at once go on, and the digest."""
    scheduler, ran = Scheduler(), list[int]()
    scheduler.begin(seed)
    process = Process("p")

    def nap(number: int) -> None:
        scheduler.sleep(1.0)
        ran.append(number)

    def main() -> None:
        for number in range(5):
            scheduler.spawn(process, f"task {number}", partial(nap, number))
        scheduler.sleep(2.0)

    scheduler.run(main, process)
    assert scheduler.now == START + 2.0
    return ran, scheduler.digest


def test_the_seed_decides_the_order() -> None:
    assert order(1) == order(1)
    assert len({tuple(order(seed)[0]) for seed in range(8)}) > 4
    assert len({order(seed)[1] for seed in range(8)}) == 8


def test_a_killed_process_does_nothing_more() -> None:
    scheduler, said = Scheduler(), list[str]()
    victim = Process("victim")

    def live() -> None:
        try:
            scheduler.sleep(5.0)
        finally:
            said.append("cleaned up")

    def main() -> None:
        scheduler.spawn(victim, "life", live)
        victim.on_death.append(lambda: said.append("released"))
        scheduler.sleep(1.0)
        scheduler.kill(victim)
        scheduler.sleep(10.0)

    scheduler.run(main, Process("p"))
    assert said == ["released"]
    assert victim.exit_code == 137


def test_who_waits_for_ever_or_runs_in_circles_is_reported() -> None:
    scheduler, process = Scheduler(), Process("p")
    with pytest.raises(Deadlock, match="for ever"):
        scheduler.run(lambda: scheduler.suspend(None, "nothing"), process)

    def circle() -> None:
        while True:
            scheduler.sleep(0.0)

    with pytest.raises(Deadlock, match="circles"):
        Scheduler.run(scheduler, circle, process)
