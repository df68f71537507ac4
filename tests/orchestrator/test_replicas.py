"""Several replicas over one database, of either kind: what one does the others know, and nothing happens twice."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from orchestrator import schema
from orchestrator.db import Database, default_url
from orchestrator.heartbeats import NewestHeartbeats
from orchestrator.http_errors import HttpError
from orchestrator.leader import Leader
from orchestrator.lease_store import GRACE, PAST, LeaseStore
from orchestrator.leases import Leases
from orchestrator.nonces import NonceQueue, NonceStore
from orchestrator.scheduler import Refuse
from orchestrator.supply import Lease, Rule
from orchestrator.tables import Base
from orchestrator.uploads import TICKETS_AT_ONCE, Uploads
from protocol.api.uploads import ReceiptRequest, UploadNeeded, UploadRequest
from protocol.api.work import HeartbeatRequest
from protocol.errors import ConfigError
from protocol.receipts import ReceiptSigner
from tests.orchestrator.chain import CHEAT, NODE, OWNER, TERMS, VOTER
from tests.orchestrator.conftest import POOL, SHA, Desk
from tests.orchestrator.databases import KINDS, empty_database

ALICE, BOB = "0x" + "11" * 20, "0x" + "22" * 20
Open = Callable[[], Database]


@pytest.fixture(params=KINDS)
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens one more replica's database."""
    url, opened = empty_database(request.param, tmp_path), list[Database]()

    def open_database() -> Database:
        opened.append(Database(url))
        return opened[-1]

    yield open_database
    for one in opened:
        one.close()


def lease(letter: str, node: str = ALICE, counter: int = 0, expires: float = 31.0) -> Lease:
    return Lease(letter * 32, node, 0, counter, 1.0, expires, 600.0)


def grant(store: LeaseStore, made: Lease, replaces: str | None = None) -> bool:
    with store.granting() as granting:
        granting.add([(made, replaces)])
    return granting.news


def test_a_nonce_is_used_once_over_all_replicas(replica: Open) -> None:
    one, other = NonceStore(replica()), NonceStore(replica())
    assert one.use(ALICE, b"1" * 32, 1.0)
    assert not other.use(ALICE, b"1" * 32, 1.0)
    assert other.use(BOB, b"1" * 32, 1.0)
    assert one.use_many([(ALICE, b"2" * 32), (ALICE, b"2" * 32), (ALICE, b"1" * 32)], 1.0) == [True, False, False]
    one.prune(1e9)
    assert other.use(ALICE, b"1" * 32, 1.0)


def test_of_many_replays_at_once_one_is_taken(replica: Open) -> None:
    queues = [NonceQueue(NonceStore(replica())) for _ in range(2)]

    async def replay() -> list[bool]:
        uses = [queue.use(ALICE, bytes([n]) * 32, 1.0) for n in range(20) for queue in queues for _ in range(3)]
        return list(await asyncio.gather(*uses))

    assert sum(asyncio.run(replay())) == 20


def test_heartbeats_are_known_everywhere_once_written(replica: Open) -> None:
    one, other = NewestHeartbeats(replica()), NewestHeartbeats(replica())
    one.take(ALICE, HeartbeatRequest(role="worker", name="w", metrics={"a": 1.5}), 100.0)
    other.read()
    assert other.newest() == {}
    one.write()
    other.read()
    assert other.newest() == one.newest()
    assert other.newest()[ALICE].said.metrics == {"a": 1.5}
    other.take(ALICE, HeartbeatRequest(role="worker", name="later"), 102.0)
    other.write()
    one.read()
    assert one.newest()[ALICE].said.name == "later"
    assert NewestHeartbeats(replica()).newest() == one.newest()


def test_a_lease_of_one_replica_is_renewed_by_another_and_survives_both(replica: Open) -> None:
    one, other = LeaseStore(replica()), LeaseStore(replica())
    grant(one, lease("a"))
    assert other.find("a" * 32, ALICE, 2.0) is None
    other.read()
    known = other.find("a" * 32, ALICE, 2.0)
    assert known == lease("a")
    assert other.find("a" * 32, BOB, 2.0) is None
    other.renew(known, 45.0)
    other.write()
    again = LeaseStore(replica())
    assert again.find("a" * 32, ALICE, 40.0) == lease("a", expires=45.0)
    assert again.granted == {ALICE: 1.0}


def test_a_replica_that_grants_knows_first_what_the_others_granted(replica: Open) -> None:
    one, other = LeaseStore(replica()), LeaseStore(replica())
    assert not grant(one, lease("a"))
    assert grant(other, lease("b", BOB))
    assert {found.id[0] for found in other.open(2.0, lambda node: 0)} == {"a", "b"}
    assert grant(one, lease("c", counter=1), replaces="a" * 32)
    other.read()
    assert {found.id[0] for found in other.open(2.0, lambda node: 0)} == {"b", "c"}


