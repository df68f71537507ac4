"""Members without a key of the bucket share through a gate as others do through the bucket: real HTTP, real S3."""

import socket
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest

from protocol.api.swarm import EnvelopeListing, ListedEnvelope
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.http.signing import AuthScope, sign_request
from runtime.signed_client import ServiceError
from storage.keys import MissingObjectError, object_key
from storage.s3 import Bucket
from swarm import gate as gateway
from swarm.config import GateAccess
from swarm.envelope import DOMAIN
from swarm.exchange import GateExchange, ListingEntry, RefusedForGood, envelope_key
from swarm.gate import SwarmGate
from tests.storage.conftest import bucket, s3
from tests.swarm.gate.world import FIRST, CountingStore, gate_of, served
from tests.swarm.samples import DOCUMENT, KEYS, inbox_of, signed

__all__ = ["bucket", "s3"]


def through(url: str, key: int | None = None) -> GateExchange:
    return GateExchange(GateAccess(url=url), None if key is None else KEYS[key])


@pytest.fixture
def url(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(gateway, "_LISTING_SECONDS", 0.0)
    with served(gate_of(tmp_path, bucket)) as found:
        yield found


def test_left_and_found(url: str) -> None:
    member, data = through(url, 0), signed(0, 5)
    key = member.publish(data)
    assert key == envelope_key(data) == member.publish(data)
    reader = through(url)
    assert list(reader.listed()) == [ListingEntry(key, KEYS[0].address.lower())]
    assert reader.get(ListingEntry(key), DOCUMENT.envelope_bytes) == data
    with pytest.raises(IntegrityError):
        reader.get(ListingEntry(key), 10)
    with pytest.raises(MissingObjectError):
        reader.get(ListingEntry(object_key("envelopes", bytes(32))), 100)


def test_an_inbox_takes_what_lies_there(url: str, tmp_path: Path) -> None:
    through(url, 0).publish(signed(0, 7))
    assert inbox_of(tmp_path).collect(through(url), 0) == 1


def test_who_is_refused_is_told_what_to_do(url: str) -> None:
    with pytest.raises(ServiceError, match="403"):
        through(url, 2).publish(signed(2, 0))
    member = through(url, 1)
    member.publish(signed(1, 0, (0,)))
    with pytest.raises(RefusedForGood, match="another envelope of round 0"):
        member.publish(signed(1, 0, (1,)))
    with pytest.raises(ServiceError, match="401"):
        through(url).publish(signed(0, 0))


@pytest.mark.parametrize(
    "path", ["/v1/objects/shards/" + "0" * 64, "/v1/objects/envelopes/../../x", "/v1/objects/envelopes/" + "0" * 64]
)
def test_a_gate_shows_envelopes_alone(url: str, path: str) -> None:
    assert httpx.get(url + path).status_code == 404
    assert httpx.get(f"{url}/v1/objects/envelopes/{'0' * 64}.json").status_code == 307
    assert httpx.get(f"{url}/v1/objects/envelopes/{'0' * 64}.json%0a").status_code == 404
    assert httpx.get(url + "/health").json()["ok"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"sha256": "' + b"0" * 64 + b'", "size": 1e400}', b"{" * 9000])
def test_bodies_of_strangers(url: str, body: bytes) -> None:
    realm = AuthScope.of(url, DOMAIN.chain_id, DOMAIN.contract)
    headers = sign_request(KEYS[0], realm, "POST", "/v1/envelopes", body, time.time())
    assert httpx.post(url + "/v1/envelopes", content=body, headers=headers).status_code == 422
    again = httpx.post(url + "/v1/envelopes", content=body, headers=headers)
    assert again.status_code == 409, "sent before"


class LyingGate(SwarmGate):
    """Says what it likes."""

    pages: list[EnvelopeListing]
    asked = 0
    where = "http://127.0.0.1:1/nowhere"

    def listing(self, after: str | None) -> EnvelopeListing:
        self.asked += 1
        return self.pages[min(int((after or "0-").split("-")[0]), len(self.pages) - 1)]

    def location(self, sha256: str) -> str:
        return self.where


def lying(tmp_path: Path, *pages: EnvelopeListing) -> LyingGate:
    made = gate_of(tmp_path, CountingStore())
    made.__class__ = LyingGate
    assert isinstance(made, LyingGate)
    made.pages = list(pages)
    return made


def page(*rounds: int, then: str | None = None) -> EnvelopeListing:
    rows = [ListedEnvelope(member=FIRST, round=one, sha256=f"{one:064x}", size=1) for one in rounds]
    return EnvelopeListing(envelopes=rows, next=then)


PLACE = "1-0x" + "0" * 40


def test_a_listing_without_an_end_ends(tmp_path: Path) -> None:
    for pages in ((page(1, then=PLACE), page(2, then=PLACE)), (page(then=PLACE), page(then=PLACE))):
        with served(lying(tmp_path, *pages)) as url, pytest.raises(UnreachableError, match="without an end"):
            list(islice(through(url).listed(), 20))


def test_a_listing_that_names_nothing_ends(tmp_path: Path) -> None:
    empty = [page(then=PLACE.replace("1-", f"{number}-")) for number in range(1, 40)]
    gate = lying(tmp_path, *empty)
    with served(gate) as url, pytest.raises(UnreachableError, match="without an end"):
        list(through(url).listed())
    assert gate.asked == 1, "nothing else would stop whoever counts keys"


def test_nothing_leads_into_the_members_own_network(tmp_path: Path) -> None:
    """The gate's own address the operator has named; no other of its network."""
    gate = lying(tmp_path, page())
    with served(gate) as url, socket.create_server(("127.0.0.2", 0)) as inside:
        gate.where = f"http://127.0.0.2:{inside.getsockname()[1]}/"
        with pytest.raises(MusterError, match="private network"):
            through(url).get(ListingEntry(object_key("envelopes", bytes(32))), 100)


def test_a_gate_that_is_gone_says_so() -> None:
    exchange = through("http://127.0.0.1:9", 0)
    for call in (
        lambda: exchange.publish(b"x"),
        lambda: list(exchange.listed()),
        lambda: exchange.get(ListingEntry(object_key("envelopes", bytes(32))), 1),
    ):
        with pytest.raises(UnreachableError):
            call()
