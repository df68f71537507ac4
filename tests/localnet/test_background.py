"""The local network in the background: its folder, its states, and when it counts as up."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from filelock import FileLock

from chain.indexer.state import group_number, needed
from cli.pool.config import load_terms
from localnet.background import (
    SEATS,
    BackgroundNetwork,
    NetworkFolder,
    NetworkPhase,
    NetworkSettings,
    NetworkState,
    ProcessState,
    check_ports,
    choose_port,
    delete,
    plan_of,
    process_entry,
    settle_settings,
    take_down,
)
from localnet.network import final_exits
from localnet.onboarding import LOCAL_GROUP, KeyRing, Onboarding
from localnet.plan import POOL, budget, pool_config, pool_terms
from protocol.encoding import TOKEN
from protocol.errors import ConfigError, MusterError
from runtime.supervisor import Child, Supervisor, restart_pause
from tests.storage.mirror import mirror, send


def folder_at(path: Path) -> NetworkFolder:
    return NetworkFolder.at(path / "net")


def test_what_a_network_is_made_with_is_kept_and_cannot_be_changed(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    with pytest.raises(ConfigError, match=r"no network in .*`muster up` makes one"):
        folder.known_settings()
    made = settle_settings(folder, {"workers": 3, "steps": None})
    assert (made.workers, made.validators) == (3, 2)
    assert settle_settings(folder, {"workers": None, "port": None}) == made
    assert settle_settings(folder, {"workers": 3}) == made
    with pytest.raises(ConfigError, match=r"--workers 3, which cannot become 4.*muster down --delete"):
        settle_settings(folder, {"workers": 4})


def test_a_folder_with_something_else_in_it_is_neither_used_nor_deleted(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    folder.root.mkdir()
    (folder.root / "thesis.tex").write_text("dear")
    for act in (lambda: settle_settings(folder, {}), lambda: delete(folder)):
        with pytest.raises(ConfigError, match="not empty"):
            act()
    assert (folder.root / "thesis.tex").exists()


def test_ports_are_below_those_of_outgoing_connections_and_taken_ones_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = choose_port(None)
    assert 1024 < port < 32_768 - 3
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port + 2))
        holder.listen()
        monkeypatch.setattr("localnet.background._PORT_RANGE", range(port, port + 5, 4))
        assert choose_port(None) == port + 4
        with pytest.raises(ConfigError, match=rf"port {port + 2} is in use.*--port"):
            choose_port(port)
        with pytest.raises(ConfigError, match=rf"port {port + 2} is in use; stop it"):
            check_ports(NetworkSettings(port=port).ports, "stop it")


@pytest.mark.parametrize("validators", [1, 2, 5, 12])
def test_the_validators_share_enough_seats_for_the_pool(tmp_path: Path, validators: int) -> None:
    settings = NetworkSettings(validators=validators, port=2000)
    plan, config = plan_of(folder_at(tmp_path), settings), pool_config(settings.seed, settings.steps)
    seats = [one.seats for one in plan.validators]
    assert sum(seats) >= needed(pool_terms(config))
    assert max(seats) - min(seats) <= 1
    assert not any(node.attack for node in plan.nodes)
    assert not any(one.attack for one in plan.validators)
    assert plan.members == ["1", "2"]
    assert {plan.chain_port, plan.s3_port, plan.http_port, plan.metrics_port} == {2000, 2001, 2002, 2003}


def test_the_budget_pays_every_step() -> None:
    config = pool_config(7, 5000)
    terms = pool_terms(config)
    dearest = config.train.files_per_step * (terms.maxUnits * terms.rate + terms.committee * terms.fee)
    assert budget(5000) >= 5000 * dearest
    assert budget(30) == 2000 * TOKEN


def test_a_network_lasts_until_it_is_taken_down_and_its_seats_are_enough_for_a_pool_of_ones_own(tmp_path: Path) -> None:
    settings = settle_settings(folder_at(tmp_path), {"steps": None})
    steps = pool_config(settings.seed, settings.steps).train.steps
    assert steps == plan_of(folder_at(tmp_path), settings).steps == 1_000_000, "years, not minutes"
    own = load_terms(Path("local"), bytes(32), 4096)
    assert needed(own) <= SEATS
    assert own.group == group_number(LOCAL_GROUP)


class BondingSuite:
    """Notes which groups each seat is opened for."""

    def __init__(self) -> None:
        self.seats = self.token = self
        self.address, self.opened = "", list[list[int]]()

    def bond(self) -> int:
        return 1

    def approval(self, spender: str, base_units: int) -> None:
        return None

    def open_seat(self, voter: str, groups: list[int]) -> "BondingSuite":
        self.opened.append(groups)
        return self

    def send(self) -> None: ...


@pytest.mark.parametrize("lasting", [True, False])
def test_the_seats_of_a_network_that_lasts_also_judge_pools_of_ones_own(
    lasting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_at(tmp_path)
    plan = replace(plan_of(folder, settle_settings(folder, {})), background=lasting)
    suite = BondingSuite()
    monkeypatch.setattr(Onboarding, "suite", lambda onboarding, name: suite)
    Onboarding(plan, KeyRing(tmp_path / "keys")).bond()
    own = load_terms(Path("local"), bytes(32), 4096).group
    assert suite.opened == [[POOL, own] if lasting else [POOL]] * SEATS


def test_an_interrupted_first_start_leaves_settings_and_logs(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    settings = settle_settings(folder, {})
    for name in ("homes/chain", "keys/owner", "logs"):
        (folder.root / name).mkdir(parents=True)
    folder.forget_run()
    assert sorted(path.name for path in folder.root.iterdir()) == ["logs", "network.json"]
    assert folder.settings() == settings


def test_a_second_supervisor_is_refused(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    settle_settings(folder, {})
    with FileLock(folder.root / "lock"):
        argv = [sys.executable, "-P", "-m", "localnet.background", "--folder", str(folder.root)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert f"{folder.root} is in use by another network" in done.stderr
    assert "--folder" in done.stderr
    assert folder.state() is None


def test_taking_down_what_is_down_says_nothing(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    settle_settings(folder, {})
    said: list[str] = []
    take_down(folder, said.append)
    assert said == []
    delete(folder)
    assert not folder.root.exists()


WAITS = "waiting for the trainer to publish policy step 0"


@pytest.fixture
def steps() -> list[int | None]:
    """What the pool's service says of its newest policy step, one after the other, the last for ever."""
    return [None, None, 0]


