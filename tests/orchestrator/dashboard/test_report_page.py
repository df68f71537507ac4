"""The same pages as a report of a finished run, opened from a disk without any service."""

from html import escape
from pathlib import Path

import pytest

from orchestrator.dashboard.documents import record
from orchestrator.dashboard.evidence import find_submission
from orchestrator.dashboard.page import report_page
from orchestrator.dashboard.results import FileDetails, build_summary, documents
from orchestrator.dashboard.views import submission_view
from protocol.api.run import RunRecord
from protocol.verdict import Code
from tests.orchestrator.chain import CHEAT, NODE, OWNER
from tests.orchestrator.conftest import Desk
from tests.orchestrator.crowd import serve_crowd
from tests.orchestrator.dashboard.conftest import PAGES, Opening, Visit

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


@pytest.fixture
def finished(desk: Desk) -> RunRecord:
    """One step trained; a file of the cheater rejected, slashed and disputed; names full of markup."""
    chain = desk.chain
    files = [chain.submit(NODE, counter, units=50) for counter in range(2)]
    bad = chain.submit(CHEAT, 0, units=70)
    for sequence in files:
        chain.settle(NODE, sequence, Code.ACCEPT, 50)
    chain.settle(CHEAT, bad, Code.REJECT_WEIGHTS, 70)
    chain.finalize(CHEAT, bad, Code.REJECT_WEIGHTS, 5000, 3003)
    chain.publish(1)
    chain.emit("Appeals", "Disputed", pool=1, sequence=bad, disputer=CHEAT.address, trial=1, deposit=9)
    desk.follow()
    weights = {"weights_fetched": 8.0, "weights_overlapped": 6.0, "swaps": 2.0, "swap_pause": 0.125}
    desk.post(NODE, "/v1/heartbeats", {"role": "worker", "name": EVIL, "engine": EVIL, "metrics": weights})
    metrics = {"reward": 0.5, "entropy": 0.625, "idle_seconds/judging": 3.0, "mismatch": 0.00004}
    report = {"step": 1, "consumed": files, "metrics": metrics, "timings": {"wait": 3.0, "train": 1.0}}
    assert desk.post(OWNER, "/v1/steps", report | {"evaluation": desk.evaluation(1, 0.75)}).status_code == 200
    return record(desk.service)


def opened(visit: Opening, text: str, folder: Path) -> Visit:
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    return visit(path.as_uri())


def test_a_finished_run_is_read_from_a_file(finished: RunRecord, visit: Opening, tmp_path: Path) -> None:
    summary = build_summary(finished, seed=7, seconds=12.34, cheaters=[CHEAT.address])
    seen = opened(visit, report_page(documents(summary, finished)), tmp_path)
    expected = {
        "": ("Honest files rejected", "Rollouts trained", "reject: weights", "seed 7", "0.75 → 0.75", "0.125 s", "75%"),
        "training": ("Entropy (nats)", "0.625", "4.00e-5", "verdicts"),
        "steps/1": ("0.75 ± 0.1", "pass@1 0.5", "Training that made it", "1 s"),
        f"nodes/{CHEAT.address}": ("Ejected: reject: weights", "0.000005"),
        f"nodes/{NODE.address}": (EVIL,),
        "disputes": ("before a jury",),
        "money": ("not compared with the chain yet",),
    }
    wrong = []
    for name, words in expected.items():
        seen.open(name)
        wrong += [f"{name}: lacks {one!r}" for one in words if one not in seen.text()]
    assert not wrong, "\n".join(wrong)
    assert seen.page.inner_text("#live") == "report"
    seen.open(f"nodes/{NODE.address}")
    assert escape(EVIL, quote=False) in seen.page.content()
    assert not seen.complaints


def test_a_report_holds_the_evidence_of_the_files_that_it_keeps(visit: Opening, tmp_path: Path) -> None:
    desk = serve_crowd(tmp_path, nodes=20, files=1100)
    state, evidence = desk.view.state, desk.app.state.evidence
    submission = submission_view(state, find_submission(state, 1, 0), desk.service.consumed())
    details = FileDetails(
        submissions=[submission], verdicts=[evidence.verdicts(state, 0)], rollouts=[evidence.rollouts(state, 0, 0)]
    )
    seen = opened(visit, report_page(documents(None, record(desk.service), details)), tmp_path)
    missing = {"pools", "difficulty", "files?status=rejected"}
    # nobody says in a report what it holds now
    for name, words in (PAGES | {"": "Policy step"}).items():
        if name not in missing and not name.startswith(("nodes/", "validators/")):
            seen.open(name)
            assert words.lower() in seen.text().lower(), name
    seen.open("disputes")
    assert "3 reject: weights, 1 accept" in seen.text()
    seen.open("files/0")
    assert "17 + 25 = 42" in seen.text()
    seen.open("files/5")
    assert "The report holds nothing of this name." in seen.text()
    assert not seen.complaints


def test_an_empty_run_still_gives_a_report(desk: Desk, visit: Opening, tmp_path: Path) -> None:
    empty = record(desk.service)
    summary = build_summary(empty, seed=1, seconds=0.0)
    seen = opened(visit, report_page(documents(summary, empty)), tmp_path)
    for name in (
        "",
        "training",
        "steps",
        "nodes",
        "files",
        "validators",
        "disputes",
        "money",
        "compare",
        "join",
        "steps/0",
    ):
        seen.open(name)
        assert not {"NaN", "Infinity", "undefined", "null"} & set(seen.text().replace("\n", " ").split(" ")), name
    seen.open("disputes")
    assert "Nobody was slashed" in seen.text()
    assert "No node was accused" in seen.text()
    assert not seen.complaints
