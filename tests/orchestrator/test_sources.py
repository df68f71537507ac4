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
from protocol.identity import PoolId
from tests.orchestrator.chain import CHEAT, NODE, STRANGER
from tests.orchestrator.conftest import POOL, Desk, is_error
from tests.storage.mirror import drip_headers, mirror, redirect_to, send


class Announcer:
    """A server at `url` that serves `said` as its announcement."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.said, self.url = desk, b"", ""
        self.asked: list[str] = []

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(handler.path)
        send(handler, 200, self.said)

    def signed(
        self, key: LocalAccount = NODE, seconds: int = 600, pool: PoolId = POOL, url: str = ""
    ) -> dict[str, Any]:
        return announce(key, pool, url or self.url, int(self.desk.now) + seconds).model_dump(mode="json")

    def announces(self, said: dict[str, Any], key: LocalAccount = NODE) -> Any:
        """The service's answer to an announcement that is served."""
        self.said = canonical_json(said)
        return self.desk.post(key, "/v1/sources", said)


@pytest.fixture
def relay(desk: Desk) -> Iterator[Announcer]:
    desk.service.sources = AnnouncedSources(POOL, True, lambda: desk.now)
    announcer = Announcer(desk)
    with mirror(announcer) as announcer.url:
        yield announcer


def listed(desk: Desk) -> list[str]:
    return [one["url"] for one in desk.get("sources")["sources"]]


def test_a_relay_is_listed_as_long_as_it_said(desk: Desk, relay: Announcer) -> None:
    assert relay.announces(relay.signed()).json() == {"next": 120.0}
    assert relay.asked == [ANNOUNCEMENT]
    (shown,) = desk.get("sources")["sources"]
    Announcement.model_validate(shown).check(POOL, desk.now)
    desk.now += 601
    assert listed(desk) == []


@pytest.mark.parametrize(("processes", "seconds"), [(2, 60.0), (4, 30.0), (64, 10.0)])
def test_where_several_processes_have_each_a_list_it_is_announced_to_more_of_them(
    desk: Desk, relay: Announcer, processes: int, seconds: float
) -> None:
    desk.service.sources = AnnouncedSources(POOL, True, lambda: desk.now, processes)
    assert relay.announces(relay.signed()).json() == {"next": seconds}


def test_a_machine_that_did_not_ask_for_it_is_not_listed(desk: Desk, relay: Announcer) -> None:
    def refused(said: dict[str, Any], served: bytes) -> bool:
        relay.said = served
        answer = desk.post(NODE, "/v1/sources", said)
        desk.now += 11
        return is_error(answer, 400, "does not answer with the announcement")

    assert refused(relay.signed(), b"")
    assert refused(relay.signed(), canonical_json(relay.signed(CHEAT)))
    with mirror(redirect_to(relay.url + ANNOUNCEMENT)) as elsewhere:
        said = relay.signed(url=elsewhere)
        assert refused(said, canonical_json(said))
    desk.service.sources, before = AnnouncedSources(POOL, False, lambda: desk.now), len(relay.asked)
    said = relay.signed()
    assert refused(said, canonical_json(said))
    assert len(relay.asked) == before, "the service asks no address of its own network"
    assert listed(desk) == []


def test_only_participants_for_themselves_this_pool_and_a_while(desk: Desk, relay: Announcer) -> None:
    assert relay.announces(relay.signed(STRANGER), STRANGER).status_code == 403
    other = PoolId(POOL.chain_id, POOL.pools, POOL.pool + 1)
    for said, status, words in (
        (relay.signed(CHEAT), 403, "announces for"),
        (relay.signed(pool=other), 400, "not signed by"),
        (relay.signed(seconds=5000), 400, "ends at"),
        (relay.signed(seconds=-1), 400, "ends at"),
        (relay.signed() | {"url": relay.url + "/x"}, 400, "not signed by"),
    ):
        assert is_error(relay.announces(said), status, words)
    for odd in ("file:///etc/passwd", "http://a:b@c", relay.url + "/", relay.url + "?x", "http://\x7f", "x" * 300):
        assert relay.announces(relay.signed() | {"url": odd}).status_code == 422
    assert listed(desk) == []


def test_one_entry_each_and_not_too_often(desk: Desk, relay: Announcer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert relay.announces(relay.signed()).status_code == 200
    assert is_error(relay.announces(relay.signed()), 429, "a moment ago")
    assert len(relay.asked) == 1
    desk.now += 11
    with mirror(relay) as second:
        assert relay.announces(relay.signed(url=second)).status_code == 200
        assert listed(desk) == [second], "who moves is listed once"
    monkeypatch.setattr(sources, "MAX_KEPT", 1)
    assert is_error(relay.announces(relay.signed(CHEAT), CHEAT), 503, "full")


def test_slow_answers_do_not_take_the_checks_from_others(
    desk: Desk, relay: Announcer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes a check take long is held back for long, so that a few cannot keep everybody else out."""
    monkeypatch.setattr(sources, "CHECK_SECONDS", 0.5)
    with mirror(drip_headers) as slow:
        for waited in (0, 11, 5):
            desk.now += waited
            answer = desk.post(CHEAT, "/v1/sources", relay.signed(CHEAT, url=slow))
            assert answer.status_code == (429 if waited else 400)
    assert relay.announces(relay.signed()).status_code == 200, "others are listed meanwhile"
