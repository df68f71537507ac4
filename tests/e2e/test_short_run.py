"""The whole network, briefly: real chain, real S3, real model, real proofs; a cheater among the workers."""

import json
from pathlib import Path

import pytest

from engines.torch_process import vllm_installed
from tests.e2e.running import Run, kept_demo, muster, processes_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


def test_a_short_run_pays_the_honest_and_ejects_the_cheater(tmp_path: Path) -> None:
    with kept_demo(tmp_path, "--seed", "1", "--steps", "4", timeout=900) as run:
        check_summary(run)
        check_agreement(run)
        check_safeguards(run)
        check_replay(run)
    assert processes_of(tmp_path) == [], "processes were left running"


def check_summary(run: Run) -> None:
    summary = run.summary
    assert summary["steps"] == 4
    assert summary["seed"] == 1
    (cheater,) = summary["cheaters"]
    assert cheater["slashed"]
    assert cheater["ejected"]
    assert cheater["reason"]
    assert cheater["rollouts_trained"] == 0
    assert summary["honest_rejected"] == 0
    assert summary["submissions"]["accepted"] >= 16
    assert summary["tokens_verified"] > 0
    assert summary["ledger_matches_chain"]
    assert summary["escrow_balanced"]
    assert 0 <= summary["reward_first"] <= 0.45
    assert len(summary["rewards"]) == 4
    assert "<html" in (run.folder / "report.html").read_text()[:200].lower()
    trained = [entry["sequence"] for entry in run.trained()]
    assert len(trained) == len(set(trained)) == 16


def check_agreement(run: Run) -> None:
    """Honest validators with other engines and batches came to the same verdict wherever they judged the same file."""
    found = run.summary["agreement"]
    assert len({(one["engine"], one["batch"]) for one in found["validators"]}) == len(found["validators"]) == 2
    assert found["compared"] >= 1
    assert found["differing"] == []
    assert found["checks_differing"] == 0


def check_safeguards(run: Run) -> None:
    """The service relayed all but what it censored, which the node submitted itself; nobody else held ether."""
    found = run.summary["safeguards"]
    assert found["needed"] == 11
    assert 11 <= found["opted_in"] <= 12, "the lazy seat may have been evicted"
    assert 1 <= len(found["by_receipt"]) <= 2
    assert found["relayed"] == run.summary["submissions"]["total"] - len(found["by_receipt"])
    assert found["without_ether"] == found["members"] == 7


def check_replay(run: Run) -> None:
    """`muster verify`, with an engine and batch that no validator had, comes to every committee's outcome, and to every
    vote of those who looked, but for the outcome and votes that the colluders bent."""
    deployment, cache = run.folder / "deployment" / "deployment.json", run.folder / "verify"
    where = ["--deployment", str(deployment), "--rpc", rpc(run), "--pool", run.url, "--cache", str(cache)]
    engine = "vllm" if vllm_installed() else "transformers"
    done = muster("verify", "files", *where, "--engine", engine, "--batch", "5", "--json", timeout=180)
    document = json.loads(done.stdout)
    bent = {one["sequence"] for one in run.summary["disputes"] if one["overturned"]}
    assert {row["submission"] for row in document["replayed"] if not row["agrees"]} == bent
    assert len(document["replayed"]) >= run.summary["submissions"]["accepted"]
    assert done.returncode == (1 if bent else 0)
    looked = [
        (row, vote) for row in document["replayed"] for vote in row["votes"] if vote.get("engine", "none") != "none"
    ]
    assert {vote["engine"] for _, vote in looked} == {"transformers", engine}
    assert {row["submission"] for row, vote in looked if not vote["agrees"]} <= bent
    assert document["largest_differences"]["logprobs.mean"] < 1e-5


def rpc(run: Run) -> str:
    return str(json.loads((run.folder / "configs" / "trainer.json").read_text())["rpc"][0])
