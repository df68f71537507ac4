"""Every page, as a person sees it: at both widths, in both schemes, without a finding of an accessibility checker."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chain.indexer.records import Status
from tests.orchestrator.conftest import Desk
from tests.orchestrator.crowd import address, serve_crowd
from tests.orchestrator.dashboard.conftest import NODE, PAGES, Opening, Visit, served

AXE = Path(__file__).parents[3] / "node_modules" / "axe-core" / "axe.min.js"

MODES = [
    pytest.param(1280, "light"),
    pytest.param(390, "dark"),
    pytest.param(1280, "dark", marks=pytest.mark.slow),
    pytest.param(390, "light", marks=pytest.mark.slow),
]


def findings(seen: Visit) -> list[str]:
    """What axe-core has to say against the page."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `make setup`")
    seen.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = seen.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {json.dumps([node['target'] for node in one['nodes']][:3])}"
        for one in found["violations"]
    ]


@pytest.mark.parametrize(("width", "scheme"), MODES)
def test_every_page_shows_its_data_fits_the_window_and_is_accessible(
    url: str, visit: Opening, width: int, scheme: str
) -> None:
    seen, wrong = visit(url, width, scheme), []
    for name, words in PAGES.items():
        seen.open(name)
        if words.lower() not in seen.text().lower():
            wrong.append(f"{name}: lacks {words!r}")
        if seen.overflow > 0:
            wrong.append(f"{name}: {seen.overflow} px too wide")
        if seen.page.evaluate(
            "document.getElementById('nav').scrollWidth > document.getElementById('nav').clientWidth"
        ):
            wrong.append(f"{name}: a part of the navigation is out of sight")
        wrong += [f"{name}: {finding}" for finding in findings(seen)]
    assert not wrong, "\n".join(wrong)
    assert not seen.complaints


def test_a_file_shows_figures_against_thresholds_votes_prompts_and_completions(url: str, visit: Opening) -> None:
    seen = visit(url).open("files/0")
    text = seen.text()
    for words in ("0.0071 of 0.012", "every proof agrees", "17 + 25 = 42", "What is 17 + 25?", "Committee"):
        assert words in text
    assert "mantissa mean" in text
    bar = seen.page.get_by_label("mantissa mean: 0.0071, threshold 0.012").first
    assert bar.locator("i").evaluate("bar => bar.style.width") == "59.1667%"


def test_links_lead_from_the_map_of_nodes_to_a_node_to_its_files_to_its_validators(url: str, visit: Opening) -> None:
    seen = visit(url).open("")
    seen.page.locator("node-map svg").click(position={"x": 4, "y": 4})
    seen.settled("**/#/nodes/0x*")
    seen.page.locator("td a[href^='#/files/']").first.click()
    seen.settled("**/#/files/*")
    seen.page.locator("a[href^='#/validators/']").first.click()
    seen.settled("**/#/validators/0x*")
    assert "Newest votes" in seen.text()


def test_a_challenge_leads_to_the_accused_and_to_its_files(url: str, visit: Opening) -> None:
    seen = visit(url).open("disputes")
    card = seen.page.locator("section.card", has_text="Node challenges")
    rows = [one.inner_text() for one in card.locator("tbody tr").all()]
    assert len(rows) == 3
    assert "jury not drawn" in rows[0]
    assert "4 of 5 voted, none opened" in rows[1]
    assert all(words in rows[2] for words in ("upheld", "reject: weights", "3 reject: weights, 1 accept", "5"))
    links = card.locator("tbody tr").nth(1).locator("a")
    assert [one.inner_text()[0] for one in links.all()] == ["0", "#", "#"]
    links.last.click()
    seen.settled("**/#/files/*")
    seen.page.go_back()
    seen.settled()
    links.first.click()
    seen.page.wait_for_url("**/#/nodes/0x*")
    assert not seen.complaints


def test_a_command_to_join_is_copied_with_the_address_of_this_pool(url: str, visit: Opening) -> None:
    seen = visit(url).open("join")
    seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    seen.page.get_by_label("Copy: muster node up").click()
    seen.page.get_by_text("Copied").wait_for()
    assert seen.page.evaluate("navigator.clipboard.readText()") == f"muster node up --pool {url.rstrip('/')}"
    assert not seen.complaints


