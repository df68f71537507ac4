"""Whatever strangers wrote, on every page: it stays text, and breaks neither page nor layout."""

import pytest

from tests.orchestrator.crowd import address
from tests.orchestrator.dashboard.conftest import NODE, PAGES, Opening


@pytest.mark.parametrize("width", [390, 1280])
def test_hostile_names_stay_text_on_every_page(hostile_url: str, visit: Opening, width: int) -> None:
    seen, wrong, shown = visit(hostile_url, width), [], 0
    for name in PAGES:
        seen.open(name.replace(NODE, address(1000)))
        inside = seen.page.evaluate(
            "document.querySelectorAll('main script, main img, header script, header img').length"
        )
        if inside or seen.page.title() == "owned":
            wrong.append(f"{name}: markup of a stranger was parsed")
        if seen.overflow > 0:
            wrong.append(f"{name}: {seen.overflow} px too wide")
        shown += "<script>" in seen.text() or "<img" in seen.text()
    assert not wrong, "\n".join(wrong)
    assert shown >= 4
    assert not seen.complaints


def test_no_link_leads_where_a_stranger_wants(hostile_url: str, url: str, visit: Opening) -> None:
    for base in (hostile_url, url):
        seen = visit(base).open("pools")
        targets = seen.page.eval_on_selector_all("a", "links => links.map(link => link.getAttribute('href'))")
        strange = [one for one in targets if not one.startswith("#") and one != "https://pool.example.org/"]
        assert strange == []
    assert "javascript:alert(1)" in seen.text()


@pytest.mark.parametrize(
    "name", ["%3Cscript%3E", "nodes/%E2%80%AE", "files/-1", "files/99999999", "steps/x", "nodes/0x12", "%"]
)
def test_addresses_that_nobody_has_say_so(url: str, visit: Opening, name: str) -> None:
    seen = visit(url).open(name)
    assert seen.page.inner_text("h1") in ("No such page", "Not found")
