"""The same pages as a report of a finished run, opened from a disk without any service."""

from html import escape
from pathlib import Path

from orchestrator.dashboard.documents import Snapshot, record
from orchestrator.dashboard.page import report_page
from orchestrator.dashboard.results import FileDetails, build_summary, documents
from orchestrator.dashboard.views import get_submission
from protocol.api.run import RunRecord
from tests.orchestrator.chain import CHEAT, NODE
from tests.orchestrator.conftest import EVIL, Desk
from tests.orchestrator.crowd import serve_crowd
from tests.orchestrator.dashboard.conftest import OPERATOR, PAGES, Opening, Visit
from tests.orchestrator.dashboard.test_pages import findings


def opened(visit: Opening, text: str, folder: Path) -> Visit:
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    return visit(path.as_uri())


def test_a_finished_run_is_read_from_a_file(finished: RunRecord, visit: Opening, tmp_path: Path) -> None:
    summary = build_summary(finished, seed=7, seconds=12.34, cheaters=[CHEAT.address])
    seen = opened(visit, report_page(documents(summary, finished)), tmp_path)
    expected = {
        "": ("Honest files rejected", "Rollouts trained", "reject: weights", "seed 7", "0.25 → 0.75", "0.125 s", "75%"),
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
    state, evidence = desk.view.state, desk.service.evidence
    judged = get_submission(Snapshot(desk.service), 0)
    again = [panel.model_copy(update={"number": panel.number + 1}) for panel in judged.panels]
    submission = judged.model_copy(update={"panels": [*judged.panels, *again]})
    details = FileDetails(
        submissions=[submission], verdicts=[evidence.verdicts(state, 0)], rollouts=[evidence.rollouts(state, 0, 0)]
    )
    seen = opened(visit, report_page(documents(None, record(desk.service), details)), tmp_path)
    missing = {"pools", "files?status=rejected"}
    # nobody says in a report what it holds now
    for name, words in (PAGES | {"": "Policy step", f"operators/{OPERATOR}": "4 in all"}).items():
        if name not in missing and not name.startswith(("nodes/", "validators/")):
            seen.open(name)
            assert words.lower() in seen.text().lower(), name
    seen.open("disputes")
    assert "3 reject: weights, 1 accept" in seen.text()
    seen.open("files/0")
    assert "17 + 25 = 42" in seen.text()
    assert not findings(seen)
    seen.open("files/5")
    assert "The report holds nothing of this name." in seen.text()
    assert not seen.complaints


def test_the_overview_shows_what_the_model_answers_and_reads_well_aloud(visit: Opening, tmp_path: Path) -> None:
    desk = serve_crowd(tmp_path, nodes=20, files=20)
    whole = record(desk.service)
    files = [
        file.model_copy(update={"status": "accepted", "step": file.sequence})
        for file in whole.submissions
        if file.sequence < 2
    ]
    told = desk.service.evidence.rollouts(desk.view.state, 0, 0)
    details = FileDetails(rollouts=[told, told.model_copy(update={"sequence": 1})])
    run = whole.model_copy(update={"submissions": files})
    seen = opened(visit, report_page(documents(None, run, details)), tmp_path).open("")
    card = seen.page.locator("section.card", has_text="What the model answers")
    card.get_by_text("What is 17 + 25?").nth(1).wait_for()
    assert "17 + 25 = 42" in card.inner_text()
    by_step = seen.page.locator("section.card", has_text="Files by policy step")
    assert "accepted 2" in by_step.inner_text(), "one of each step"
    assert "Waiting for" not in seen.text(), "the run is over"
    assert not findings(seen)
    assert not seen.complaints


def test_an_empty_run_still_gives_a_report(desk: Desk, visit: Opening, tmp_path: Path) -> None:
    empty = record(desk.service)
    summary = build_summary(empty, seed=1, seconds=0.0)
    seen = opened(visit, report_page(documents(summary, empty)), tmp_path)
    for name in (*(page for page in PAGES if page.isalpha() and page != "pools"), "", "steps/0"):
        seen.open(name)
        assert not {"NaN", "Infinity", "undefined", "null"} & set(seen.text().replace("\n", " ").split(" ")), name
    seen.open("disputes")
    assert "Nobody was slashed" in seen.text()
    assert "No node was accused" in seen.text()
    assert not seen.complaints
