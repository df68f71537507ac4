"""Whole simulations: real roles and contracts, faults from a seed, and old faults that have to be found."""

import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyrevm", reason="pyrevm has no wheel for this Python")

from simulation.faults import Fault, save

LEAST = ["--hours", "0.45"]


def simulate(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "simulation.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.mark.timeout(1200)
def test_a_seed_decides_everything_and_nothing_is_violated() -> None:
    code, first = simulate("--seed", "3", *LEAST)
    assert code == 0, first
    faults, files = (
        int(match[1]) for match in (re.search(r"(\d+) faults", first), re.search(r"(\d+) files", first)) if match
    )
    assert faults > 20
    assert files > 20
    assert re.findall("digest .*", first) == re.findall("digest .*", simulate("--seed", "3", *LEAST)[1])


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("planted", "oracle"), [("trust-proofs", "paid unverified"), ("refuse-endings", "honest work refused")]
)
def test_a_planted_fault_is_found(planted: str, oracle: str) -> None:
    code, out = simulate("--seed", "1", *LEAST, "--planted", planted, "--pause", "100000")
    assert code == 1
    assert oracle in out


@pytest.mark.timeout(1200)
def test_kills_find_a_vote_that_cannot_be_opened(tmp_path: Path) -> None:
    """A validator that is killed between its vote and the opening must know its salt."""
    random, at, kills = Random(5), 120.0, list[Fault]()
    while at < 560:
        at = round(at + random.uniform(4, 14), 1)
        kills.append(Fault(at, "kill", f"validator-v{random.randrange(1, 4)}", 3.0))
    save(tmp_path / "kills.json", kills)
    played = ["--seed", "1", *LEAST, "--schedule", str(tmp_path / "kills.json"), "--as-is"]
    code, out = simulate(*played, "--planted", "forget-ballots")
    assert code == 1
    assert "honest seat fined" in out
