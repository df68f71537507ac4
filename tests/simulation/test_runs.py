"""Whole simulations: real roles and contracts, faults from a seed, and old faults that have to be found."""

import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytest.importorskip("pyrevm", reason="pyrevm has no wheel for this Python")

SHORT = ["--hours", "0.04", "--pause", "8"]


def simulate(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "simulation.main", *SHORT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_a_simulator_that_is_told_to_end_leaves_no_folder() -> None:
    def folders() -> set[Path]:
        return {*Path("/dev/shm").glob("muster-simulation-*"), *Path(tempfile.gettempdir()).glob("muster-simulation-*")}

    before = folders()
    simulator = subprocess.Popen([sys.executable, "-m", "simulation.main"])
    while not (made := folders() - before):
        assert simulator.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    simulator.terminate()
    assert simulator.wait(60) == 128 + signal.SIGTERM
    assert not any(folder.exists() for folder in made)


@pytest.mark.timeout(2400)
def test_a_seed_decides_everything_and_nothing_is_violated() -> None:
    code, first = simulate("--seed", "3", "--seeds", "2")
    assert code == 0, first
    assert sum(map(int, re.findall(r"(\d+) faults", first))) > 30
    assert sum(map(int, re.findall(r"(\d+) files", first))) > 16
    code, again = simulate("--seed", "4")
    assert re.findall("digest .*", first)[1:] == re.findall("digest .*", again), "in another process"


@pytest.mark.timeout(2400)
def test_planted_faults_are_found() -> None:
    """Cheats and honest work that judges mistake show at once; a vote that its validator cannot open after a kill
    shows where kills are many."""
    oracles = {
        "trust-proofs": "paid unverified",
        "refuse-endings": "honest work refused",
        "forget-ballots": "honest seat fined",
    }
    kills = ["--seed", "207", "--seeds", "3", "--hours", "0.08", "--pause", "4"]
    code, out = simulate(*kills, "--planted", *oracles)
    assert code == 0, out
    assert [line.split(": ")[::2][:2] for line in out.splitlines()] == [list(pair) for pair in oracles.items()]
