"""The demo run: what it loads, the node that never uploads, and `--chaos`."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from chain.contracts import WorkItem
from chain.indexer.state import State
from localnet.demo import Absentee, Chaos
from localnet.onboarding import Onboarding
from localnet.plan import pool_terms
from localnet.real import real_config
from protocol.config import BF16_CHECKS
from runtime.supervisor import Child, Supervisor


def test_the_demo_itself_loads_neither_pytorch_nor_pyarrow() -> None:
    code = "import sys, localnet.demo; print([m for m in ('torch', 'transformers', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


class FirstFile:
    """Stands for the suite of contracts: remembers what is handed in."""

    def __init__(self) -> None:
        self.items: list[WorkItem] = []
        self.pools = self

    def submit(self, _pool: int, _step: int, _counter: int, item: WorkItem) -> "FirstFile":
        self.items.append(item)
        return self

    def send(self) -> Any:
        return SimpleNamespace(sequence=0)


def test_the_absentee_claims_no_more_units_than_the_pool_takes() -> None:
    suite, terms = FirstFile(), pool_terms(real_config("a model", 1, 24, BF16_CHECKS))
    node = SimpleNamespace(address="0xD")
    onboarding = SimpleNamespace(
        plan=SimpleNamespace(absentee="dave"), ring={"node-dave": node}, suite=lambda _name: suite
    )
    state = SimpleNamespace(
        usable_step=lambda *_: 0, submissions_of=lambda _pool: [], pools={1: SimpleNamespace(terms=terms)}
    )
    Absentee(cast(Onboarding, onboarding), lambda _line: None).look(cast(State, state))
    assert [item.units for item in suite.items] == [terms.maxUnits]


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
