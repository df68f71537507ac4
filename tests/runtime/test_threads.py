"""The death of any background thread of a daemon ends its process, and `status` shows it."""

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

from diloco.chain import StepRecorder
from engines.vllm_records import Records
from localnet.background import BackgroundNetwork
from localnet.ports import claim_port
from localnet.services.chain import Anvil, _keep_saving
from orchestrator.background import BackgroundTask
from protocol.accounts import Account
from protocol.errors import MusterError
from protocol.waits import wait_for
from runtime import entry, watch
from runtime.engine_process import _Child
from runtime.entry import Exit
from runtime.home_status import gone
from runtime.orchestrator_client import Heartbeats
from runtime.process import StallGuard
from runtime.relay import PoolRelay
from runtime.server import HttpServer
from runtime.signer import SignerServer, SigningRules, _Server
from runtime.weights_ahead import WeightsAhead
from storage.relay.server import ServeWeights
from storage.sources import MultiSource
from tools.structure import ROOT, read_sources
from trainer.distributed import Ranks
from trainer.pool.canaries import CanaryOpener
from trainer.reports.metrics import MetricsSinks
from validator.config import ServeConfig
from validator.judging.queue import JudgeQueue
from validator.judging.sources import _in_background
from validator.retention import FileServer, RetentionStore


def die(*_: object, **__: object) -> Any:
    raise SystemExit("killed by the test")


def webhooks(folder: Path) -> None:
    watcher: Any = watch.Watcher.__new__(watch.Watcher)
    watcher.config, watcher._stop = MagicMock(), threading.Event()
    watcher._stop.set()
    watcher.run()


def retained_files(folder: Path) -> None:
    FileServer(ServeConfig(listen="127.0.0.1:0", public_url="https://seat.example"), RetentionStore(folder, 1))


def relay(folder: Path) -> None:
    client = MagicMock()
    client.config.cache = folder
    serving = PoolRelay(client, ServeWeights(host="127.0.0.1", port=claim_port()), None)
    serving._threads[2].start()


def ranks(folder: Path) -> None:
    with patch.multiple("trainer.distributed", join_store=lambda _: (MagicMock(), 0, 2), dist=MagicMock()):
        Ranks("cpu", 60.0)


def answers(folder: Path) -> None:
    with patch("runtime.engine_process.multiprocessing.get_context") as context:
        context.return_value.Pipe.return_value = MagicMock(), MagicMock()
        _Child(MagicMock(), folder)


# The thread → what of it is made to fail, and how it is started.
THREADS: dict[str, tuple[Any, str, Callable[[Path], object]]] = {
    "heartbeats": (Heartbeats, "_run", lambda _: Heartbeats(MagicMock(), MagicMock(), 1.0).start()),
    "stall guard": (StallGuard, "_run", lambda folder: StallGuard(folder).start()),
    "weights-ahead": (WeightsAhead, "_look", lambda _: WeightsAhead(MagicMock(), 0.01).start()),
    "webhooks": (watch.Watcher, "_post", webhooks),
    "signer": (
        _Server,
        "serve_forever",
        lambda folder: SignerServer(folder, [Account.create()], SigningRules(MagicMock(), MagicMock(), (), {}, {})),
    ),
    "judge": (JudgeQueue, "_next", lambda _: JudgeQueue(MagicMock()).start()),
    "retained files": (HttpServer, "serve", retained_files),
    "canaries": (CanaryOpener, "_run", lambda _: CanaryOpener(*[MagicMock()] * 4).start()),
    "metrics": (MetricsSinks, "_run", lambda _: MetricsSinks([]).start()),
    "step-recorder": (StepRecorder, "_work", lambda _: StepRecorder(MagicMock(), 1, MagicMock(), MagicMock()).start()),
    "engine's answers": (_Child, "_read", answers),
    # Those of many names: one each.
    "pruning": (BackgroundTask, "_run", lambda _: BackgroundTask("pruning", int, 1.0).start()),
    "relay: announcing": (PoolRelay, "_supervised", relay),
    "signs of life": (Ranks, "_stay_alive", ranks),
}