def test_a_lease_that_ended_before_a_replica_heard_of_it_tells_how_far_its_node_has_come(replica: Open) -> None:
    """Or a node could ask one replica for the newest step, and another for the one before."""
    one, other = LeaseStore(replica()), LeaseStore(replica())
    grant(one, lease("a")._replace(step=5))
    assert one.open(2.0, lambda node: 1) == []
    one.write()
    assert grant(other, lease("b", BOB)), "it is news to who grants"
    assert other.reached == {ALICE: 5, BOB: 0}
    assert other.granted[ALICE] == 1.0


def test_grants_of_two_replicas_at_once_all_become_known_to_both(replica: Open) -> None:
    stores = [LeaseStore(replica()) for _ in range(2)]

    def many(place: int) -> None:
        for number in range(15):
            made = Lease(f"{place:016x}{number:016x}", ALICE, 0, number, 1.0, 31.0, 600.0)
            with stores[place].granting() as granting:
                granting.add([(made, None)])
            stores[place].renew(made, 50.0)
            stores[place].write()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(many, range(2)))
    for store in stores:
        store.read()
        assert len(store.open(2.0, lambda node: 0)) == 30
    assert {found.expires for found in LeaseStore(replica()).open(2.0, lambda node: 0)} == {50.0}


def test_a_lease_ends_with_its_file_or_its_time_and_stays_ended(replica: Open) -> None:
    one = LeaseStore(replica())
    grant(one, lease("a"))
    grant(one, lease("b", BOB))
    assert [found.id[0] for found in one.open(2.0, lambda node: int(node == ALICE))] == ["b"]
    assert one.open(31.0, lambda node: 0) == []
    one.write()
    assert LeaseStore(replica()).find("b" * 32, BOB, 30.0) is not None, "a renewal may still be on its way"
    assert one.open(31.0 + GRACE, lambda node: 0) == []
    one.write()
    assert LeaseStore(replica()).open(2.0, lambda node: 0) == []


def test_a_lease_that_a_replica_gave_up_is_not_opened_by_a_renewal_that_came_too_late(replica: Open) -> None:
    """It is closed in the database all the same: only this replica would count it, and tell its node to go on."""
    one, other = LeaseStore(replica()), LeaseStore(replica())
    grant(one, lease("a"))
    other.read()
    assert other.granted_elsewhere() == [lease("a")]
    one.renew(lease("a"), 60.0)
    assert other.open(31.0 + GRACE, lambda node: 0) == []
    one.write()
    other.write()
    assert LeaseStore(replica()).held_by(ALICE) == []
    assert other.held_by(ALICE) == other.granted_elsewhere() == []
    assert other.has_ended("a" * 32)


def test_a_lease_that_was_replaced_is_not_opened_by_who_looked_before(replica: Open) -> None:
    """A heartbeat's look into the database may end after a grant that it began before."""
    one, other = LeaseStore(replica()), LeaseStore(replica())
    grant(one, lease("a"))
    other._forget("a" * 32)
    other.read()
    assert other.held_by(ALICE) == other.granted_elsewhere() == []


def test_what_a_replica_closed_or_heard_closed_is_known_to_have_ended(replica: Open) -> None:
    """So that a node which goes on naming it costs no look into the database."""
    one, other = LeaseStore(replica()), LeaseStore(replica())
    grant(one, lease("a"))
    grant(one, lease("b", BOB))
    grant(one, lease("c", BOB), replaces="b" * 32)
    one.open(2.0, lambda node: int(node == ALICE))
    assert [one.has_ended(letter * 32) for letter in "abcd"] == [True, True, False, False]
    assert not other.has_ended("a" * 32)
    one.write()
    other.read()
    assert [other.has_ended(letter * 32) for letter in "abcd"] == [True, True, False, False]
    for number in range(PAST):
        one._forget(f"{number:032d}")
    assert not one.has_ended("a" * 32), "so many are remembered, and no more"


def test_a_replica_does_not_read_what_it_wrote_and_does_not_miss_what_came_between(replica: Open) -> None:
    one, other = LeaseStore(replica()), LeaseStore(replica())
    grant(one, lease("a"))
    other.read()
    one.renew(lease("a"), 40.0)
    grant(other, lease("b", BOB))
    one.write()
    assert one.find("b" * 32, BOB, 2.0) == lease("b", BOB), "its writing took in what another had granted"
    assert one.granted_elsewhere() == [lease("b", BOB)]
    assert one.granted_elsewhere() == []
    seen = one._seen
    one.read()
    assert one._seen == seen, "there was nothing to read but its own"
    other.read()
    assert other.find("a" * 32, ALICE, 2.0) == lease("a", expires=40.0)


