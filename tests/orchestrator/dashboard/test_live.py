"""What changes while one looks, and what the dashboard says when it cannot know."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from chain.indexer.records import ChallengeOutcome
from orchestrator.db import HeartbeatRow
from orchestrator.heartbeats import KEY_SHARED
from protocol.api.run import Reconciliation
from tests.orchestrator.conftest import Desk
from tests.orchestrator.crowd import Still, address, serve_crowd
from tests.orchestrator.dashboard.conftest import Opening, served


@pytest.fixture
def run(tmp_path: Path) -> Desk:
    return serve_crowd(tmp_path, nodes=20, files=1100)


@pytest.fixture
def base(run: Desk) -> Iterator[str]:
    with served(run.app) as url:
        yield url


def advance(run: Desk, head: int) -> None:
    state = replace(run.view.state, head=head, version=run.view.state.version + 1)
    run.view.projection = Still(state)


def test_a_change_is_shown_at_once_and_takes_nothing_from_the_reader(run: Desk, base: str, visit: Opening) -> None:
    seen = visit(base).open("")
    seen.page.locator("run-chart summary").first.click()
    seen.page.get_by_role("link", name="All nodes").focus()
    seen.page.evaluate("document.querySelector('.plot canvas').dataset.mine = 'yes'")
    advance(run, 4321)
    seen.page.get_by_text("block 4,321").wait_for()
    assert seen.page.evaluate("document.activeElement.textContent") == "All nodes"
    assert seen.page.locator("run-chart details[open]").count() == 1
    assert seen.page.locator("canvas[data-mine=yes]").count() == 1
    assert seen.page.inner_text("#live") == "live"


def test_a_challenge_is_shown_when_it_is_opened_and_when_it_is_decided(run: Desk, base: str, visit: Opening) -> None:
    seen = visit(base).open("disputes")
    row = seen.page.locator("section.card", has_text="Node challenges").locator("tbody tr").first
    assert "jury not drawn" in row.inner_text()
    run.view.state.challenges[4] = replace(run.view.state.challenges[3], challenge=4)
    advance(run, 4321)
    row.get_by_role("cell", name="4", exact=True).wait_for()
    run.view.state.challenges[4].outcome = ChallengeOutcome.LAPSED
    advance(run, 4322)
    row.get_by_text("lapsed").wait_for()
    assert not seen.complaints


def test_one_of_a_kind_is_told_in_the_singular_and_a_shared_key_on_its_nodes_page(
    run: Desk, base: str, visit: Opening
) -> None:
    owner = run.view.state.seats[0].owner
    del run.view.state.seats[1]
    assert re.search(r"\b1 seat\b", visit(base).open(f"validators/{owner}").text())
    node = HeartbeatRow(
        address=address(1001), last_seen=run.now, body=json.dumps({"role": "worker", "shared": run.now})
    )
    with run.db.session() as session:
        session.merge(node)
    assert KEY_SHARED in visit(base).open(f"nodes/{address(1001)}").text()


def test_a_service_that_takes_requests_and_never_answers_is_offline(base: str, visit: Opening) -> None:
    seen = visit(base)
    seen.page.add_init_script(
        "const limit = AbortSignal.timeout; AbortSignal.timeout = ms => limit.call(AbortSignal, ms / 20)"
    )
    seen.open("").page.route("**/v1/overview", lambda route: None)
    seen.page.get_by_text("does not answer").wait_for()
    assert seen.page.inner_text("#live") == "offline"


def test_without_a_stream_the_page_asks_again_and_again(run: Desk, base: str, visit: Opening) -> None:
    seen = visit(base)
    seen.page.route("**/v1/events", lambda route: route.abort())
    seen.open("")
    advance(run, 4321)
    seen.page.get_by_text("block 4,321").wait_for()
    assert seen.page.get_by_text("block 4,321").is_visible()


DIFFERENT = Reconciliation(
    block=5, ledger_matches_chain=False, escrow_balanced=True, findings=["balance of 0xab: 5 on chain, 6 by the ledger"]
)


def test_a_chain_that_does_not_answer_is_lag_and_never_fraud(run: Desk, base: str, visit: Opening) -> None:
    run.service.chain_watcher = SimpleNamespace(reconciliation=DIFFERENT, current=False)  # type: ignore[assignment]
    run.view.error = "the chain does not answer"
    assert run.view.heard is not None
    run.view.heard -= 120
    seen = visit(base)
    for name in ("", "money"):
        seen.open(name)
        assert seen.page.inner_text("#live") == "chain not followed"
        assert "cannot follow the chain, since 2 min: the chain does not answer" in seen.page.inner_text("#notice")
        assert "nothing about anyone's honesty" in seen.page.inner_text("#notice")
        assert "being compared again" in seen.text()
        assert "differs" not in seen.text()
        assert seen.page.locator(".bad", has_text="chain").count() == 0


def test_a_chain_without_new_blocks_is_not_called_live(run: Desk, base: str, visit: Opening) -> None:
    assert run.view.moved is not None
    run.view.moved -= 300
    seen = visit(base).open("")
    assert seen.page.inner_text("#live") == "chain stands still"
    assert "no new block for 5 min" in seen.page.inner_text("#notice")


def test_a_difference_that_stands_is_said_with_its_figures(run: Desk, base: str, visit: Opening) -> None:
    run.service.chain_watcher = SimpleNamespace(reconciliation=DIFFERENT, current=True)  # type: ignore[assignment]
    seen = visit(base).open("money")
    assert "differs from the chain at block 5" in seen.text()
    assert "balance of 0xab: 5 on chain, 6 by the ledger" in seen.text()
    assert seen.page.inner_text("#live") == "live"


def test_a_service_that_is_gone_leaves_what_was_there_and_says_so(run: Desk, visit: Opening) -> None:
    seen = visit("")
    with served(run.app) as url:
        seen.base = url
        seen.open("")
    seen.page.get_by_text("offline").wait_for()
    assert "The pool's service does not answer" in seen.page.inner_text("#notice")
    assert "Reward by policy step" in seen.text()
