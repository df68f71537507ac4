"""A gate lists what its members signed, each once, and counts whatever anybody asks for; members without a key of the
bucket share through it as others do through the bucket: real HTTP, real S3."""

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from threading import Thread

import httpx
import pytest

from orchestrator.auth import HttpError, RequestGuard
from orchestrator.uploads import ObjectStore
from protocol.api.swarm import EnvelopeListing, EnvelopeUpload, ListedEnvelope
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.http.signing import AuthScope, sign_request
from protocol.waits import wait_for
from runtime.server import HttpServer, bound, server_options
from runtime.signed_client import ServiceError
from storage.keys import MissingObjectError, object_key
from storage.s3 import Bucket
from swarm import gate as gateway
from swarm.config import GateAccess
from swarm.envelope import DOMAIN
from swarm.exchange import GateExchange, ListingEntry, RefusedForGood, envelope_key
from swarm.gate import HOUR, KEPT, EnvelopeIndex, RecentNonces, SwarmGate, create_app
from tests.orchestrator.conftest import FakeBucket
from tests.storage.conftest import bucket, s3
from tests.swarm.samples import DOCUMENT, KEYS, signed

__all__ = ["bucket", "s3"]
FIRST, SECOND, STRANGER = (key.address for key in KEYS)


class GateClock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class CountingStore(FakeBucket):
    """Counts what is read of it."""

    gets = 0

    def get(self, key: str, limit: int) -> bytes:
        self.gets += 1
        return super().get(key, limit)

    def leave(self, data: bytes) -> EnvelopeUpload:
        """As an upload does; what a member then says of it."""
        body = asking(data)
        self.objects[f"envelopes/{body.sha256}.json"] = data
        self.sizes[f"envelopes/{body.sha256}.json"] = len(data)
        return body


