"""Three members of a swarm as processes: one is killed in each phase, and the bucket goes for a while."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import processes_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]
SWARM = [sys.executable, "-m", "localnet.swarm", "--members", "3", "--problems", "16"]


def test_nobody_stops_and_nothing_is_trained_twice(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    argv = [*SWARM, "--runs", str(runs), "--rounds", "6", "--pace", "3", "--outage", "15"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NO " not in done.stdout
    report: dict[str, Any] = json.loads((runs / "latest" / "report.json").read_bytes())
    assert report["good"]
    assert len(report["facts"]) >= 12
    assert [one["restarts"] for one in report["members"]] == [1, 1, 1]
    assert all(one["rounds"] == one["training_steps"] >= 6 for one in report["members"])
    assert all([trained for trained, _ in one["held_out"]][:2] == [0, 3] for one in report["members"])
    assert processes_of(runs) == []


def test_ctrl_c_leaves_nothing_running(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with (tmp_path / "output").open("w") as out:
        process = subprocess.Popen([*SWARM, "--runs", str(runs)], stdout=out, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + 600
        while "members," not in (tmp_path / "output").read_text():
            assert process.poll() is None, (tmp_path / "output").read_text()
            assert time.monotonic() < end
            time.sleep(0.2)
        assert len(processes_of(runs)) > 3
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130, (tmp_path / "output").read_text()
        assert processes_of(runs) == []
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
