"""The death of any background thread of a daemon ends its process, and `status` shows it."""

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from diloco.chain import StepRecorder
from protocol.accounts import Account
from protocol.waits import wait_for
from runtime import entry, watch
from runtime.entry import Exit
from runtime.home_status import gone
from runtime.orchestrator_client import Heartbeats
from runtime.process import StallGuard
from runtime.server import HttpServer
from runtime.weights_ahead import WeightsAhead
from tools.structure import ROOT, read_sources
from trainer.pool.canaries import CanaryOpener
from trainer.reports.metrics import MetricsSinks
from validator.config import ServeConfig
from validator.judging.queue import JudgeQueue
from validator.retention import FileServer, RetentionStore
from worker.signer import SignerServer, _Server


def webhooks(folder: Path) -> None:
    watcher: Any = watch.Watcher.__new__(watch.Watcher)
    watcher.config, watcher._stop = MagicMock(), threading.Event()
    watcher._stop.set()
    watcher.run()


def retained_files(folder: Path) -> None:
    FileServer(ServeConfig(listen="127.0.0.1:0", public_url="https://seat.example"), RetentionStore(folder, 1))


# The thread → what of it is made to fail, and how it is started.
THREADS: dict[str, tuple[Any, str, Callable[[Path], object]]] = {
    "heartbeats": (Heartbeats, "_run", lambda _: Heartbeats(MagicMock(), MagicMock(), 1.0).start()),
    "stall guard": (StallGuard, "_run", lambda folder: StallGuard(folder).start()),
    "weights-ahead": (WeightsAhead, "_look", lambda _: WeightsAhead(MagicMock(), 0.01).start()),
    "webhooks": (watch.Watcher, "_post", webhooks),
    "signer": (_Server, "serve_forever", lambda folder: SignerServer(folder, Account.create(), MagicMock())),
    "judge": (JudgeQueue, "_next", lambda _: JudgeQueue(MagicMock()).start()),
    "retained files": (HttpServer, "serve", retained_files),
    "canaries": (CanaryOpener, "_run", lambda _: CanaryOpener(*[MagicMock()] * 4).start()),
    "metrics": (MetricsSinks, "_run", lambda _: MetricsSinks([]).start()),
    "step-recorder": (StepRecorder, "_work", lambda _: StepRecorder(MagicMock(), 1, MagicMock(), MagicMock()).start()),
}


@pytest.mark.parametrize("name", THREADS)
def test_the_death_of_each_thread_ends_its_process(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    owner, method, start = THREADS[name]

    def die(*_: object, **__: object) -> None:
        raise SystemExit("killed by the test")

    monkeypatch.setattr(entry._Death, "follow", staticmethod(messages.append))
    monkeypatch.setattr(watch, "serve_gauges", lambda *_: lambda: None)
    monkeypatch.setattr(owner, method, die)
    start(tmp_path)
    wait_for("its end", lambda: messages or None, 20, poll=0.01)
    assert messages == [f"the thread `{name}` died: SystemExit: killed by the test"]


# Threads whose end harms nobody, and the service's, which start again (tests/orchestrator/test_background.py).
OTHERS = {
    "engines/vllm_records.py": "a step that it could not take is raised with the next",
    "localnet/background.py": "logs what it cannot write and goes on",
    "localnet/services/chain.py": "the chain's process ends without its miner",
    "orchestrator/background.py": "supervised; /ready shows what fails",
    "runtime/entry.py": "makes the essential ones",
    "runtime/relay.py": "supervised; begins again, and its status says why",
    "storage/sources.py": "makes one request",
    "trainer/distributed.py": "the other ranks end when rank 0 falls silent",
    "validator/judging/sources.py": "makes one request",
}


def test_no_thread_is_left_out() -> None:
    sources = [
        source for source in read_sources(ROOT) if not source.path.startswith(("tests", "benchmarks", "attacks"))
    ]
    assert {source.path for source in sources if "threading.Thread(" in source.text} == OTHERS.keys()
    named = {name for source in sources for name in re.findall(r'essential\("([^"]+)"', source.text)}
    assert named == THREADS.keys()


DAEMON = """
import sys, time
from pathlib import Path
from runtime.process import DaemonConfig, start
from runtime.entry import essential

class OneThread:
    def run(self):
        essential("judge", lambda: 1 / 0).start()
        time.sleep(60)

    def stop(self):
        pass

start(Path(sys.argv[1]), DaemonConfig, lambda config: OneThread())
"""


def test_a_process_whose_thread_died_says_so_in_its_home(tmp_path: Path) -> None:
    config, home = tmp_path / "config.toml", tmp_path / "home"
    config.write_text(f'home = "{home}"\n')
    argv = [sys.executable, "-c", DAEMON, str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == Exit.STALLED, done.stderr
    assert gone(home).endswith("ended with: the thread `judge` died: ZeroDivisionError: division by zero")
