"""The whole network with two DiLoCo workers that train in the trainer's place, each killed once during an outer
step."""

from pathlib import Path

import pytest

from tests.e2e.running import demo

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


def test_two_workers_train_a_pools_policy(tmp_path: Path) -> None:
    run = demo(tmp_path, "--seed", "3", "--steps", "6", "--diloco", "2", timeout=840)
    assert run.code == 0, run.output[-3000:]
    summary, found = run.summary, run.summary["diloco"]
    assert summary["ledger_matches_chain"]
    assert summary["escrow_balanced"]
    assert found["used_once"]
    assert found["files"] == len(run.trained()) == 24
    assert found["outer_steps"] == found["named"] == 6
    assert sum(one["files"] for one in found["workers"]) == 24
    assert all(one["killed"] for one in found["workers"])
