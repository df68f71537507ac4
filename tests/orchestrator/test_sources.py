"""Relays that announce themselves, and what a hostile announcer cannot do."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from orchestrator import sources
from orchestrator.sources import AnnouncedSources
from protocol.accounts import LocalAccount
from protocol.api.endpoints import ANNOUNCEMENT
from protocol.api.work import Announcement, announce
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.identity import PoolId
from tests.orchestrator.chain import CHEAT, NODE, STRANGER
from tests.orchestrator.conftest import POOL, Desk, is_error
from tests.storage.mirror import drip_headers, mirror, redirect_to, send


class Announcer:
    """A server that serves `said` as its announcement."""

    def __init__(self) -> None:
        self.said = b""
        self.asked: list[str] = []

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(handler.path)
        send(handler, 200, self.said)


@pytest.fixture
def relay(desk: Desk) -> Iterator[tuple[Announcer, str]]:
    desk.service.sources = AnnouncedSources(POOL, True, lambda: desk.now)
    announcer = Announcer()
    with mirror(announcer) as url:
        yield announcer, url


def signed(desk: Desk, key: LocalAccount, url: str, seconds: int = 600, pool: PoolId = POOL) -> dict[str, Any]:
    return announce(key, pool, url, int(desk.now) + seconds).model_dump(mode="json")


def listed(desk: Desk) -> list[str]:
    return [one["url"] for one in desk.http.get("/v1/sources").json()["sources"]]


def test_a_relay_is_listed_as_long_as_it_said(desk: Desk, relay: tuple[Announcer, str]) -> None:
    server, url = relay
    said = signed(desk, NODE, url)
    server.said = canonical_json(said)
    assert desk.post(NODE, "/v1/sources", said).json() == {"next": 120.0}
    assert server.asked == [ANNOUNCEMENT]
    (shown,) = desk.http.get("/v1/sources").json()["sources"]
    Announcement.model_validate(shown).check(POOL, desk.now)
    desk.now += 601
    assert listed(desk) == []


@pytest.mark.parametrize(("processes", "seconds"), [(2, 60.0), (4, 30.0), (64, 10.0)])
def test_where_several_processes_have_each_a_list_it_is_announced_to_more_of_them(
    desk: Desk, relay: tuple[Announcer, str], processes: int, seconds: float
) -> None:
    desk.service.sources = AnnouncedSources(POOL, True, lambda: desk.now, processes)
    server, url = relay
    said = signed(desk, NODE, url)
    server.said = canonical_json(said)

    assert desk.post(NODE, "/v1/sources", said).json() == {"next": seconds}


def test_a_machine_that_did_not_ask_for_it_is_not_listed(desk: Desk, relay: tuple[Announcer, str]) -> None:
    server, url = relay
    hint = "does not answer with the announcement"
    assert is_error(desk.post(NODE, "/v1/sources", signed(desk, NODE, url)), 400, hint)
    desk.now += 11
    server.said = canonical_json(signed(desk, CHEAT, url))
    assert is_error(desk.post(NODE, "/v1/sources", signed(desk, NODE, url)), 400, hint)
    desk.now += 11
    said = signed(desk, NODE, url)
    with mirror(redirect_to(url + ANNOUNCEMENT)) as elsewhere:
        server.said = canonical_json(signed(desk, NODE, elsewhere))
        assert is_error(desk.post(NODE, "/v1/sources", signed(desk, NODE, elsewhere)), 400, hint)
    desk.now += 11
    desk.service.sources = AnnouncedSources(POOL, False, lambda: desk.now)
    server.said, before = canonical_json(said), len(server.asked)
    assert is_error(desk.post(NODE, "/v1/sources", said), 400, hint)
    assert len(server.asked) == before, "the service asks no address of its own network"
    assert listed(desk) == []


def test_only_participants_for_themselves_this_pool_and_a_while(desk: Desk, relay: tuple[Announcer, str]) -> None:
    _, url = relay

    def answer(said: dict[str, Any], by: LocalAccount = NODE) -> Any:
        return desk.post(by, "/v1/sources", said)

    assert answer(signed(desk, STRANGER, url), STRANGER).status_code == 403
    assert is_error(answer(signed(desk, CHEAT, url)), 403, "announces for")
    other = PoolId(POOL.chain_id, POOL.pools, POOL.pool + 1)
    assert is_error(answer(signed(desk, NODE, url, pool=other)), 400, "not signed by")
    assert is_error(answer(signed(desk, NODE, url, seconds=5000)), 400, "ends at")
    assert is_error(answer(signed(desk, NODE, url, seconds=-1)), 400, "ends at")
    assert is_error(answer(signed(desk, NODE, url) | {"url": url + "/x"}), 400, "not signed by")
    for odd in ("file:///etc/passwd", "http://a:b@c", url + "/", url + "?x", "http://\x7f", "x" * 300):
        assert answer(signed(desk, NODE, url) | {"url": odd}).status_code == 422
    assert listed(desk) == []


def test_one_entry_each_and_not_too_often(
    desk: Desk, relay: tuple[Announcer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = relay
    said = signed(desk, NODE, url)
    server.said = canonical_json(said)
    assert desk.post(NODE, "/v1/sources", said).status_code == 200
    assert is_error(desk.post(NODE, "/v1/sources", said), 429, "a moment ago")
    assert len(server.asked) == 1
    desk.now += 11
    with mirror(server) as second:
        server.said = canonical_json(signed(desk, NODE, second))
        assert desk.post(NODE, "/v1/sources", signed(desk, NODE, second)).status_code == 200
        assert listed(desk) == [second], "who moves is listed once"
    monkeypatch.setattr(sources, "MAX_KEPT", 1)
    server.said = canonical_json(signed(desk, CHEAT, url))
    assert is_error(desk.post(CHEAT, "/v1/sources", signed(desk, CHEAT, url)), 503, "full")


def test_slow_answers_do_not_take_the_checks_from_others(
    desk: Desk, relay: tuple[Announcer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes a check take long is held back for long, so that a few cannot keep everybody else out."""
    monkeypatch.setattr(sources, "CHECK_SECONDS", 0.5)
    with mirror(drip_headers) as slow:
        for waited in (0, 11, 5):
            desk.now += waited
            answer = desk.post(CHEAT, "/v1/sources", signed(desk, CHEAT, slow))
            assert answer.status_code == (429 if waited else 400)
    server, url = relay
    said = signed(desk, NODE, url)
    server.said = canonical_json(said)
    assert desk.post(NODE, "/v1/sources", said).status_code == 200, "others are listed meanwhile"


def test_an_announcement_of_another_key(desk: Desk) -> None:
    said = announce(NODE, POOL, "https://relay.example", int(desk.now) + 60)
    with pytest.raises(IntegrityError, match="not signed by"):
        said.model_copy(update={"address": CHEAT.address}).check(POOL, desk.now)
