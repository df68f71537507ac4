"""Summary and report of a run made by hand: right figures, self-contained, nothing a stranger wrote is markup."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from orchestrator.plots import Bar, Series, curves, stacks, timeline
from orchestrator.report import build_report, tokens
from orchestrator.status import record
from orchestrator.summary import build_summary
from protocol.verdict import Code
from tests.orchestrator.chain import CHEAT, NODE, OWNER, VOTER
from tests.orchestrator.conftest import Desk

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


@pytest.fixture
def run(desk: Desk) -> dict[str, Any]:
    """Two steps trained, one file of the cheater rejected and slashed, one honest file pending."""
    chain = desk.chain
    files = [chain.submit(NODE, n, units=50) for n in range(2)]
    bad = chain.submit(CHEAT, 0, units=70)
    for sequence in files:
        chain.settle(NODE, sequence, Code.ACCEPT, 50)
    chain.settle(CHEAT, bad, Code.REJECT_WEIGHTS, 70)
    chain.finalize(CHEAT, bad, Code.REJECT_WEIGHTS, 5000, 3003)
    chain.publish(1)
    chain.submit(NODE, 2, step=1, units=60)
    chain.fee(VOTER, 500, 1)
    chain.emit("Appeals", "Disputed", pool=1, sequence=bad, disputer=CHEAT.address, trial=1, deposit=9)
    desk.follow()
    desk.post(NODE, "/v1/heartbeats", {"role": "worker", "name": EVIL, "engine": EVIL})
    desk.post(OWNER, "/v1/steps", {"step": 0, "heldout": 0.25})
    timings = {"wait": 3.0, "train": 1.0}
    report = {"step": 1, "consumed": files, "metrics": {"reward": 0.5}, "timings": timings, "heldout": 0.75}
    assert desk.post(OWNER, "/v1/steps", report).status_code == 200
    return record(desk.service).model_dump(mode="json")


def test_the_summary_has_the_figures(run: dict[str, Any]) -> None:
    summary = build_summary(run, seed=7, seconds=12.34, cheaters=[CHEAT.address])
    json.dumps(summary, allow_nan=False)
    assert summary["cheaters"] == [
        {
            "address": CHEAT.address,
            "slashed": True,
            "slashed_grains": "5000",
            "ejected": True,
            "reason": "reject: weights",
            "rollouts_trained": 0,
            "submissions": 1,
        }
    ]
    assert summary["submissions"] == {"accepted": 2, "rejected": 1, "pending": 1, "total": 4}
    assert summary["accepted_untrained"] == 0
    unused = [{**one, "trained": None} for one in run["submissions"]]
    assert build_summary({**run, "submissions": unused}, seed=7, seconds=1)["accepted_untrained"] == 2
    measurements = {
        "seed": 7,
        "seconds": 12.3,
        "steps": 1,
        "reward_first": 0.25,
        "reward_last": 0.75,
        "rewards": [0.5],
        "honest_rejected": 0,
        "tokens_verified": 100,
        "trainer_idle_share": 0.75,
        "ledger_matches_chain": False,
        "escrow_balanced": False,
        "trained_then_rejected": [],
    }
    assert {key: summary[key] for key in measurements} == measurements
    assert build_summary(run, seed=7, seconds=1, cheaters=[])["honest_rejected"] == 1


def test_books_count_as_confirmed_only_when_current(run: dict[str, Any]) -> None:
    audit = {"block": 1, "ledger_matches_chain": True, "escrow_balanced": True, "findings": [], "current": True}
    assert build_summary({**run, "audit": audit}, seed=1, seconds=1)["ledger_matches_chain"] is True
    stale = {**audit, "current": False}
    assert build_summary({**run, "audit": stale}, seed=1, seconds=1)["escrow_balanced"] is False


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_the_report_is_self_contained_and_escaped(run: dict[str, Any], tmp_path: Path) -> None:
    summary = build_summary(run, seed=7, seconds=12.34, cheaters=[CHEAT.address])
    text = build_report(summary, run)
    (tmp_path / "report.html").write_text(text)
    tags = Tags()
    tags.feed(text)
    names = {tag for tag, _ in tags.seen}
    assert not names & {"script", "img", "link", "iframe", "object", "form"}
    assert not any(key.startswith("on") or key in ("src", "href") for _, attrs in tags.seen for key in attrs)
    assert re.search(r"url\(|@import|https?://", text) is None
    for words in (
        "reject: weights",
        "Disputes and canaries",
        "before a jury",
        "0.250 → 0.750",
        "honest files rejected",
    ):
        assert words in text
    assert "&lt;script&gt;" in text


def test_an_empty_run_still_gives_a_report(desk: Desk) -> None:
    empty = record(desk.service).model_dump(mode="json")
    text = build_report(build_summary(empty, seed=1, seconds=0.0), empty)
    assert "Nobody was slashed" in text


def test_plots_survive_degenerate_input() -> None:
    for drawing in (
        curves([], 0),
        curves([Series("a", "blue", [(0, 0.0)])], 0),
        curves([Series("a", "blue", [(0, -3.0), (1, 8.0)])], 1),
        stacks([], {}),
        stacks([("0", {})], {"accepted": "green"}),
        timeline([], [], {}),
        timeline(["0"], [Bar(0, "blue", 0.0, 0.0, "x")], {"a": "blue"}),
    ):
        assert "nan" not in drawing
        assert drawing.startswith("<svg")


def test_tokens_are_exact() -> None:
    assert tokens("123456789012345678901") == "123,456,789,012.345678901"
    assert tokens(-1) == "−0.000000001"
    assert tokens(0) == "0"
