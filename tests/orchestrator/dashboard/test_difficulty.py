"""The page of difficulty, over solve rates counted from real files and the table of a published step."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.curriculum import MASK_FILE, SolveRate, build_mask
from storage.weights.manifest import ManifestScope
from storage.weights.publish import publish
from tests.dataset.curriculum_world import CONFIG
from tests.orchestrator.chain import OWNER
from tests.orchestrator.conftest import Desk
from tests.orchestrator.dashboard.conftest import Opening, served
from tests.orchestrator.dashboard.test_pages import findings
from tests.orchestrator.test_solve_rates import POOL, RatedRun, rates_of, settled


@pytest.fixture
def learning(desk: Desk, tmp_path: Path) -> RatedRun:
    """Twelve problems, of which two rest as too hard and one as too easy; two files are counted, one is not there."""
    run, folder = RatedRun(), tmp_path / "step"
    folder.mkdir()
    table = build_mask(CONFIG, 0, {0: {1: SolveRate(4, 0), 3: SolveRate(4, 4), 4: SolveRate(4, 0)}})
    (folder / MASK_FILE).write_bytes(table.encoded(CONFIG))
    made = publish(folder, run.bucket, ManifestScope(POOL, OWNER.address), 0, None, OWNER)
    for counter in range(3):
        lost = run.file(counter, 50)
    del run.bucket.objects[f"rollouts/{lost.sha256.hex()}.parquet"]
    run.step(100, made.digest)
    desk.service.rates = rates_of(run, desk.db)
    return run


@pytest.fixture
def base(desk: Desk, learning: RatedRun) -> Iterator[str]:
    settled(desk.service.rates)
    with served(desk.app) as url:
        yield url


def row(seen: Any) -> dict[str, str]:
    """The one environment's cells by their titles."""
    cells = seen.page.locator("tbody tr td")
    return {
        cells.nth(place).get_attribute("data-label"): cells.nth(place).inner_text() for place in range(cells.count())
    }


def test_it_shows_what_was_counted_and_what_rests(desk: Desk, base: str, visit: Opening) -> None:
    (entry,) = desk.service.rates.view().environments
    assert entry.solved[0]
    assert entry.solved[6]
    assert entry.solved[11]
    seen = visit(base)
    seen.open("difficulty")
    found = row(seen)
    assert (found["Problems"], found["Tried"]) == ("12", str(entry.tried))
    assert found["Masked, too hard"] == "2 (16.7%)"
    assert found["Masked, too easy"] == "1 (8.3%)"
    assert found["Masked in all"] == "3 (25%)"
    for title, place in (("Never solved", 0), ("Always solved", 11)):
        assert found[title].startswith(f"{entry.solved[place]} (")
    text = seen.text()
    assert "1 not read yet" in text
    assert "3 problems of 12 (25%) are masked: 2 too hard, 1 too easy." in text
    label = f"{entry.environment}: {entry.solved[6]} of {entry.tried} problems solved in 50% to 60%"
    width = seen.page.get_by_label(label).locator("i").evaluate("bar => parseFloat(bar.style.width)")
    assert width == pytest.approx(100 * entry.solved[6] / entry.tried, abs=1e-3)
    assert seen.page.locator("#nav [aria-current=page]").inner_text() == "Difficulty"
    assert not seen.complaints


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_both_widths_in_both_schemes(base: str, visit: Opening, width: int, scheme: str) -> None:
    seen = visit(base, width, scheme)
    seen.open("difficulty")
    assert seen.overflow <= 0
    assert findings(seen) == []
    assert not seen.complaints


def test_before_any_file_is_final_it_says_so(desk: Desk, visit: Opening) -> None:
    with served(desk.app) as url:
        seen = visit(url)
        seen.open("difficulty")
        assert "No problem was tried yet." in seen.text()
        assert "No curriculum: no problem is masked." in seen.text()
        assert not {"NaN", "undefined", "null"} & set(seen.text().split())
        assert not seen.complaints
