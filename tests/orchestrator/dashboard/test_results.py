"""Summary and report of a run made by hand: right figures, self-contained, nothing a stranger wrote is markup."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from orchestrator.dashboard.page import report_page, script
from orchestrator.dashboard.results import build_summary, documents, notable
from protocol.api.run import ReconciliationEntry, RunRecord
from tests.cli.muster import Muster
from tests.orchestrator.chain import CHEAT


class Tags(HTMLParser):
    """The tags of a document with their attributes, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() and self.seen[-1][0] == "script" and data.strip():
            self.scripts.append(data)

    @property
    def names(self) -> set[str]:
        return {tag for tag, _ in self.seen}


def test_the_summary_has_the_measurements(finished: RunRecord) -> None:
    built = build_summary(finished, seed=7, seconds=12.34, cheaters=[CHEAT.address])
    summary = json.loads(built.model_dump_json())
    json.dumps(summary, allow_nan=False)
    assert summary["cheaters"] == [
        {
            "address": CHEAT.address,
            "slashed": True,
            "slashed_base_units": "5000",
            "ejected": True,
            "reason": "reject: weights",
            "rollouts_trained": 0,
            "submissions": 1,
        }
    ]
    assert summary["submissions"] == {"accepted": 2, "rejected": 1, "pending": 1, "total": 4}
    assert summary["accepted_untrained"] == 0
    unused = [one.model_copy(update={"trained": None}) for one in finished.submissions]
    assert build_summary(finished.model_copy(update={"submissions": unused}), seed=7, seconds=1).accepted_untrained == 2
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
        "trainer_idle_running": None,
        "trainer_idle_seconds": {"judging": 3.0},
        "ledger_matches_chain": False,
        "escrow_balanced": False,
        "trained_then_rejected": [],
    }
    assert {key: summary[key] for key in measurements} == measurements
    assert build_summary(finished, seed=7, seconds=1, cheaters=[]).honest_rejected == 1
    unopened = build_summary(finished, seed=7, seconds=1, decoys=[CHEAT.address])
    assert unopened.honest_rejected == 0, "an unopened canary is no honest file"


def test_the_ledger_counts_as_confirmed_only_when_current(finished: RunRecord) -> None:
    found = ReconciliationEntry(block=1, ledger_matches_chain=True, escrow_balanced=True, findings=[], current=True)
    confirmed = finished.model_copy(update={"reconciliation": found})
    assert build_summary(confirmed, seed=1, seconds=1).ledger_matches_chain is True
    stale = finished.model_copy(update={"reconciliation": found.model_copy(update={"current": False})})
    assert build_summary(stale, seed=1, seconds=1).escrow_balanced is False


def test_the_report_is_self_contained_and_its_policy_names_its_own_script_and_style_only(finished: RunRecord) -> None:
    text = report_page(documents(build_summary(finished, seed=7, seconds=12.34, cheaters=[CHEAT.address]), finished))
    document = Tags(text)
    assert not document.names & {"img", "link", "iframe", "object"}
    assert len(document.scripts) == 3
    assert not any(key.startswith("on") or key == "src" for _, attrs in document.seen for key in attrs)
    assert all((attrs.get("href") or "#").startswith("#") for _, attrs in document.seen)
    # The library's comment names where it comes from.
    assert re.search(r"url\(|@import|https?://", text.replace("https://github.com/leeoniya/uPlot", "")) is None
    policy = next(attrs["content"] for tag, attrs in document.seen if attrs.get("http-equiv"))
    style = text.split("<style>")[1].split("</style>")[0]
    parts = (*document.scripts[1:], style)
    library, module, sheet = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{library}' 'sha256-{module}'; style-src 'sha256-{sheet}'; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", "<!--<script>", "\u2028\u2029", "\ud800", "]]>&lt;"]
)
def test_no_name_ends_the_script_that_embeds_it(finished: RunRecord, name: str) -> None:
    text = report_page(
        documents(build_summary(finished, seed=7, seconds=1), finished.model_copy(update={"name": name}))
    )
    data, _library, module = Tags(text).scripts
    assert json.loads(data)["record"]["name"] == name
    assert module == script()
    assert data.isascii()


def test_a_finished_run_can_be_drawn_again_from_its_folder(finished: RunRecord, tmp_path: Path) -> None:
    summary = build_summary(finished, seed=7, seconds=12.34, cheaters=[CHEAT.address])
    (tmp_path / "summary.json").write_text(summary.model_dump_json(indent=2))
    (tmp_path / "record.json").write_text(finished.model_dump_json(indent=1))
    muster, page = Muster(tmp_path), tmp_path / "again.html"
    assert muster.ok("pool", "report", "--run", tmp_path, "--out", page, "--json").json["step"] == 1
    assert page.read_text() == report_page(documents(summary, finished))
    assert "no run is named" in muster.refused("pool", "report", "--out", page)
    assert "summary.json" in muster.refused("pool", "report", "--run", tmp_path / "none", "--out", page)
    (tmp_path / "record.json").write_text('{"name": 3}')
    assert "use the version of muster that wrote it" in muster.refused("pool", "report", "--run", tmp_path)


def test_a_report_keeps_what_the_overview_shows_then_what_went_wrong_then_the_newest(finished: RunRecord) -> None:
    kinds = ("accepted", "accepted", "rejected", "accepted", "accepted", "pending")
    files = [
        finished.submissions[0].model_copy(
            update={"sequence": n, "step": max(0, n - 1), "status": kind, "disputed": n == 3}
        )
        for n, kind in enumerate(kinds)
    ]
    record = finished.model_copy(update={"submissions": files})
    assert notable(record) == [4, 1, 5, 3, 2, 0]
    assert notable(record, most=3) == [4, 1, 5]
    assert notable(finished.model_copy(update={"submissions": []})) == []