def asking(data: bytes) -> EnvelopeUpload:
    return EnvelopeUpload(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def gate_of(
    folder: Path,
    store: ObjectStore,
    per_hour: int = 1000,
    bytes_per_hour: int = 1 << 30,
    clock: GateClock | None = None,
) -> SwarmGate:
    index = EnvelopeIndex(folder / "gate.sqlite")
    return SwarmGate(DOCUMENT, [FIRST, SECOND], store, index, per_hour, bytes_per_hour, clock or GateClock())


@contextmanager
def served(gate: SwarmGate, rate: float = 1000.0) -> Iterator[str]:
    """Its URL."""
    with bound("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        guard = RequestGuard(AuthScope.of(url, DOMAIN.chain_id, DOMAIN.contract), RecentNonces().use)
        server = HttpServer(server_options(create_app(gate, guard, rate, rate), 64))
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(autouse=True)
def shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "_LISTING_SECONDS", 0.0)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def gate(tmp_path: Path, store: CountingStore) -> SwarmGate:
    return gate_of(tmp_path, store)


def refused(gate: SwarmGate, member: str, body: EnvelopeUpload) -> tuple[int, str]:
    with pytest.raises(HttpError) as error:
        gate.upload(member, body)
    return error.value.status, error.value.what


def test_what_is_uploaded_is_listed_once_it_was_seen(gate: SwarmGate, store: CountingStore, tmp_path: Path) -> None:
    data = signed(0, 3)
    ticket = gate.upload(FIRST, asking(data))
    assert not ticket.exists
    assert ticket.headers["content-length"] == str(len(data))
    assert gate.listing(None).envelopes == [], "whoever looks there now would not look again"
    store.leave(data)
    assert gate.upload(FIRST, asking(data)).exists
    (one,) = gate.listing(None).envelopes
    assert (one.member, one.round, one.sha256, one.size) == (FIRST, 3, asking(data).sha256, len(data))
    assert gate.upload(FIRST, asking(data)).exists
    assert store.gets == 1
    assert gate_of(tmp_path, store).listing(None).envelopes == [one], "after a restart, too"


def test_who_is_no_member_gets_nothing(gate: SwarmGate, store: CountingStore) -> None:
    assert refused(gate, STRANGER, store.leave(signed(2, 0)))[0] == 403
    assert store.gets == 0


@pytest.mark.parametrize("kind", ["junk", "another's", "too long", "other bytes"])
def test_what_is_no_envelope_of_the_member_is_looked_at_once(gate: SwarmGate, store: CountingStore, kind: str) -> None:
    data = {"another's": signed(1, 0), "too long": b" " * (DOCUMENT.envelope_bytes + 1)}.get(kind, b"{}")
    body = store.leave(data)
    if kind == "other bytes":
        store.objects[f"envelopes/{body.sha256}.json"] = signed(0, 0)
    status, what = refused(gate, FIRST, body)
    assert status == (413 if kind == "too long" else 409)
    for _ in range(3):
        assert refused(gate, FIRST, body) == (status, what)
    assert store.gets == (0 if kind == "too long" else 1)
    assert gate.listing(None).envelopes == []


def test_a_copy_under_anothers_name_keeps_nobody_from_its_own(gate: SwarmGate, store: CountingStore) -> None:
    body = store.leave(signed(1, 0))
    assert refused(gate, FIRST, body)[0] == 409
    assert gate.upload(SECOND, body).exists


def test_a_round_is_listed_once(gate: SwarmGate, store: CountingStore) -> None:
    first, second = store.leave(signed(0, 0, (0,))), store.leave(signed(0, 0, (1,)))
    assert gate.upload(FIRST, first).exists
    assert refused(gate, FIRST, second) == (409, "another envelope of round 0 is there already")
    assert [one.sha256 for one in gate.listing(None).envelopes] == [first.sha256]


def test_so_many_an_hour(tmp_path: Path) -> None:
    clock = GateClock()
    gate = gate_of(tmp_path, CountingStore(), per_hour=3, clock=clock)
    for number in (0, 1, 2, 2):
        assert not gate.upload(FIRST, asking(b"%d" % number)).exists
    assert refused(gate, FIRST, asking(b"3"))[0] == 429
    assert not gate.upload(SECOND, asking(b"3")).exists, "each for itself"
    clock.now += HOUR - 1
    assert refused(gate_of(tmp_path, CountingStore(), per_hour=3, clock=clock), FIRST, asking(b"3"))[0] == 429
    clock.now += 1
    assert not gate.upload(FIRST, asking(b"3")).exists


def test_so_many_bytes_an_hour(tmp_path: Path) -> None:
    """Who asks again with more bytes is counted with those."""
    gate = gate_of(tmp_path, CountingStore(), bytes_per_hour=1000)
    assert not gate.upload(SECOND, asking(b"a" * 600)).exists
    assert refused(gate, SECOND, asking(b"b" * 401))[0] == 429
    assert not gate.upload(SECOND, asking(b"b" * 400)).exists
    for data in (b"a" * 600, b"b" * 600):
        assert not gate.upload(FIRST, EnvelopeUpload(sha256=asking(data).sha256, size=1)).exists
    assert not gate.upload(FIRST, asking(b"a" * 600)).exists
    assert refused(gate, FIRST, asking(b"b" * 600))[0] == 429


def test_what_lies_there_is_looked_at_for_who_asked_for_so_many_bytes(gate: SwarmGate, store: CountingStore) -> None:
    """Or a look at the longest of another member counts as one byte."""
    body = store.leave(signed(0, 0))
    short = EnvelopeUpload(sha256=body.sha256, size=1)
    assert refused(gate, FIRST, short) == (409, f"{body.size} bytes lie there, not 1")
    assert store.gets == 0
    assert gate.upload(FIRST, body).exists


def test_a_clock_that_was_far_ahead_keeps_nobody_out(tmp_path: Path) -> None:
    clock = GateClock()
    gate = gate_of(tmp_path, CountingStore(), per_hour=1, clock=clock)
    clock.now += 1000 * HOUR
    assert not gate.upload(FIRST, asking(b"0")).exists
    clock.now -= 1000 * HOUR
    assert not gate.upload(FIRST, asking(b"1")).exists
    clock.now -= 1
    assert refused(gate, FIRST, asking(b"2"))[0] == 429, "a second back forgets nothing"


def test_looks_are_counted_as_uploads_are(tmp_path: Path) -> None:
    """Or who asks about all that lies there has the gate read all of it."""
    store = CountingStore()
    gate = gate_of(tmp_path, store, per_hour=5)
    for number in range(20):
        assert refused(gate, FIRST, store.leave(signed(1, number)))[0] == (409 if number < 5 else 429)
    assert store.gets == 5


class BarredStore(CountingStore):
    """Reads nothing until `free` is set; `waiting` counts who waits."""

    def __init__(self) -> None:
        super().__init__()
        self.free, self.waiting = threading.Event(), 0

    def get(self, key: str, limit: int) -> bytes:
        self.waiting += 1
        assert self.free.wait(30)
        return super().get(key, limit)


def test_few_envelopes_are_looked_at_at_once(tmp_path: Path) -> None:
    """Else a member's hourly share of the longest ones is in memory together."""
    store = BarredStore()
    gate = gate_of(tmp_path, store)
    bodies = [store.leave(signed(0, number)) for number in range(gateway.CHECKS_AT_ONCE + 1)]
    with ThreadPoolExecutor(gateway.CHECKS_AT_ONCE) as pool:
        looks = [pool.submit(gate.upload, FIRST, body) for body in bodies[:-1]]
        wait_for("all looks", lambda: store.waiting == gateway.CHECKS_AT_ONCE, 30)
        assert refused(gate, FIRST, bodies[-1])[0] == 503
        store.free.set()
        assert all(look.result(30).exists for look in looks)
    assert gate.upload(FIRST, bodies[-1]).exists, "once there is room"


def test_everybodys_newest_come_first_and_a_flood_pushes_nobody_out(gate: SwarmGate, store: CountingStore) -> None:
    for number in range(KEPT + 30):
        assert gate.upload(FIRST, store.leave(signed(0, number))).exists
    for number in (4, 9):
        assert gate.upload(SECOND, store.leave(signed(1, number))).exists
    shown = [(one.member, one.round) for one in gate.listing(None).envelopes]
    newest = KEPT + 29
    assert set(shown[:4]) == {(FIRST, newest), (SECOND, 9), (FIRST, newest - 1), (SECOND, 4)}
    assert [round for member, round in shown if member == FIRST] == [newest - at for at in range(KEPT)]


def test_what_is_too_old_to_be_listed_is_looked_at_once(gate: SwarmGate, store: CountingStore) -> None:
    for number in range(1, KEPT + 1):
        gate.upload(FIRST, store.leave(signed(0, number)))
    old = store.leave(signed(0, 0))
    for _ in range(3):
        assert refused(gate, FIRST, old) == (409, f"{KEPT} later rounds than 0 are there")
    assert store.gets == KEPT + 1


def test_pages_have_every_envelope_once(gate: SwarmGate, store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "MOST_LISTED", 4)
    for number in range(7):
        for key, member in enumerate((FIRST, SECOND)):
            gate.upload(member, store.leave(signed(key, number)))
    found, after = [], None
    for _ in range(10):
        page = gate.listing(after)
        found += [one.sha256 for one in page.envelopes]
        after = page.next
        if after is None:
            break
    assert len(found) == len(set(found)) == 14
    assert gate.listing("9999-0x" + "f" * 40).envelopes == []


@pytest.mark.parametrize(
    "after", ["", "1", "0-0x" + "0" * 40, "1-0x" + "0" * 39, "1-0x" + "0" * 40 + "\n", "٣-0x" + "0" * 40]
)
def test_no_place_of_a_listing(tmp_path: Path, after: str) -> None:
    with pytest.raises(HttpError) as error:
        gate_of(tmp_path, CountingStore()).listing(after)
    assert error.value.status == 422


# Members


def through(url: str, key: int | None = None) -> GateExchange:
    return GateExchange(GateAccess(url=url), None if key is None else KEYS[key])


@pytest.fixture
def url(tmp_path: Path, bucket: Bucket) -> Iterator[str]:
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


CURSOR = "1-0x" + "0" * 40


EMPTY = [page(then=CURSOR.replace("1-", f"{number}-")) for number in range(1, 40)]


@pytest.mark.parametrize("pages", [[page(1, then=CURSOR), page(2, then=CURSOR)], [page(then=CURSOR)] * 2, EMPTY])
def test_a_listing_without_an_end_ends(tmp_path: Path, pages: list[EnvelopeListing]) -> None:
    """Nothing else would stop whoever counts keys of a listing that names nothing."""
    gate = lying(tmp_path, *pages)
    with served(gate) as url, pytest.raises(UnreachableError, match="without an end"):
        list(islice(through(url).listed(), 20))
    assert gate.asked <= 2
    assert gate.asked == 1 or pages is not EMPTY


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
