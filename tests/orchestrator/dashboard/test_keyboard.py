"""The dashboard with a keyboard alone, and its colours by preference and by choice."""

from tests.orchestrator.dashboard.conftest import Opening, Visit


def focused(seen: Visit) -> str:
    """What has the focus, in words."""
    said = seen.page.evaluate(
        "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent).trim().slice(0, 60)"
    )
    return str(said)


def test_the_first_tab_skips_to_the_content(url: str, visit: Opening) -> None:
    seen = visit(url).open("")
    seen.page.keyboard.press("Tab")
    assert focused(seen) == "Skip to content"
    seen.page.keyboard.press("Enter")
    assert seen.page.evaluate("document.activeElement.id") == "main"


def test_every_page_is_reached_and_announced_without_a_mouse(url: str, visit: Opening) -> None:
    seen = visit(url).open("")
    names = seen.page.locator("#nav a").all_inner_texts()
    assert len(names) == 11
    for place, name in enumerate(names):
        seen.page.locator("#theme").focus()
        for _ in range(place + 1):
            seen.page.keyboard.press("Tab")
        assert focused(seen) == name
        if place:
            seen.page.keyboard.press("Enter")
            seen.page.wait_for_function("() => document.activeElement.tagName === 'H1'")
            seen.settled()
        assert seen.page.locator("#nav [aria-current=page]").inner_text() == name


def test_a_search_is_typed_and_opened_with_the_keyboard(url: str, visit: Opening) -> None:
    seen = visit(url).open("")
    seen.page.focus("#query")
    seen.page.keyboard.type("17")
    seen.page.keyboard.press("Enter")
    seen.settled("**/#/search?q=17")
    seen.page.keyboard.press("Tab")
    seen.page.keyboard.press("Enter")
    seen.settled("**/#/files/17")
    assert "17" in seen.page.locator("h1").inner_text()


def test_tables_and_figures_of_charts_can_be_scrolled_and_read_without_a_mouse(url: str, visit: Opening) -> None:
    seen = visit(url).open("training")
    seen.page.locator("run-chart summary").first.focus()
    seen.page.keyboard.press("Enter")
    table = seen.page.locator("run-chart details[open] table").first
    assert "trained on" in table.inner_text()
    assert seen.page.locator("run-chart [role=img]").first.get_attribute("aria-label") is not None
    seen.open("nodes")
    assert seen.page.locator(".scroll[tabindex='0']").count() == 1


def background(seen: Visit) -> str:
    return str(seen.page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_colours_follow_the_system_until_the_reader_chooses(url: str, visit: Opening) -> None:
    light, dark = visit(url, scheme="light"), visit(url, scheme="dark")
    light.open("")
    dark.open("")
    shades = background(light), background(dark)
    assert shades[0] != shades[1]
    dark.page.focus("#theme")
    dark.page.keyboard.press("Enter")
    assert background(dark) == shades[0]
    dark.page.reload()
    dark.settled()
    assert background(dark) == shades[0]
    assert dark.page.locator("#theme").get_attribute("aria-label") == "Colours: light. Change to dark"