def test_tickets_and_receipts_are_the_same_on_every_replica(replica: Open, desk: Desk) -> None:
    one, other = (
        Uploads(replica(), desk.watch, desk.shelf, ReceiptSigner(OWNER, POOL), clock=lambda: desk.now) for _ in range(2)
    )
    for number in range(TICKETS_AT_ONCE):
        (one, other)[number % 2].ticket(NODE.address, UploadRequest(kind="rollouts", sha256=f"{number:064x}", size=5))
    wanted = UploadRequest(kind="rollouts", sha256=SHA, size=5)
    for uploads in (one, other):
        with pytest.raises(HttpError, match="64 tickets are open"):
            uploads.ticket(NODE.address, wanted)
    one.ticket(NODE.address, UploadRequest(kind="rollouts", sha256=f"{3:064x}", size=5))
    desk.shelf.sizes[f"rollouts/{3:064x}.parquet"] = 5
    assert isinstance(other.ticket(NODE.address, wanted), UploadNeeded)
    desk.shelf.sizes[f"rollouts/{SHA}.parquet"] = 5
    ask = ReceiptRequest(sha256=SHA, size=5)
    first = one.receipt(NODE.address, ask)
    desk.now += 5
    assert other.receipt(NODE.address, ask) == first
    desk.now += TERMS.receiptWindow
    assert one.receipt(NODE.address, ask).receipt.time == int(desk.now)


def test_a_grant_of_another_replica_is_counted_at_once(desk: Desk) -> None:
    """Without counting everything anew: two replicas that grant in turn would count for ever."""
    config = desk.service.config
    rule = Rule.of(config, 30.0, 600.0, 60.0)
    one, other = (Leases(Database(default_url(desk.home)), desk.watch, rule, 100, lambda: desk.now) for _ in range(2))
    assert one.in_flight().leased == other.in_flight().leased == 0
    for counter in (0, 1):
        one.ask(NODE.address, counter)
    other.ask(CHEAT.address, 0)
    assert other.in_flight().leased == 3
    one.ask(CHEAT.address, 1)
    assert one.in_flight().leased == 4
    assert isinstance(other.ask(VOTER.address, 0)[0], Refuse)


def test_a_connection_that_ended_unused_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.db._IDLE_SECONDS", 0.0)
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
    assert other.leads()
    assert not one.leads()
    other.close()


def test_migrations_make_the_tables_that_the_code_maps(replica: Open) -> None:
    found = inspect(replica().engine)
    assert set(found.get_table_names()) == {*Base.metadata.tables, "alembic_version"}
    for name, table in Base.metadata.tables.items():
        columns = {column["name"]: column["nullable"] for column in found.get_columns(name)}
        assert columns == {column.name: column.nullable for column in table.columns}, name
        assert set(found.get_pk_constraint(name)["constrained_columns"]) == {one.name for one in table.primary_key}
        assert {index["name"] for index in found.get_indexes(name)} == {index.name for index in table.indexes}


def test_a_database_from_before_migrations_is_taken_over_with_what_it_holds(replica: Open) -> None:
    old = replica()
    with old.session() as session:
        for statement in (
            "INSERT INTO slots (id, node, step, counter, granted, expires, ends, open) "
            f"VALUES ('{'a' * 32}', '{ALICE}', 0, 0, 1, 31, 600, true)",
            "DROP TABLE alembic_version",
            "DROP TABLE file_tries",
            "DROP TABLE nonces",
            "DROP TABLE lease_changes",
            "DROP INDEX slots_change",
            "DROP INDEX tickets_node",
            "ALTER TABLE slots DROP COLUMN change",
        ):
            session.execute(text(statement))
    new = LeaseStore(replica())
    assert new.find("a" * 32, ALICE, 2.0) == lease("a")
    assert not grant(new, lease("b"))


def test_only_the_first_replica_has_anything_to_migrate(replica: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    upgraded: list[object] = []
    replica()
    monkeypatch.setattr(schema, "_upgrade", upgraded.append)
    replica()
    assert upgraded == []


@pytest.mark.parametrize(
    ("change", "layout"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "9999"),
        ("INSERT INTO alembic_version VALUES ('0002')", f"0002, {schema.NEWEST}"),
    ],
)
def test_a_database_of_another_layout_is_refused(replica: Open, change: str, layout: str) -> None:
    with replica().session() as session:
        session.execute(text(change))
    with pytest.raises(ConfigError, match=f"layout {layout}, which this version of muster does not know"):
        replica()
