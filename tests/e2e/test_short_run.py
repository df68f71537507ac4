"""The whole network, briefly: real chain, real S3, real model, real proofs; a cheater among the workers."""

from pathlib import Path

import psutil
import pytest

from tests.e2e.running import demo

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_a_short_run_pays_the_honest_and_ejects_the_cheater(tmp_path: Path) -> None:
    run = demo(tmp_path, "--seed", "1", "--steps", "3", timeout=540)

    assert run.code == 0, run.output
    summary = run.summary
    assert summary["steps"] == 3
    assert summary["seed"] == 1
    (cheater,) = summary["cheaters"]
    assert cheater["slashed"]
    assert cheater["ejected"]
    assert cheater["reason"]
    assert cheater["rollouts_trained"] == 0
    assert summary["honest_rejected"] == 0
    assert summary["submissions"]["accepted"] >= 12
    assert summary["tokens_verified"] > 0
    assert summary["ledger_matches_chain"]
    assert summary["escrow_balanced"]
    assert 0 <= summary["reward_first"] <= 0.45
    assert len(summary["rewards"]) == 3
    assert "<html" in (run.folder / "report.html").read_text()[:200].lower()

    trained = [entry["sequence"] for entry in run.trained()]
    assert len(trained) == len(set(trained)) == 12
    left = [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]
    assert left == [], "processes were left running"
