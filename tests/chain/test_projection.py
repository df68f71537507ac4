"""The projection over a chain written by hand: published states, failing reducers, rollbacks and threads."""

import copy
import threading
import time
from collections.abc import Iterable

import pytest

from chain.indexer.logs import Batch, Event
from chain.indexer.projection import Projection
from chain.indexer.reducers import REDUCERS, apply, replay
from chain.indexer.state import State
from protocol.verdict import Code
from tests.orchestrator.chain import CHEAT, NODE, VOTER, ScriptedChain

SUBMITTED = ("Pools", "WorkSubmitted")


class SlowChain(ScriptedChain):
    """Takes its time to answer, and tells whether it was asked by two threads at once."""

    asked = 0
    overlaps = 0

    def poll(self) -> Batch:
        self.asked += 1
        self.overlaps += self.asked > 1
        time.sleep(0.0005)
        batch = super().poll()
        self.asked -= 1
        return batch


def opened(kind: type[ScriptedChain] = ScriptedChain) -> ScriptedChain:
    chain = kind()
    chain.create()
    chain.seat(VOTER)
    for key in (NODE, CHEAT):
        chain.join(key)
    chain.publish(0)
    return chain


def life(chain: ScriptedChain) -> Iterable[None]:
    """A pool's whole life, one or two events at a time."""
    for counter in range(20):
        chain.submit(NODE, counter)
        yield
        chain.submit(CHEAT, counter)
        yield
    chain.emit("MusterToken", "Transfer", **{"from": NODE.address, "to": CHEAT.address, "value": 3})
    yield
    chain.emit("Court", "CommitteeDrawn", which=1 << 64, seedBlock=9, drawn=1 << 64 | 5)
    yield
    chain.emit("Court", "VoteCommitted", ballot=1 << 64 | 1 << 16, commitment=b"c" * 32)
    yield
    chain.emit("Court", "LaneRedrawn", pool=1, lane=0, round=1, seedBlock=20)
    yield
    chain.emit("Pools", "MirrorAnnounced", pool=1, sequence=0, sender=NODE.address, uri="https://mirror.example")
    yield
    chain.settle(NODE, 0, Code.ACCEPT)
    yield
    chain.settle(CHEAT, 1, Code.REJECT_WEIGHTS)
    yield
    chain.finalize(CHEAT, 1, Code.REJECT_WEIGHTS, taken=4000, fees=10)
    yield
    chain.claim(NODE, 100)
    chain.fee(VOTER, 5, 1)
    yield
    chain.publish(1)
    yield


def replayed(chain: ScriptedChain) -> State:
    state = replay(chain.events)
    state.head = chain.head
    return state


def test_every_state_is_the_replay_of_its_events_and_never_changes_again() -> None:
    chain = opened()
    projection = Projection(chain)
    kept = [(projection.state, copy.deepcopy(projection.state))]
    for _ in life(chain):
        assert projection.refresh()
        assert projection.state == replayed(chain)
        kept.append((projection.state, copy.deepcopy(projection.state)))
    assert [state == as_it_was for state, as_it_was in kept] == [True] * len(kept)
    versions = [state.version for state, _ in kept]
    assert versions == sorted(set(versions))


def test_what_a_batch_does_not_touch_is_shared_and_not_copied() -> None:
    chain = opened()
    chain.submit(NODE, 0)
    projection = Projection(chain)
    before = projection.state
    chain.submit(CHEAT, 0)
    projection.refresh()
    after = projection.state
    assert after.seats is before.seats
    assert after.submissions[1, 0] is before.submissions[1, 0]
    assert after.lanes[1, 0] is not before.lanes[1, 0]
    assert (len(before.lanes[1, 0].sequences), len(after.lanes[1, 0].sequences)) == (1, 2)


def test_a_new_head_alone_is_seen_but_is_no_new_version() -> None:
    chain = opened()
    projection = Projection(chain)
    version = projection.state.version
    chain.head += 5
    assert not projection.refresh()
    assert (projection.state.head, projection.state.version) == (chain.head, version)


