"""`kill -9` of every process at a random moment: the run finishes, nothing is lost, trained or paid twice."""

from pathlib import Path

import pytest

from tests.e2e.running import demo

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]
PROCESSES = 10


def test_every_process_may_be_killed(tmp_path: Path) -> None:
    run = demo(tmp_path, "--seed", "1", "--steps", "12", "--chaos", "9", timeout=1100)

    assert run.code == 0, run.output
    killed = {line.split("kill -9 ")[1].strip() for line in run.output.splitlines() if "✂" in line}
    assert {"chain", "s3", "orchestrator", "trainer"} <= killed
    assert len(killed) >= PROCESSES - 1, "the cheater may have been ejected before its turn"
    summary = run.summary
    assert summary["steps"] == 12
    assert summary["ledger_matches_chain"]
    assert summary["escrow_balanced"]
    assert summary["honest_rejected"] == 0
    trained = [entry["sequence"] for entry in run.trained()]
    assert len(trained) == len(set(trained)) == 48, "an accepted file was lost or trained twice"
