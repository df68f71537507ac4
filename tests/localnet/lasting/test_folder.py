"""The folder of a lasting network, and who may use it."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from chain.seat_classes import needed
from localnet.lasting.control import delete, settle_settings, take_down
from localnet.lasting.folder import LastingSettings, NetworkFolder, check_ports, choose_port, config_of, plan_of
from localnet.pool import budget, pool_terms
from protocol.amounts import GRAINS
from protocol.errors import ConfigError


def folder_at(path: Path) -> NetworkFolder:
    return NetworkFolder.at(path / "net")


def test_what_a_network_is_made_with_is_kept_and_cannot_be_changed(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
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


def test_there_is_no_network_where_none_was_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no network in .*`muster up` makes one"):
        folder_at(tmp_path).known_settings()


def test_ports_are_below_those_of_outgoing_connections_and_taken_ones_are_passed_over(tmp_path: Path) -> None:
    port = choose_port(tmp_path, None)
    assert 1024 < port < 32_768 - 3
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port + 2))
        holder.listen()
        assert choose_port(tmp_path, None) != port
        with pytest.raises(ConfigError, match=rf"port {port + 2} is in use.*--port"):
            choose_port(tmp_path, port)
        with pytest.raises(ConfigError, match=rf"port {port + 2} is in use; stop it"):
            check_ports(LastingSettings(port=port).ports, "stop it")


@pytest.mark.parametrize("validators", [1, 2, 5, 12])
def test_the_validators_share_enough_seats_for_the_pool(tmp_path: Path, validators: int) -> None:
    settings = LastingSettings(validators=validators, port=2000)
    plan, config = plan_of(folder_at(tmp_path), settings), config_of(settings)
    seats = [one.seats for one in plan.validators]
    assert sum(seats) >= needed(pool_terms(config))
    assert max(seats) - min(seats) <= 1
    assert not any(node.attack for node in plan.nodes)
    assert not any(one.attack for one in plan.validators)
    assert plan.members == ["1", "2"]
    assert {plan.chain_port, plan.s3_port, plan.http_port, plan.metrics_port} == {2000, 2001, 2002, 2003}


def test_the_budget_pays_every_step() -> None:
    settings = LastingSettings(steps=5000, port=2000)
    config = config_of(settings)
    terms = pool_terms(config)
    dearest = config.train.files_per_step * (terms.maxUnits * terms.rate + terms.committee * terms.fee)
    assert budget(5000) >= 5000 * dearest
    assert budget(30) == 2000 * GRAINS


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
        argv = [sys.executable, "-P", "-m", "localnet.lasting.daemon", "--folder", str(folder.root)]
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
