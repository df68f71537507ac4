"""The demo run: what it loads, its disputes, and `--chaos`."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chain.indexer.records import Status, Submission
from chain.indexer.state import State
from localnet import demo
from localnet.demo import Challenger, Chaos
from localnet.onboarding import Onboarding
from protocol.errors import MusterError, UnreachableError
from runtime.supervisor import Child, Supervisor


def test_the_demo_itself_loads_neither_pytorch_nor_pyarrow() -> None:
    code = "import sys, localnet.demo; print([m for m in ('torch', 'transformers', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_a_dispute_that_the_chain_does_not_take_is_tried_again_until_its_window_ends() -> None:
    """Or a moment's fault of the chain has honest work refused for good, and the run fails by chance."""
    tries, now = list[int](), 100

    class Appeals:
        def dispute(self, file: Submission) -> "Appeals":
            tries.append(file.sequence)
            return self

        def send(self) -> int:
            if len(tries) < 3:
                raise UnreachableError("the chain does not answer", "wait")
            return 1

    def wronged(onboarding: Onboarding, state: State, file: Submission) -> tuple[str, str]:
        return ("operator-ada" if file.sequence else ""), "honest work was rejected"

    suite = SimpleNamespace(appeals=Appeals(), client=SimpleNamespace(now=lambda: now))
    onboarding = SimpleNamespace(suite=lambda _name: suite)
    files = [
        SimpleNamespace(sequence=number, status=Status.REJECTED, disputed=False, final_time=100 * number)
        for number in range(3)
    ]
    state = SimpleNamespace(submissions_of=lambda _: files)
    challenger = Challenger(cast(Onboarding, onboarding), print, wronged)
    for _ in range(5):
        challenger.look(cast(State, state))
    assert tries == [2, 2, 2], "file 0 wrongs nobody, the window of file 1 is over"


def test_accounts_are_waited_for_as_long_as_something_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [*("3 files being checked", "2 files being checked") * 3, "", "1 files being checked"]
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(demo, "unsettled", lambda *_: left.pop(0) if len(left) > 1 else left[0])
    monkeypatch.setattr(demo, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    monitor: Any = SimpleNamespace(state=None, look=lambda: None)
    run: Any = SimpleNamespace(
        say=print,
        plan=SimpleNamespace(patience=1),
        network=SimpleNamespace(check=lambda: None),
        onboarding=SimpleNamespace(client=lambda _: SimpleNamespace(now=int)),
    )
    demo.Demo.settle(run, monitor)
    with pytest.raises(MusterError, match="nothing was settled for 180 s: 1 files being checked"):
        demo.Demo.settle(run, monitor)


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
