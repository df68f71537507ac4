"""`--chaos` kills every process once, and then leaves the run alone."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

from localnet.chaos import Chaos
from localnet.supervisor import Child, Supervisor


def dead(child: Child, seconds: float = 60) -> bool:
    assert child.process is not None
    try:
        return child.process.wait(seconds) < 0
    except subprocess.TimeoutExpired:
        return False


def test_every_process_is_killed_once(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor, now = Supervisor(lambda _: None), 100.0
    for name in ("one", "two", "three"):
        code = "import time; time.sleep(60)"
        supervisor.start(Child(name, [sys.executable, "-c", code], tmp_path / name, env=dict(os.environ)))
    chaos = Chaos(supervisor, 10.0, said.append, Random(1), lambda: now)
    chaos.tick()
    assert said == [], "the first kill comes after an interval"
    for _ in range(3):
        now += 14.0
        chaos.tick()
    assert [dead(child) for child in supervisor.children.values()] == [True] * 3
    for child in supervisor.children.values():
        child.start()
    now += 14.0
    chaos.tick()
    assert [dead(child, 1) for child in supervisor.children.values()] == [False] * 3
    supervisor.stop()
    assert sorted(chaos.killed) == ["one", "three", "two"]
    assert said == [f"✂ kill -9 {name}" for name in chaos.killed]
