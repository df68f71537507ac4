"""The database says whose it is, and by which URL; PostgreSQL behaves the same."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.auth import HttpError, NonceStore
from orchestrator.background import Leader
from orchestrator.db import SCHEMA_VERSION, Database, default_url
from orchestrator.heartbeats import HeartbeatStore
from orchestrator.uploads import TICKETS_AT_ONCE, Uploads
from protocol.api.work import HeartbeatRequest, ReceiptSigner, UploadNeeded, UploadRequest
from protocol.errors import ConfigError, MusterError
from protocol.waits import wait_for
from tests.orchestrator.chain import NODE, OWNER, TERMS
from tests.orchestrator.conftest import POOL, SHA, Desk, Open, empty_database


def test_a_database_belongs_to_one_pool(tmp_path: Path) -> None:
    db = Database(default_url(tmp_path))
    db.bind_to({"chain": "1", "pool": "1"})
    db.bind_to({"chain": "1", "pool": "1"})
    with pytest.raises(ConfigError, match="belongs to pool 1"):
        db.bind_to({"chain": "1", "pool": "2"})
    db.close()


@pytest.mark.parametrize(
    "url",
    ["nonsense", "mysql://host/x", "sqlite:////proc/nowhere/x.db", "postgresql://nobody:secret@127.0.0.1:9/x"],
)
def test_urls_that_cannot_work_are_named(url: str) -> None:
    with pytest.raises(MusterError) as caught:
        Database(url)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "orchestrator.db").write_bytes(b"not a database" * 100)
    with pytest.raises(MusterError, match=r"not usable|does not open"):
        Database(default_url(tmp_path))


# Several replicas over one database, of either kind: what one does the others know, and nothing happens twice.


ALICE, BOB = "0x" + "11" * 20, "0x" + "22" * 20


def _changes(db: Database) -> None:
    with db.session() as session:
        session.execute(text("UPDATE lease_changes SET number = number + 1"))


def test_a_nonce_is_used_once_over_all_replicas(replica: Open) -> None:
    stores = one, other = NonceStore(replica()), NonceStore(replica())
    assert one.use(ALICE, b"1" * 32, 1.0)
    assert not other.use(ALICE, b"1" * 32, 1.0)
    assert other.use(BOB, b"1" * 32, 1.0)
    one.prune(1e9)
    assert other.use(ALICE, b"1" * 32, 1.0)
    # Of many replays at once one is accepted.
    uses = [(store, bytes([n]) * 32) for n in range(100, 120) for store in stores for _ in range(3)]
    with ThreadPoolExecutor(6) as threads:
        accepted = list(threads.map(lambda use: use[0].use(ALICE, use[1], 1.0), uses))
    assert sum(accepted) == 20


def test_heartbeats_are_known_everywhere(replica: Open) -> None:
    one, other = HeartbeatStore(replica()), HeartbeatStore(replica())
    one.store(ALICE, HeartbeatRequest(role="worker", name="w", metrics={"a": 1.5}), 100.0)
    assert other.newest() == one.newest()
    assert other.newest()[ALICE].body.metrics == {"a": 1.5}
    other.store(ALICE, HeartbeatRequest(role="worker", name="later"), 102.0)
    assert one.newest()[ALICE].body.name == "later"
    one.store(ALICE, HeartbeatRequest(role="worker", name="written late"), 101.0)
    assert HeartbeatStore(replica()).newest() == other.newest() == one.newest()
    assert one.newest()[ALICE].body.name == "later"


def test_who_reads_within_a_change_waits_for_nobody_who_waits_for_that_change(replica: Open) -> None:
    db, writers = replica(), 16
    with ThreadPoolExecutor(writers) as threads:
        with db.session() as session:
            session.execute(text("UPDATE lease_changes SET number = number + 1"))
            waiting = [threads.submit(_changes, db) for _ in range(writers)]
            time.sleep(0.5)  # each of them has a connection, or waits for one
            began = time.monotonic()
            with db.reading() as reading:
                assert reading.scalar(text("SELECT number FROM lease_changes")) == 0
            assert time.monotonic() - began < 5
        for one in waiting:
            one.result()


def test_tickets_and_receipts_are_the_same_on_every_replica(replica: Open, desk: Desk) -> None:
    one, other = (
        Uploads(replica(), desk.view, desk.bucket, ReceiptSigner(OWNER, POOL), 1 << 20, clock=lambda: desk.now)
        for _ in range(2)
    )
    for number in range(TICKETS_AT_ONCE):
        (one, other)[number % 2].ticket(NODE.address, UploadRequest(kind="rollouts", sha256=f"{number:064x}", size=5))
    wanted = UploadRequest(kind="rollouts", sha256=SHA, size=5)
    for uploads in (one, other):
        with pytest.raises(HttpError, match="64 tickets are open") as caught:
            uploads.ticket(NODE.address, wanted)
        assert caught.value.status == 429
    one.ticket(NODE.address, UploadRequest(kind="rollouts", sha256=f"{3:064x}", size=5))
    desk.bucket.sizes[f"rollouts/{3:064x}.parquet"] = 5
    assert isinstance(other.ticket(NODE.address, wanted), UploadNeeded)
    desk.bucket.sizes[f"rollouts/{SHA}.parquet"] = 5
    first = one.receipt(NODE.address, SHA, 5)
    desk.now += 5
    assert other.receipt(NODE.address, SHA, 5) == first
    desk.now += TERMS.receiptWindow
    assert one.receipt(NODE.address, SHA, 5).time == int(desk.now)


def test_a_connection_that_ended_unused_is_replaced(tmp_path: Path) -> None:
    db = Database(empty_database("postgresql", tmp_path))
    with db.reading() as session:
        ended = session.scalar(text("SELECT pg_backend_pid()"))
    killer = Database(db.engine.url.render_as_string(hide_password=False))
    with killer.reading() as session:
        assert session.scalar(text("SELECT pg_terminate_backend(:pid)"), {"pid": ended})
    with db.reading() as session:
        assert session.scalar(text("SELECT pg_backend_pid()")) != ended
    for one in (db, killer):
        one.close()


def test_one_replica_leads_and_another_takes_over(replica: Open) -> None:
    one, other = Leader(replica()), Leader(replica())
    assert [one.leads(), other.leads(), one.leads()] == [True, False, True]
    one.close()
    wait_for("the lock of the other connection to end", other.leads, 10)
    assert not one.leads()
    other.close()


@pytest.mark.parametrize(
    ("change", "version"),
    [("UPDATE meta SET value = '9999'", "9999"), ("DELETE FROM meta", "unknown")],
)
def test_a_database_of_another_version_is_refused(replica: Open, change: str, version: str) -> None:
    with replica().session() as session:
        session.execute(text(change))
    with pytest.raises(ConfigError, match=f"schema {version}, this version of muster needs {SCHEMA_VERSION}"):
        replica()
