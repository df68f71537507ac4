"""Whole simulations: real roles and contracts, faults from a seed, and old faults that have to be found."""

import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyrevm", reason="pyrevm has no wheel for this Python")

from simulation.faults import Fault, save

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


@pytest.mark.timeout(1200)
def test_planted_faults_are_found() -> None:
    oracles = {
        "trust-proofs": "paid unverified",
        "refuse-endings": "honest work refused",
    }
    code, out = simulate("--seed", "1", "--hours", "0.08", "--pause", "12", "--planted", *oracles)
    assert code == 0, out
    assert [line.split(": ")[::2][:2] for line in out.splitlines()] == [list(pair) for pair in oracles.items()]


@pytest.mark.timeout(1200)
def test_kills_find_a_vote_that_cannot_be_opened(tmp_path: Path) -> None:
    """A validator that is killed between its vote and the opening must know its salt."""
    random, at, kills = Random(5), 20.0, list[Fault]()
    while at < 460:
        at = round(at + random.uniform(4, 14), 1)
        kills.append(Fault(at, "kill", f"validator-v{random.randrange(1, 4)}", 3.0))
    save(tmp_path / "kills.json", kills)
    played = ["--seed", "1", "--hours", "0.13", "--schedule", str(tmp_path / "kills.json")]
    code, out = simulate(*played, "--planted", "forget-ballots")
    assert code == 0, out
    assert "honest seat fined" in out