def pool_of_two_days(tmp_path: Path, share: int = 1) -> Desk:
    """A pool of a day and a half, most of whose files are accepted; `share`: of the deposits that a day spends."""
    desk = serve_crowd(tmp_path, nodes=8, files=400)
    state, pool = desk.view.state, desk.view.state.pools[1]
    for sub in state.submissions.values():
        sub.time = int(desk.now) - 130_000 + 300 * sub.sequence
        sub.decided_time, sub.committees = sub.decided_time and sub.time + 20, 1
    pool.terms = replace(pool.terms, rate=10**6)
    pool.claimed, pool.fees_paid, pool.from_stakes = 100 * 10**9, 3 * 10**9, 10**9
    day = sum(sub.units for sub in state.submissions.values() if sub.decided_time > desk.now - 86_400)
    pool.funded = day * pool.terms.rate * share
    return desk


def test_one_picture_shows_where_a_pools_money_goes_and_when_it_ends(tmp_path: Path, visit: Opening) -> None:
    desk = pool_of_two_days(tmp_path, share=10)
    with served(desk.app) as base:
        seen = visit(base).open("money")
        overview, text = desk.get("overview"), seen.text()
        bar = seen.page.get_by_role("img", name="Deposits: ").first
        assert "Paid to nodes 100, Earned by nodes, not claimed" in (bar.get_attribute("aria-label") or "")
        widths = bar.locator("i").evaluate_all("parts => parts.map(part => part.getBoundingClientRect().width)")
        assert sum(widths) == pytest.approx(bar.bounding_box()["width"], abs=8)  # type: ignore[index]
        taken = int(overview["slashed"]) / 1e9
        assert f"{taken:g} tokens of stakes and bonds; 1 of them came back to the pool" in text
        free, today = int(overview["escrow"]["free"]), overview["today"]
        spent = today["tokens"] * 10**6 + today["files"] * int(overview["terms"]["fee"]) * 3
        end = datetime.fromtimestamp(desk.now + 86_400 * free / spent, UTC)
        assert f"about {end:%Y-%m-%d}, if pay and fees go on as in the last 24 h" in text
        assert not seen.complaints


def test_an_operators_page_has_pay_by_day_dates_and_a_forecast_with_its_reason(tmp_path: Path, visit: Opening) -> None:
    desk = pool_of_two_days(tmp_path)
    state, operator = desk.view.state, address(5000)
    files = [sub for sub in state.submissions.values() if state.accounts[1, sub.node].operator == operator]
    lately = [sub for sub in files if sub.decided_time > desk.now - 6 * 3600]
    tokens = sum(sub.units for sub in lately if sub.status is Status.ACCEPTED)
    for sub in files:
        sub.final_time = sub.decided_time and sub.decided_time + 100_000
    leaving = state.nodes[address(1000)]
    leaving.pool, leaving.release_at = 0, int(desk.now) + 7200
    with served(desk.app) as base:
        seen = visit(base, 390).open(f"nodes/{address(1001)}")
        seen.page.get_by_role("link", name=operator).click()
        seen.settled(f"**/#/operators/{operator}")
        text = seen.text()
        assert f"≈ {float(f'{tokens * 4 / 1000:.3g}'):g} tokens" in text
        assert f"{len(lately)} files with {tokens:,} accepted output tokens" in text
        assert "If every day goes like the last 6 h" in text
        assert f"{datetime.fromtimestamp(leaving.release_at, UTC):%Y-%m-%d %H:%M} UTC (in 2 h)" in text
        seen.page.locator("run-chart summary").click()
        rows = seen.page.locator("run-chart tbody tr")
        days = sorted({f"{datetime.fromtimestamp(sub.decided_time, UTC):%Y-%m-%d}" for sub in files if sub.is_paid})
        assert [row.split()[0] for row in rows.all_inner_texts()] == days
        assert not seen.complaints
        assert seen.overflow <= 0


def test_a_name_is_typed_and_its_node_opened(url: str, visit: Opening) -> None:
    seen = visit(url).open("")
    seen.page.fill("#query", "RIG-0017")
    seen.page.keyboard.press("Enter")
    seen.page.get_by_role("link", name="rig-0017").click()
    seen.settled(f"**/#/nodes/{address(1017)}")
    assert "rig-0017" in seen.page.inner_text("h1")


BLUE = """() => {
  const canvas = document.querySelector("run-chart canvas"), {width, height} = canvas;
  const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  return pixels.filter((value, i) => i % 4 === 2 && value > 150 && pixels[i - 2] < 100).length
}"""


