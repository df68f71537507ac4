"""A long run: how its footprint is sampled and judged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chain.indexer.records import Pool, Step
from chain.indexer.state import State
from localnet.footprint import SHORTEST, Footprint, FootprintSample, disk, growths, read_samples, resident
from localnet.long import facts
from localnet.plan import POOL
from protocol.waits import wait_for
from runtime.supervisor import Child, Supervisor
from tests.localnet.test_report import GOOD, changed

STEPS = 200


def flat(steps: int = STEPS, disk: float = 900.0, **memory: float) -> list[FootprintSample]:
    """Samples of processes that take the same at every step."""
    return [
        FootprintSample(step, {name: (1000 + place, mib) for place, (name, mib) in enumerate(memory.items())}, disk)
        for step in range(1, steps + 1)
    ]


def growing(per_step: float, start: float = 100.0, name: str = "worker", steps: int = STEPS) -> list[FootprintSample]:
    return [FootprintSample(step, {name: (7, start + per_step * step)}, 100.0) for step in range(1, steps + 1)]


def wrong(samples: list[FootprintSample], reward: float | None = 0.96) -> list[str]:
    found = changed(GOOD, reward_first=0.25, reward_last=reward, steps=STEPS)
    return [fact.text for fact in facts(found, samples) if not fact.good]


def test_a_run_that_learned_and_did_not_grow_is_good() -> None:
    assert wrong(flat(trainer=700.0, chain=120.0)) == []


@pytest.mark.parametrize("reward", [0.949, None])
def test_a_run_that_did_not_learn_enough_is_not_good(reward: float | None) -> None:
    (text,) = wrong(flat(trainer=700.0), reward)
    assert text.startswith("held-out reward")


def test_a_process_that_leaks_is_named() -> None:
    assert wrong(growing(0.2)) == []
    (text,) = wrong(growing(0.5))
    assert text == "memory of worker: 138 → 188 MiB in 200 steps, at most 168"


def test_the_chain_may_keep_its_blocks() -> None:
    assert wrong(growing(0.5, name="chain")) == []
    assert wrong(growing(2.0, name="chain")) != []


def test_disk_has_a_limit_for_each_step() -> None:
    assert wrong(flat(disk=1320.0, trainer=700.0)) == []
    assert wrong(flat(disk=1321.0, trainer=700.0)) == ["disk: 1321 MiB, at most 1320"]


def test_a_run_without_samples_shows_nothing() -> None:
    assert wrong([]) == ["disk: 0 MiB, at most 1320"]


def test_memory_is_compared_within_one_life_of_a_process() -> None:
    first = [FootprintSample(step, {"worker": (1, 500.0)}, 1.0) for step in range(1, 61)]
    second = [FootprintSample(step, {"worker": (2, 100.0)}, 1.0) for step in range(61, 201)]
    (found,) = growths(first + second)
    assert (found.steps, found.early, found.late) == (140, 100.0, 100.0)


def test_a_process_that_always_dies_young_is_not_judged_but_named() -> None:
    samples = [FootprintSample(step, {"worker": (step // 20, 100.0), "s3": (1, 50.0)}, 1.0) for step in range(1, 101)]
    assert [found.process for found in growths(samples)] == ["s3"]
    assert wrong(samples) == [f"memory of worker: it never lived for {SHORTEST} steps"]


def test_a_process_that_has_finished_is_not_judged() -> None:
    ended = [FootprintSample(step, {"cheater": (5, 100.0 * step), "s3": (1, 50.0)}, 1.0) for step in range(1, 60)]
    assert wrong(ended + flat(s3=50.0)[59:]) == []


def at_step(step: int) -> State:
    state = State()
    pool = Pool.__new__(Pool)
    pool.steps = [Step(number, b"", b"", 0, 0, 0, "") for number in range(step + 1)]
    state.pools[POOL] = pool
    return state


def test_each_policy_step_is_sampled_once_also_by_a_run_that_goes_on(tmp_path: Path) -> None:
    supervisor, log = Supervisor(lambda _: None), tmp_path / "footprint.jsonl"
    sleeping = Child("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")
    supervisor.start(sleeping)
    try:
        wait_for("the sleeper's memory", lambda: resident(sleeping.pid or 0) > 0, 30)
        one = Footprint(supervisor, tmp_path, log)
        for state in (State(), at_step(0), at_step(1), at_step(1), at_step(3)):
            one.look(state)
        again = Footprint(supervisor, tmp_path, log)
        for state in (at_step(3), at_step(4)):
            again.look(state)
    finally:
        supervisor.stop()
    samples = read_samples(log)
    assert [sample.step for sample in samples] == [1, 3, 4]
    assert all(sample.memory["sleeper"][0] == sleeping.process.pid for sample in samples if sleeping.process)
    assert all(sample.memory["sleeper"][1] > 0 for sample in samples)


def test_memory_of_descendants_counts_and_of_the_dead_does_not() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'b = b\"x\" * (64 << 20); input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        while resident(process.pid) < 64:
            assert process.poll() is None
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert resident(process.pid) == 0


def test_disk_is_what_files_take(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(os.urandom(3 << 20))
    assert 3 <= disk(tmp_path) < 3.2
