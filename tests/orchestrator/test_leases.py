"""Leases in the database, of one replica and of several: nothing is granted twice, lost or forgotten."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from chain.indexer.projection import Projection
from orchestrator.chain import PoolView
from orchestrator.db import Database, default_url
from orchestrator.scheduling.leases import EXPIRED_SECONDS, Leases, LeaseStore
from orchestrator.scheduling.scheduler import Decision, Grant, Lease, Rule, Wait
from protocol.accounts import Account as Key
from protocol.config import WorkConfig
from protocol.verdict import Code
from tests.orchestrator.chain import started
from tests.orchestrator.conftest import Open
from tests.validator.world import CONFIG

ALICE = "0x" + "11" * 20
NODES = [Key.from_key(bytes([50 + number]) * 32) for number in range(6)]


def lease(letter: str, counter: int = 0, step: int = 0, expires: float = 31.0) -> Lease:
    return Lease(letter * 32, ALICE, step, counter, 1.0, expires, 600.0)


def grant(store: LeaseStore, made: Lease, replaces: str = "") -> None:
    with store.changing() as change:
        change.grant(made, replaces * 32)


def sync(store: LeaseStore) -> None:
    with store._db.reading() as session:
        store.sync(session)


def open_ids(store: LeaseStore, now: float = 2.0) -> str:
    return "".join(sorted(one.id[0] for one in store.open(now)))


def test_a_lease_that_was_replaced_stays_closed(replica: Open) -> None:
    one, other = LeaseStore(replica()), LeaseStore(replica())
    grant(one, lease("a"))
    sync(other)
    grant(one, lease("b"), replaces="a")
    with other.changing() as change:
        change.renew(lease("a", expires=60.0))
    for store in (one, other, LeaseStore(replica())):
        sync(store)
        assert open_ids(store) == "b"


def test_a_lease_that_ended_before_a_replica_heard_of_it_tells_how_far_its_node_has_come(replica: Open) -> None:
    """Or a node could ask one replica for the newest step, and another for the one before."""
    one, other = LeaseStore(replica()), LeaseStore(replica())
    grant(one, lease("a", step=5))
    grant(one, lease("b", step=6), replaces="a")
    grant(one, lease("c"), replaces="b")
    sync(other)
    assert other.reached == {ALICE: 6}


def test_expired_leases_are_closed_in_the_database(replica: Open) -> None:
    one = LeaseStore(replica())
    grant(one, lease("a"))
    grant(one, lease("b", expires=100.0))
    assert open_ids(one, 31.0) == "b"
    one.prune(31.0, True, 600.0)
    assert open_ids(LeaseStore(replica())) == "ab", "another replica's clock may be behind"
    one.prune(32.0 + EXPIRED_SECONDS, True, 600.0)
    assert open_ids(LeaseStore(replica())) == "b"


def test_what_a_slow_thread_read_before_a_lease_was_closed_does_not_open_it_again(tmp_path: Path) -> None:
    store = LeaseStore(Database(default_url(tmp_path)))
    grant(store, lease("a"))
    store._seen = 0

    class Slow:
        def execute(self, *given: Any) -> Any:
            with store._db.reading() as session:
                rows = session.execute(*given).all()
            closing.start()
            closing.join(0.5)
            return rows

    closing = threading.Thread(target=grant, args=(store, lease("b"), "a"))
    store.sync(cast(Session, Slow()))
    closing.join()
    assert open_ids(store) == "b"


def test_closed_leases_are_forgotten_but_for_each_nodes_newest(replica: Open) -> None:
    store = LeaseStore(replica())
    grant(store, lease("a"))
    grant(store, lease("b", step=6)._replace(granted=2.0), replaces="a")
    grant(store, lease("c", counter=1, step=6)._replace(granted=3.0), replaces="b")
    with store._db.session() as session:
        session.execute(text("UPDATE leases SET open = (1 = 0)"))
    store.prune(3.0, True, keep=2.0)
    assert len(store.grants_since(0.0)) == 3
    store.prune(10.0, True, keep=2.0)
    assert list(store.grants_since(0.0).values()) == [3.0]
    assert LeaseStore(store._db).reached == {ALICE: 6}


class Staged:
    """Two replicas over one database, and a chain."""

    def __init__(self, replica: Open) -> None:
        self.now, self.step, self.counters = 1000.0, 0, [0] * len(NODES)
        self.chain = started(*NODES)
        self.view = PoolView(Projection(self.chain), 1, confirmations=0)
        self.view.refresh()
        self.rule = Rule(3, 1, 8, lease_seconds=30.0)
        self.dbs = [replica() for _ in range(2)]
        self.replicas = [Leases(db, self.view, self.rule, 100, clock=lambda: self.now) for db in self.dbs]

    def ask(self, number: int, counter: int | None = None, ready: int | None = None, at: int = 0) -> Decision:
        return self.replicas[at].request(NODES[number].address, counter, ready)

    def granted(self, number: int, counter: int | None = None, ready: int | None = None, at: int = 0) -> Lease:
        decision = self.ask(number, counter, ready, at)
        assert isinstance(decision, Grant)
        return decision.lease

    @property
    def leased(self) -> list[int]:
        return [one.in_flight().leased for one in self.replicas]

    def rows(self) -> list[Any]:
        with self.dbs[0].reading() as session:
            return list(session.execute(text("SELECT * FROM leases ORDER BY granted, node, counter, step")))

    def publish(self) -> None:
        self.step += 1
        self.chain.publish(self.step)
        self.view.refresh()

    def submit(self, number: int) -> None:
        self.chain.submit(NODES[number], self.counters[number], self.step)
        self.counters[number] += 1
        self.view.refresh()


@pytest.fixture
def pool(replica: Open) -> Staged:
    return Staged(replica)


def test_asking_again_returns_the_same_lease_from_any_replica(pool: Staged) -> None:
    first = pool.granted(0, 0)
    pool.now += 20
    assert pool.granted(0, 0, at=1) == first._replace(expires=pool.now + 30)
    assert [row.expires for row in pool.rows()] == [pool.now + 30]


def test_a_file_of_long_answers_is_leased_and_remembered_for_as_long_as_it_takes(pool: Staged) -> None:
    """128 answers of 32k tokens take a node of a thousand tokens a second more than an hour."""
    work = WorkConfig(problems_per_file=16, samples_per_problem=8, max_new_tokens=32768)
    pool.rule = Rule.of(CONFIG.model_copy(update={"work": work}), lease_seconds=30.0)
    pool.replicas = [Leases(db, pool.view, pool.rule, work.units, clock=lambda: pool.now) for db in pool.dbs]
    start, lease_id = pool.now, pool.granted(0, 0).id
    while pool.now < start + 4200:
        pool.now += 28
        assert pool.replicas[0].renew(NODES[0].address, [lease_id]) == pool.now + 30
    pool.submit(0)
    pool.chain.settle(NODES[0], 0, Code.ACCEPT)
    pool.view.refresh()
    assert pool.replicas[0].facts(pool.view.state).pace.making.keys() == {NODES[0].address}
    assert Rule.of(CONFIG, lease_seconds=30.0).lease_limit == 600


def test_heartbeats_renew_at_any_replica(pool: Staged) -> None:
    lease_id = pool.granted(0, 0).id
    pool.now += 20
    assert pool.replicas[1].renew(NODES[0].address, [lease_id]) == pool.now + 30
    assert pool.replicas[1].renew(NODES[1].address, [lease_id]) is None
    assert pool.replicas[0].renew(NODES[0].address, ["0" * 32]) is None
    pool.now += 31
    assert pool.replicas[0].renew(NODES[0].address, [lease_id]) is None


def test_a_node_that_was_told_to_wait_comes_first(pool: Staged) -> None:
    for number in (1, 2, 3):
        for counter in (0, 1):
            pool.granted(number, counter)
    pool.now += 27
    assert isinstance(pool.ask(5), Wait)
    pool.now += 3.5
    pool.granted(5)


def test_a_lease_of_an_older_step_is_replaced_and_holds_no_place(pool: Staged) -> None:
    older = [pool.granted(number) for number in range(5)]
    pool.publish()
    replaced = pool.ask(0)
    assert isinstance(replaced, Grant)
    assert replaced.replaces == older[0].id
    pool.granted(5)
    assert isinstance(pool.ask(1, 1), Wait)
    assert pool.leased == [6, 6]
    assert sorted(row.step for row in pool.rows() if row.open) == [0, 0, 0, 0, 1, 1]


def test_a_node_that_got_the_newest_step_is_given_none_of_the_one_before(pool: Staged) -> None:
    pool.ask(0, 0)
    pool.submit(0)
    pool.publish()
    assert [pool.granted(0, 1, ready=1).step, pool.granted(0, 2, ready=0).step] == [1, 1]


def test_what_could_not_be_written_was_never_granted(pool: Staged) -> None:
    engine = pool.dbs[0].engine

    def fail(*_: Any) -> None:
        raise OperationalError("COMMIT", {}, Exception("no space left"))

    pool.ask(0, 0)
    event.listen(engine, "commit", fail)
    with pytest.raises(OperationalError):
        pool.ask(1)
    event.remove(engine, "commit", fail)
    assert len(pool.rows()) == 1
    assert pool.leased == [1, 1]
    pool.granted(1)


def test_a_crowd_at_two_replicas_gets_every_place_once(pool: Staged) -> None:
    """Each node asks both replicas for both of its files, again and again."""

    def crowd(at: int) -> list[Decision]:
        return [pool.ask(node, counter, at=at) for _ in range(5) for node in range(6) for counter in (0, 1)]

    with ThreadPoolExecutor(2) as threads:
        given = [one for found in threads.map(crowd, range(2)) for one in found]
    rows = pool.rows()
    assert len(rows) == 6, "as many as training can use, over both"
    assert len({(row.node, row.counter) for row in rows}) == 6
    assert {one.lease.id for one in given if isinstance(one, Grant)} == {row.id for row in rows}
    assert pool.leased == [6, 6]


def test_a_submitted_file_frees_its_lease_and_a_reorganisation_takes_it_back(pool: Staged) -> None:
    lease = pool.granted(0, 0)
    pool.submit(0)
    count, refused = pool.replicas[1].in_flight(), pool.ask(0, 0, at=1)
    assert (count.leased, count.pending) == (0, 1)
    assert isinstance(refused, Wait)
    assert (refused.seconds, "on chain already" in refused.reason) == (1.0, True)
    pool.chain.rewind(1)
    pool.view.refresh()
    count = pool.replicas[1].in_flight()
    assert (count.leased, count.pending) == (1, 0)
    assert pool.granted(0, 0, at=1).id == lease.id