def test_a_held_out_reward_that_was_measured_once_is_drawn(url: str, visit: Opening) -> None:
    assert visit(url).open("compare").page.evaluate(BLUE) > 0


def test_a_page_asks_for_each_document_once(url: str, visit: Opening) -> None:
    """The overview is wanted by its own page and by every page's frame."""
    seen, asked = visit(url), list[str]()
    seen.page.on("request", lambda request: asked.append(request.url.partition("/v1/")[2]))
    seen.open("training").page.wait_for_load_state("networkidle")
    asked.clear()
    seen.open("")
    assert asked.count("overview") == 1


DRAWN = """values => {
  const Library = uPlot;
  globalThis.uPlot = class extends Library { constructor(...all) { super(...all); globalThis.plot = this; } };
  const chart = document.createElement("run-chart");
  const series = [{label: "KL", tone: "good", values}];
  chart.spec = {title: "KL", steps: values.map((_, i) => i), series, zero: false};
  document.getElementById("main").append(chart);
  globalThis.uPlot = Library;
  return new Promise(done => requestAnimationFrame(() => done([plot.scales.y.min, plot.scales.y.max])));
}"""


@pytest.mark.parametrize(("outlier", "drawn"), [(0.03, True), (1000.0, False), (-1000.0, False)])
def test_one_value_far_out_does_not_flatten_a_chart(url: str, visit: Opening, outlier: float, drawn: bool) -> None:
    values = [0.01 + 0.0001 * number for number in range(98)] + [outlier]
    low, high = visit(url).open("training").page.evaluate(DRAWN, values)
    assert low < 0.01 < 0.0197 < high, "the others are all drawn"
    assert (low < outlier < high) == drawn
    assert high - low < 0.03


def test_lists_are_paged_by_the_service(url: str, visit: Opening) -> None:
    seen = visit(url).open("files")
    first = seen.page.locator("tbody tr").first.inner_text()
    assert seen.page.locator("tbody tr").count() == 25
    seen.page.get_by_role("link", name="Next page").click()
    seen.settled("**after=*")
    assert seen.page.locator("tbody tr").first.inner_text() != first
    seen.page.get_by_role("link", name="First page").click()
    seen.page.wait_for_function("() => !location.hash.includes('after')")
    seen.settled()
    assert seen.page.locator("tbody tr").first.inner_text() == first


def test_runs_can_be_compared_with_one_saved_before(url: str, visit: Opening) -> None:
    history = {"steps": [0, 1], "columns": {"time": [0, 60], "reward": [None, 0.25], "heldout/a": [0.125, 0.5]}}
    saved = {"name": "<b>old</b>", "history": history}
    seen = visit(url).open("compare")
    files = [
        {"name": "old.json", "mimeType": "application/json", "buffer": json.dumps(saved).encode()},
        {"name": "bad.json", "mimeType": "application/json", "buffer": b'{"steps": "no"}'},
    ]
    seen.page.set_input_files("#runs", files)  # type: ignore[arg-type]
    seen.page.get_by_role("alert").wait_for()
    assert "bad.json is neither a run's record nor a saved history" in seen.text()
    assert "<b>old</b>" in seen.text()
    assert "0.125" in seen.text()
    assert not seen.complaints


# Whatever strangers wrote: it stays text, and breaks neither page nor layout.


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
        if seen.page.evaluate(
            "document.getElementById('nav').scrollWidth > document.getElementById('nav').clientWidth"
        ):
            wrong.append(f"{name}: a part of the navigation is out of sight")
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


# The first sight of a large run.


LOADS = 3
MEASURE = """() => {
  const loaded = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  return {bytes: loaded.reduce((sum, one) => sum + one.transferSize, 0),
    paint: performance.getEntriesByName("first-contentful-paint")[0].startTime}
}"""


@pytest.mark.slow
def test_the_first_paint_takes_less_than_a_second_and_half_a_megabyte(tmp_path: Path, visit: Opening) -> None:
    desk = serve_crowd(tmp_path, nodes=1000, files=100_000)
    measured = []
    with served(desk.app) as url:
        for _ in range(LOADS):
            seen = visit(url).open("")
            assert "99 of 200" in seen.text()
            measured.append(seen.page.evaluate(MEASURE))
    print(measured)
    assert max(one["bytes"] for one in measured) < 500_000
    # Other programs on the machine delay some loads; the page itself delays all.
    assert min(one["paint"] for one in measured) < 1000