@pytest.fixture
def network(steps: list[int | None], tmp_path: Path) -> Iterator[BackgroundNetwork]:
    """Its processes run but for the trainer, which is silent."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        send(handler, 200, json.dumps({"step": step}).encode())

    with mirror(answer) as url:
        port = int(url.rpartition(":")[2])
        made = BackgroundNetwork(NetworkFolder(tmp_path), NetworkSettings(port=port - 2))
        made.network.supervisor.children["trainer"] = Child("trainer", [], tmp_path / "trainer.log")
        yield made
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_it_waits_for_weights_and_says_so(network: BackgroundNetwork, steps: list[int | None]) -> None:
    network._wait_for_weights()
    assert steps == [0]
    standing = network.standing()
    assert (standing.phase, standing.doing) == (NetworkPhase.STARTING, WAITS)


def test_without_weights_it_fails_with_the_trainers_last_words(
    network: BackgroundNetwork, steps: list[int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localnet.background._WEIGHTS_SECONDS", 0.1)
    steps[:] = [None]
    (tmp_path / "trainer.log").write_text("no memory\n")
    with pytest.raises(MusterError, match=r"publish policy step 0 in vain: no memory"):
        network._wait_for_weights()


def test_a_disk_that_takes_no_state_for_a_moment_does_not_end_its_publishing(
    network: BackgroundNetwork, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries: list[Path] = []

    def full_at_first(path: Path, data: bytes) -> None:
        tries.append(path)
        if len(tries) < 3:
            raise OSError(28, "No space left on device")
        network._ended.set()

    monkeypatch.setattr("localnet.background.write_atomic", full_at_first)
    monkeypatch.setattr("localnet.background._LOOK_SECONDS", 0.01)
    network._publish()
    assert tries == [tmp_path / "supervisor.json"] * 3


def state_of(pid: int, created: float) -> NetworkState:
    running: Any = SimpleNamespace(pid=1)
    entry = process_entry(Child("worker-1", [], Path("worker-1.log"), since=7.0, process=running), 0.0, 0.0)
    return NetworkState(pid=pid, created=created, phase=NetworkPhase.UP, doing="", since=1.0, processes=(entry,))


def test_pauses_between_restarts_double_up_to_the_longest_however_often_it_failed() -> None:
    assert [restart_pause(failures, 60.0) for failures in (1, 2, 3, 7, 8, 5000)] == [0.5, 1.0, 2.0, 32.0, 60.0, 60.0]


def test_only_work_that_is_done_or_refused_ends_a_process_of_a_lasting_network() -> None:
    lasting = {name: final_exits(name, True) for name in ("chain", "s3", "orchestrator", "validator-1")}
    assert set(lasting.values()) == {frozenset()}
    assert final_exits("worker-1", True) == {3}
    assert final_exits("trainer", True) == {0, 5}
    assert final_exits("worker-ada", False) == {0, 3}
    assert final_exits("validator-xena", False) == final_exits("trainer", False) == {0}


def test_an_entry_says_whether_a_process_runs_restarts_has_finished_or_stopped(tmp_path: Path) -> None:
    child = Child("worker-1", [sys.executable, "-c", "raise SystemExit(9)"], tmp_path / "log", max_restarts=None)
    child.start().wait()
    supervisor = Supervisor(lambda _: None)
    supervisor.children[child.name] = child
    child.failures = 3
    supervisor._died(child, 9, now=100.0)
    entry = process_entry(child, monotonic=101.0, now=5001.0)
    assert (entry.state, entry.pid, entry.exit_code, entry.role) == (ProcessState.RESTARTING, None, 9, "worker")
    assert entry.restart_at == pytest.approx(5004.0), "the fourth failure in a row costs four seconds, one is over"
    child.restart_at, child.finished = None, True
    assert process_entry(child, 101.0, 5001.0).state is ProcessState.STOPPED
    child.exit_code = 0
    assert process_entry(child, 101.0, 5001.0).state is ProcessState.FINISHED


def test_a_living_supervisor_is_believed(tmp_path: Path) -> None:
    me = psutil.Process()
    state = state_of(me.pid, me.create_time())
    assert state.as_found() == state


def test_a_killed_supervisor_takes_its_processes_with_it_even_if_its_number_is_used_again() -> None:
    for pid, created in ((psutil.Process().pid, 5.0), (2**22 - 1, 5.0)):
        found = state_of(pid, created).as_found()
        assert found.phase is NetworkPhase.FAILED
        assert "was killed" in found.problem
        assert [(one.state, one.pid) for one in found.processes] == [(ProcessState.GONE, None)]


def test_a_supervisor_that_has_ended_but_was_not_waited_for_does_not_live() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    created = psutil.Process(process.pid).create_time()
    state = state_of(process.pid, created)
    assert state.lives()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not state.lives()
    process.wait()
