"""Slot requests that are answered together: each gets what it would have got alone, and nobody suffers for others."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from chain.indexer.projection import Projection
from orchestrator.db import Database
from orchestrator.deciding import Ask, Told
from orchestrator.leases import Leases
from orchestrator.scheduler import Grant, Keep, Requester, decide
from orchestrator.supply import Rule
from orchestrator.together import Together
from orchestrator.watch import Watch
from protocol.accounts import Account as Key
from tests.orchestrator.chain import ScriptedChain
from tests.orchestrator.databases import KINDS, empty_database

NODES = [Key.from_key(bytes([50 + number]) * 32) for number in range(6)]
ASKS = st.builds(
    lambda node, counter, ready: Ask(NODES[node].address, counter, ready),
    st.integers(0, 5),
    st.sampled_from([None, None, None, 0, 1, 2]),
    st.sampled_from([None, 0, 1, 2]),
)
MOVES = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 1), st.lists(ASKS, min_size=1, max_size=7)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 0.4, 3.0, 29.0])),
    st.tuples(st.just("publish")),
    st.tuples(st.just("submit"), st.integers(0, 5)),
    st.tuples(st.just("beat"), st.integers(0, 1)),
    st.tuples(st.just("restart"), st.integers(0, 1)),
)


class Staged:
    """Two replicas over one database, and a chain."""

    def __init__(self, url: str, files_per_step: int = 3, nodes: int = 6, together: bool = True) -> None:
        self.now, self.step, self.counters = 1000.0, 0, [0] * nodes
        self.together = together
        self.chain = ScriptedChain()
        self.chain.create()
        for node in NODES[:nodes]:
            self.chain.join(node)
        self.chain.publish(0)
        self.watch = Watch(Projection(self.chain), 1, confirmations=0)
        self.watch.refresh()
        self.rule = Rule(files_per_step, 1, 8)
        self.dbs = [Database(url) for _ in range(2)]
        self.replicas = [self._replica(number) for number in range(2)]

    def _replica(self, number: int) -> Leases:
        return Leases(self.dbs[number], self.watch, self.rule, 100, lambda: self.now)

    def close(self) -> None:
        for db in self.dbs:
            db.close()

    def play(self, move: Sequence[Any]) -> Any:
        """What a move shows of itself; ids of leases, which are random, left out."""
        kind, *rest = move
        if kind == "ask":
            leases, asks = self.replicas[rest[0]], rest[1]
            groups = [asks] if self.together else [[one] for one in asks]
            return [self._plain(told) for group in groups for told in leases.ask_together(group)]
        if kind == "wait":
            self.now += rest[0]
        elif kind == "publish":
            self.step += 1
            self.chain.publish(self.step)
        elif kind == "submit":
            self.chain.submit(NODES[rest[0]], self.counters[rest[0]], self.step)
            self.counters[rest[0]] += 1
        elif kind == "beat":
            for held in self.rows():
                self.replicas[rest[0]].renew(held.node, held.id)
        else:
            for one in self.replicas:
                one.write()
            self.replicas[rest[0]] = self._replica(rest[0])
        self.watch.refresh()
        return None

    def rows(self) -> list[Any]:
        with self.dbs[0].reading() as session:
            return list(session.execute(text("SELECT * FROM slots ORDER BY granted, node, counter, step")))

    def written(self) -> list[tuple[Any, ...]]:
        """All leases of the database, after the replicas wrote what they had in memory."""
        for one in self.replicas:
            one.write()
        return [(one.node, one.step, one.counter, one.granted, one.expires, one.ends, one.open) for one in self.rows()]

    def _plain(self, told: Told | Exception) -> Any:
        assert not isinstance(told, Exception), told
        decision, slot = told
        known = {one.id: (one.node, one.step, one.counter, one.granted) for one in self.rows()}
        assert (slot in known) is isinstance(decision, Grant | Keep)
        held = known[slot] if slot is not None else None
        if isinstance(decision, Keep):
            return held, decision.expires
        if isinstance(decision, Grant):
            decision = replace(decision, replaces=str(known.get(decision.replaces or "")))
        return held, decision


@pytest.fixture(params=KINDS)
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Staged]:
    made = Staged(empty_database(request.param, tmp_path))
    yield made
    made.close()


def knows_holders(leases: Leases) -> bool:
    """Whether every open lease, and nothing else, is known by its node."""
    store = leases._store
    held = sorted(lease for node in NODES for lease in store.held_by(node.address))
    return held == sorted(store._open.values()) and set(store._held) == {lease.node for lease in held}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(MOVES, min_size=1, max_size=14))
def test_together_and_alone_are_told_the_same(moves: list[Any]) -> None:
    """By either replica, over steps, submissions, leases that run out, replacements and restarts."""
    with TemporaryDirectory() as folder:
        pools = [Staged(f"sqlite:///{folder}/{word}.db", together=word == "together") for word in ("together", "alone")]
        for move in moves:
            together, alone = (one.play(move) for one in pools)
            assert together == alone
            assert [one.in_flight() for one in pools[0].replicas] == [one.in_flight() for one in pools[1].replicas]
            assert all(map(knows_holders, pools[0].replicas))
        assert pools[0].written() == pools[1].written()
        for one in pools:
            one.close()


def test_one_group_is_one_transaction(pool: Staged) -> None:
    begun: list[Any] = []
    event.listen(pool.dbs[0].engine, "commit", begun.append)
    told = pool.play(("ask", 0, [Ask(node.address) for node in NODES]))
    assert len([held for held, _ in told if held]) == 6
    assert len(begun) == 1 + 6, "and a look by this test for each"


def test_places_are_given_in_the_order_in_which_nodes_asked(pool: Staged) -> None:
    asks = [Ask(NODES[number].address, counter) for counter in (0, 1) for number in (3, 1, 4, 0)]
    told = pool.play(("ask", 0, asks))
    assert [held[0] for held, _ in told if held] == [ask.address for ask in asks[:6]], "six may be in flight"
    assert "in flight, as many as training can use" in told[6][1].reason


def test_who_was_told_to_wait_comes_first_in_the_next_group_too(pool: Staged) -> None:
    first, last = Ask(NODES[0].address), Ask(NODES[5].address)
    pool.play(("ask", 0, [first]))
    pool.play(("wait", 3.0))
    pool.play(("ask", 0, [Ask(node.address, counter) for node in NODES[1:4] for counter in (0, 1)]))
    pool.play(("wait", 24.0))
    assert pool.play(("ask", 0, [last]))[0][0] is None
    pool.play(("wait", 3.6))
    told = pool.play(("ask", 0, [first, last]))
    assert [held and held[0] for held, _ in told] == [None, last.address], "one place is free, and it was there first"


def test_a_lease_may_be_replaced_by_the_group_that_made_it(pool: Staged) -> None:
    node = NODES[0].address
    pool.play(("ask", 0, [Ask(node, 0)]))
    pool.play(("publish",))
    told = pool.play(("ask", 1, [Ask(node, 0, ready=0), Ask(node, 1, ready=0), Ask(node, 1, ready=1), Ask(node, 1)]))
    assert [held[1] for held, _ in told] == [0, 0, 1, 1]
    open_now = [(one.counter, one.step) for one in pool.rows() if one.open]
    assert open_now == [(0, 0), (1, 1)]
    pool.replicas[0].renew(node, "unknown")
    assert [one.in_flight().leased for one in pool.replicas] == [2, 2]


def test_a_lease_that_was_replaced_holds_no_place(pool: Staged) -> None:
    pool.play(("ask", 0, [Ask(node.address) for node in NODES[:5]]))
    pool.play(("publish",))
    told = pool.play(("ask", 0, [Ask(NODES[0].address), Ask(NODES[5].address), Ask(NODES[1].address, 1)]))
    assert [held and held[:2] for held, _ in told] == [(NODES[0].address, 1), (NODES[5].address, 1), None]


def test_who_got_the_newest_step_is_given_none_of_the_one_before(pool: Staged) -> None:
    node = NODES[0].address
    pool.play(("ask", 0, [Ask(node, 0)]))
    pool.play(("submit", 0))
    pool.play(("publish",))
    told = pool.play(("ask", 0, [Ask(node, 1, ready=1), Ask(node, 2, ready=0)]))
    assert [held[1:3] for held, _ in told] == [(1, 1), (1, 2)]


def test_whoever_cannot_be_decided_for_harms_nobody_else(pool: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(rule: Rule, supply: Any, node: Requester, *rest: Any) -> Any:
        if node.address == NODES[1].address:
            raise ZeroDivisionError("of this one")
        return decide(rule, supply, node, *rest)

    monkeypatch.setattr("orchestrator.deciding.decide", broken)
    told = pool.replicas[0].ask_together([Ask(node.address) for node in NODES[:3]])
    assert [isinstance(one, Exception) for one in told] == [False, True, False]
    assert {one.node for one in pool.rows()} == {NODES[0].address, NODES[2].address}
    with pytest.raises(ZeroDivisionError):
        pool.replicas[0].ask(NODES[1].address, None)
    monkeypatch.undo()
    assert isinstance(pool.replicas[0].ask(NODES[1].address, None)[0], Grant)


def test_what_could_not_be_written_was_never_granted(pool: Staged) -> None:
    asks, engine = [Ask(node.address) for node in NODES], pool.dbs[0].engine

    def fail(*_: Any) -> None:
        raise OperationalError("COMMIT", {}, Exception("no space left"))

    event.listen(engine, "commit", fail)
    with pytest.raises(OperationalError):
        pool.replicas[0].ask_together(asks)
    event.remove(engine, "commit", fail)
    assert pool.rows() == []
    assert [one.in_flight().leased for one in pool.replicas] == [0, 0]
    told = pool.replicas[1].ask_together(asks)
    assert all(not isinstance(one, Exception) and isinstance(one[0], Grant) for one in told)
    assert len(pool.rows()) == pool.replicas[1].in_flight().leased == 6


def test_a_crowd_at_two_replicas_gets_every_place_once(pool: Staged) -> None:
    """From two event loops at once, each node asking both replicas for both of its files, again and again."""

    def crowd(number: int) -> list[Told]:
        queue = Together("slots", pool.replicas[number].ask_together)

        async def ask_all() -> list[Told]:
            asks = [Ask(node.address, counter) for node in NODES for counter in (0, 1)]
            return list(await asyncio.gather(*[queue.ask(one) for _ in range(5) for one in asks]))

        return asyncio.run(ask_all())

    with ThreadPoolExecutor(2) as threads:
        told = [one for found in threads.map(crowd, range(2)) for one in found]
    rows = pool.rows()
    assert len(rows) == 6, "as many as training can use, over both"
    assert len({(one.node, one.counter) for one in rows}) == 6
    assert {slot for _, slot in told if slot} == {one.id for one in rows}
    for one in pool.replicas:
        one.renew(NODES[0].address, "unknown")
        assert one.in_flight().leased == 6