@pytest.mark.parametrize("name", THREADS)
def test_the_death_of_each_thread_ends_its_process(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    owner, method, start = THREADS[name]
    monkeypatch.setattr(entry._Death, "follow", staticmethod(messages.append))
    monkeypatch.setattr(watch, "serve_gauges", lambda *_: lambda: None)
    monkeypatch.setattr(owner, method, die)
    start(tmp_path)
    wait_for("its end", lambda: messages or None, 20, poll=0.01)
    assert messages == [f"the thread `{name}` died: SystemExit: killed by the test"]


def kill_proofs(folder: Path) -> None:
    records = Records()
    step: Any = SimpleNamespace(arrived=SimpleNamespace(synchronize=die))
    records.post(step)
    with pytest.raises(SystemExit):
        records.collect([])


def kill_publisher(folder: Path) -> None:
    network: Any = BackgroundNetwork.__new__(BackgroundNetwork)
    network._ended, network.progress, network._write_state = threading.Event(), MagicMock(), die
    network.progress.say = lambda text: network._ended.set()
    network._publish()  # it says what happened, and would go on
    assert network._ended.is_set()


def kill_miner(folder: Path) -> None:
    anvil = Anvil(claim_port(), 31337, folder / "log")
    anvil._mine = die  # type: ignore[method-assign]
    anvil.miner = threading.Thread(target=die)
    anvil.miner.start()
    anvil.miner.join()
    anvil.running = lambda: True  # type: ignore[method-assign]
    with pytest.raises(MusterError, match="nobody makes blocks"):
        _keep_saving(anvil, folder / "state.json", threading.Event())


def kill_request(folder: Path) -> None:
    sources: Any = MultiSource({"a": lambda *_: None})
    sources._selection.ended = die
    with pytest.raises(MusterError, match="broke off"):
        sources("key", 1)


def kill_source(folder: Path) -> None:
    with pytest.raises(SystemExit):
        _in_background(die).result(20)


# Modules with threads that the process goes on without → a test that kills theirs.
OTHERS = {
    "engines/vllm_records.py": kill_proofs,
    "localnet/background.py": kill_publisher,
    "localnet/services/chain.py": kill_miner,
    "storage/sources.py": kill_request,
    "validator/judging/sources.py": kill_source,
}


@pytest.mark.parametrize("module", OTHERS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_thread_that_died(module: str, tmp_path: Path) -> None:
    OTHERS[module](tmp_path)


def test_no_thread_is_left_out() -> None:
    sources = [one for one in read_sources(ROOT) if not one.path.startswith(("tests", "benchmarks", "attacks"))]
    assert {one.path for one in sources if "threading.Thread(" in one.text} == {*OTHERS, "runtime/entry.py"}
    assert sum(len(re.findall(r"[^_]essential\((?!name: str)", one.text)) for one in sources) == len(THREADS)


DAEMON = """
import sys, time
from pathlib import Path
from runtime.process import DaemonConfig, start
from runtime.entry import essential

class OneThread:
    def __init__(self):
        if sys.argv[2] == "built":
            self.die()

    def run(self):
        if sys.argv[2] == "run":
            self.die()

    def die(self):
        essential("judge", lambda: 1 / 0).start()
        time.sleep(20)

start(Path(sys.argv[1]), DaemonConfig, lambda config: OneThread())
"""


@pytest.mark.parametrize("while_it_is", ["built", "run"])
def test_a_process_whose_thread_died_says_so_in_its_home(tmp_path: Path, while_it_is: str) -> None:
    config, home = tmp_path / "config.toml", tmp_path / "home"
    config.write_text(f'home = "{home}"\n')
    argv = [sys.executable, "-c", DAEMON, str(config), while_it_is]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == Exit.STALLED, done.stderr
    assert gone(home).endswith("ended with: the thread `judge` died: ZeroDivisionError: division by zero")
