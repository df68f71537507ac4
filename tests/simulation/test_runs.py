"""Whole simulations: real roles and contracts, faults from a seed, and old faults that have to be found."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("pyrevm", reason="pyrevm has no wheel for this Python")

SHORT = ["--hours", "0.08", "--pause", "12"]


def simulate(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "simulation.main", *arguments, *SHORT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.mark.timeout(2400)
def test_a_seed_decides_everything_and_nothing_is_violated() -> None:
    code, first = simulate("--seed", "3", "--seeds", "2")
    assert code == 0, first
    assert sum(map(int, re.findall(r"(\d+) faults", first))) > 40
    assert sum(map(int, re.findall(r"(\d+) files", first))) > 20
    code, again = simulate("--seed", "4")
    assert re.findall("digest .*", first)[1:] == re.findall("digest .*", again), "in another process"


@pytest.mark.timeout(1200)
def test_planted_faults_are_found() -> None:
    oracles = {
        "trust-proofs": "paid unverified",
        "refuse-endings": "honest work refused",
        "reveal-nothing": "honest seat fined",
    }
    code, out = simulate("--seed", "1", "--seeds", "2", "--planted", *oracles)
    assert code == 0, out
    assert [line.split(": ")[::2][:2] for line in out.splitlines()] == [list(pair) for pair in oracles.items()]
