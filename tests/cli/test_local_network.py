"""`muster up`, `ps`, `logs`, `down` without a network that runs: what they show and refuse."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.local import all_well, follow_logs, last_lines, network_document, process_table
from localnet.background import NetworkPhase, NetworkSettings, NetworkState, ProcessEntry, ProcessState
from tests.cli.muster import Muster

NOW = 1_000_000.0


def entry(name: str, state: ProcessState = ProcessState.RUNNING, **more: object) -> ProcessEntry:
    base = {"pid": 7, "since": NOW - 60, "restarts": 0, "exit_code": None, "restart_at": None, "log": f"{name}.log"}
    return ProcessEntry.model_validate({"name": name, "state": state} | base | more)


def network(*processes: ProcessEntry, phase: NetworkPhase = NetworkPhase.UP) -> dict[str, Any]:
    state = NetworkState(pid=1, created=2.0, phase=phase, doing="", since=NOW - 99, processes=processes)
    return {"folder": "/net", "service": "", **network_document(state, {"worker-1": ["a slot, since noon"]}, NOW)}


def test_each_process_says_what_it_waits_for() -> None:
    dead = entry("s3", ProcessState.RESTARTING, pid=None, exit_code=-9, restart_at=NOW + 4, restarts=2)
    ended = entry("worker-2", ProcessState.STOPPED, pid=None, exit_code=3)
    found = network(entry("worker-1"), dead, ended, entry("chain"))
    lines = process_table(found).splitlines()
    row = {line.split()[0]: line for line in lines[3:]}
    assert row["worker-1"].endswith("a slot, since noon")
    assert row["s3"].endswith("its restart in 4 s, after signal SIGKILL")
    assert "muster logs worker-2" in row["worker-2"]
    assert row["chain"].split()[1:4] == ["chain", "running", "7"]
    assert found["processes"][0]["waits"] == "a slot, since noon"


@pytest.mark.parametrize("state", ProcessState)
def test_all_is_well_if_the_network_is_up_and_nothing_is_missing(state: ProcessState) -> None:
    good = state in (ProcessState.RUNNING, ProcessState.FINISHED)
    assert all_well(network(entry("chain"), entry("s3", state))) is good
    assert not all_well(network(entry("chain"), phase=NetworkPhase.STARTING))


def test_the_commands_name_what_is_missing(tmp_path: Path) -> None:
    muster, folder = Muster(tmp_path), tmp_path / "net"
    for command in ("ps", "logs", "down"):
        assert "`muster up` makes one" in muster.refused(command, "--folder", folder)
    folder.mkdir()
    (folder / "network.json").write_text(NetworkSettings(port=2000).model_dump_json())
    done = muster.run("ps", "--json", "--folder", folder)
    assert done.code == 1
    assert json.loads(done.out)["phase"] is None
    assert "there is no log" in muster.refused("logs", "--folder", folder)
    logs = folder / "logs"
    logs.mkdir()
    (logs / "worker-1.log").write_text("one\ntwo\n")
    (logs / "chain.log").write_text("block\n")
    assert muster.ok("logs", "worker", "-n", "1", "--folder", folder).out.split("\n")[0] == "worker-1 | two"
    assert "there are: chain, worker-1" in muster.refused("logs", "wroker", "--folder", folder)
    assert "pass --yes" in muster.refused("down", "--delete", "--folder", folder)
    muster.ok("down", "--delete", "--yes", "--folder", folder)
    assert not folder.exists()


def test_the_last_lines_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d \xff%s\n" % (number, b"x" * 1000) for number in range(2000)))
    assert [line.split()[1] for line in last_lines(path, 3)] == ["1997", "1998", "1999"]
    assert last_lines(path, 1)[0].startswith("line 1999 \ufffdx")
    assert 1000 < len(last_lines(path, 5000)) < 1100, "of a megabyte"
    assert last_lines(path, 0) == []


def test_following_gives_whole_lines_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    path, added = tmp_path / "log", ["one\ntw", "o\n"]
    path.write_text("old\n")

    def write_more(_: float) -> None:
        if not added:
            raise KeyboardInterrupt
        with path.open("a") as file:
            file.write(added.pop(0))

    monkeypatch.setattr("cli.local.time.sleep", write_more)
    with pytest.raises(KeyboardInterrupt):
        follow_logs({"worker-1": path})
    assert capsys.readouterr().out == "worker-1 | one\nworker-1 | two\n"