def test_a_reducer_that_fails_half_way_leaves_the_state_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = opened()
    projection = Projection(chain)
    before, as_it_was = projection.state, copy.deepcopy(projection.state)
    right = REDUCERS[SUBMITTED]

    def fails_after_half(state: State, event: Event) -> None:
        right(state, event)
        if event.args["node"] == CHEAT.address:
            raise ArithmeticError("half-way")

    monkeypatch.setitem(REDUCERS, SUBMITTED, fails_after_half)
    chain.submit(NODE, 0)
    chain.submit(CHEAT, 0)
    with pytest.raises(ArithmeticError):
        projection.refresh()
    assert projection.state is before
    assert before == as_it_was
    chain.submit(NODE, 1)
    with pytest.raises(ArithmeticError):
        projection.refresh()
    assert projection.state is before
    monkeypatch.setitem(REDUCERS, SUBMITTED, right)
    # No new event is needed, and none is lost or applied twice.
    assert projection.refresh()
    assert projection.state == replayed(chain)
    assert projection.state.version == before.version + 1
    assert not projection.refresh()


def test_a_rollback_is_not_forgotten_when_reading_the_history_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chain.indexer.projection.FINAL_BLOCKS", 0)
    chain = opened()
    chain.submit(NODE, 0)
    projection = Projection(chain)
    held = projection.state
    chain.rewind(1)
    with monkeypatch.context() as broken:
        broken.setattr(chain, "history", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            projection.refresh()
    assert (projection.state is held, projection.state.generation) == (True, 0)
    assert projection.refresh()
    assert (projection.state.submissions, projection.state.generation) == ({}, 1)


def test_a_reader_keeps_its_state_through_a_rollback() -> None:
    chain = opened()
    for counter in range(3):
        chain.submit(NODE, counter)
    projection = Projection(chain)
    held = projection.state
    chain.rewind(2)
    chain.submit(CHEAT, 0)
    assert projection.refresh()
    assert [sub.node for sub in held.submissions_of(1)] == [NODE.address] * 3
    assert [sub.node for sub in projection.state.submissions_of(1)] == [NODE.address, CHEAT.address]
    assert (held.generation, projection.state.generation) == (0, 1)
    assert projection.state.version > held.version
    assert projection.state == replayed(chain)


def test_threads_read_whole_states_while_others_refresh() -> None:
    chain = opened(SlowChain)
    assert isinstance(chain, SlowChain)
    projection = Projection(chain)
    lock, done, wrong = threading.Lock(), threading.Event(), list[str]()

    def read() -> None:
        last = -1
        while not done.is_set():
            state = projection.state
            pool, account = state.pools[1], state.accounts[1, NODE.address]
            filed = sum(len(lane.sequences) for lane in state.lanes.values())
            counts = {len(pool.sequences), len(state.submissions), len(list(state.submissions.items())), filed}
            if counts != {account.counter} or account.counter != len(account.sequences):
                wrong.append(f"{counts} submissions at counter {account.counter}")
            if state.version < last:
                wrong.append("an older state after a newer one")
            last = state.version

    def refresh() -> None:
        for _ in range(150):
            with lock:
                chain.submit(NODE, len(chain.events) - start)
            projection.refresh()

    start = len(chain.events)
    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=refresh) for _ in range(2)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert (wrong, chain.overlaps) == ([], 0)
    assert len(projection.state.submissions) == 300
    assert projection.state == replayed(chain)


def test_a_reorganisation_costs_what_is_not_final(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = opened()
    for counter in range(30):
        chain.submit(NODE, counter)
        chain.head += 100
    projection = Projection(chain)
    for counter in range(30, 60):
        chain.submit(NODE, counter)
        chain.head += 100
        projection.refresh()
    applied = list[Event]()

    def counted(state: State, event: Event) -> None:
        applied.append(event)
        apply(state, event)

    monkeypatch.setattr("chain.indexer.projection.apply", counted)
    monkeypatch.setattr(chain, "history", lambda: pytest.fail("the history is not read again"))
    chain.head -= 100
    chain.rewind(1)
    chain.submit(CHEAT, 0)
    assert projection.refresh()
    assert 0 < len(applied) < 20
    monkeypatch.undo()
    assert projection.state == replayed(chain)


def test_a_reorganisation_below_the_checkpoint_is_replayed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chain.indexer.projection.FINAL_BLOCKS", 3)
    chain = opened()
    projection = Projection(chain)
    for counter in range(20):
        chain.submit(NODE, counter)
        projection.refresh()
    chain.rewind(10)
    chain.submit(CHEAT, 0)
    projection.refresh()
    assert projection.state == replayed(chain)
