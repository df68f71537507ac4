"""The projection over a chain written by hand: published states, failing reducers, rollbacks and threads."""

import copy
import threading
import time
from collections.abc import Callable, Iterable

import pytest

from benchmarks.support.schedules import whole
from chain.indexer.logs import Batch, Event
from chain.indexer.projection import Projection
from chain.indexer.records import Account, Pool
from chain.indexer.reducers import Args, Pools, Seats, apply
from chain.indexer.state import State
from protocol.verdict import Code
from tests.orchestrator.chain import CHEAT, NODE, VOTER, ScriptedChain, replay


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
    for number in range(40):
        chain.submit((NODE, CHEAT)[number % 2], number // 2)
        yield
    chain.emit("MusterToken", "Transfer", **{"from": NODE.address, "to": CHEAT.address, "value": 3})
    yield
    chain.emit("Court", "CommitteeDrawn", which=1 << 64, seedBlock=9, drawn=1 << 64 | 5)
    yield
    chain.emit("Court", "VoteCommitted", ballot=1 << 64 | 1 << 16, commitment=b"c" * 32)
    yield
    chain.emit("Court", "LaneRedrawn", pool=1, lane=0, round=1, seedBlock=20)
    yield
    chain.emit("Court", "MirrorAnnounced", pool=1, sequence=0, sender=NODE.address, uri="https://mirror.example")
    yield
    chain.settle(NODE, 0, Code.ACCEPT)
    yield
    chain.settle(CHEAT, 1, Code.REJECT_WEIGHTS)
    yield
    chain.finalize(CHEAT, 1, Code.REJECT_WEIGHTS, taken=4000, fees=10)
    yield
    chain.claim(NODE, 100)
    chain.fee(5, 1)
    yield
    chain.publish(1)
    yield


def followed() -> tuple[ScriptedChain, Projection]:
    """An opened chain and its projection."""
    chain = opened()
    return chain, Projection(chain)


def replayed(chain: ScriptedChain) -> State:
    state = replay(chain.events)
    state.head = chain.head
    return state


def busy(chain: ScriptedChain, files: int, refresh: Callable[[], object]) -> None:
    """Files of two nodes, of which each is settled sixteen files later, with pay and an announced mirror."""
    first = chain.sequence
    for sequence in range(first, first + files):
        chain.submit((NODE, CHEAT)[sequence % 2], sequence // 2)
        if sequence >= 16:
            done, key = sequence - 16, (NODE, CHEAT)[sequence % 2]
            chain.settle(key, done, Code.MALFORMED if done % 5 == 0 else Code.ACCEPT)
            if done % 5 == 0:
                chain.finalize(key, done, Code.MALFORMED, taken=0, fees=0)
            chain.emit("Court", "MirrorAnnounced", pool=1, sequence=done, sender=key.address, uri=f"https://m/{done}")
            chain.fee(done, 1)
        refresh()


def claims(state: State) -> list[object]:
    hints = [state.claim_hint(1, key.address, state.time) for key in (NODE, CHEAT)]
    return [*hints, state.claimable_units(1, NODE.address, state.time)]


@pytest.fixture
def archived(monkeypatch: pytest.MonkeyPatch) -> tuple[ScriptedChain, Projection]:
    """A chain with a long history, and its projection."""
    monkeypatch.setattr("chain.indexer.projection.FINAL_BLOCKS", 20)
    chain, projection = followed()
    busy(chain, 200, projection.refresh)
    return chain, projection


def test_final_lanes_leave_memory_and_are_there_all_the_same(archived: tuple[ScriptedChain, Projection]) -> None:
    chain, projection = archived
    for units in (0, 300, 9000):
        if units:
            chain.claim(NODE, units)
            projection.refresh()
        state, expected = projection.state, replayed(chain)
        assert (len(state.submissions), len(state.lanes)) < (64, 5)
        assert len(state.payments) < 64
        assert whole(state) == whole(expected)
        assert claims(state) == claims(expected)
        assert [list(state.files_since(1, 0))[-1].sequence, len(state.accepted(1))] == [0, len(expected.accepted(1))]
        holders: list[Pool | Account] = [state.pools[1], *state.accounts.values()]
        held, named = state.accounts[1, NODE.address].sequences, expected.accounts[1, NODE.address].sequences
        assert max(len(holder.sequences.kept) for holder in holders) < 64
        assert (held[3], held[-90], held[2:95:9], list(reversed(held))) == (
            named[3], named[-90], named[2:95:9], list(reversed(named)),
        )  # fmt: skip
        for beyond in (len(named), -len(named) - 1):
            with pytest.raises(IndexError):
                held[beyond]
    assert (1, 10**6) not in state.submissions
    assert state.lanes.get((1, 10**6)) is None


def test_numbers_behind_a_file_that_is_not_final_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks for what can be claimed begins with them."""
    monkeypatch.setattr("chain.indexer.projection.FINAL_BLOCKS", 20)
    chain, projection = followed()
    settle, finalize = chain.settle, chain.finalize
    monkeypatch.setattr(chain, "settle", lambda key, done, code: done and settle(key, done, code))
    monkeypatch.setattr(chain, "finalize", lambda key, done, code, **sums: done and finalize(key, done, code, **sums))
    monkeypatch.setattr(chain, "fee", lambda paid, burnt: None)
    busy(chain, 200, projection.refresh)
    state, expected = projection.state, replayed(chain)
    assert dict.get(state.lanes, (1, 0)) is not None
    assert state.pools[1].sequences.archived == state.accounts[1, NODE.address].sequences.archived == 0
    assert whole(state) == whole(expected)
    assert claims(state) == claims(expected)


@pytest.mark.parametrize(("pool", "sequence"), [(1, 1 << 70), (1 << 63, 0), (1, (1 << 256) - 1), ((1 << 256) - 1, 3)])
def test_a_mirror_of_a_number_that_no_file_has_stops_nobody(pool: int, sequence: int) -> None:
    """The contract takes any two numbers from anybody."""
    chain, projection = followed()
    chain.emit("Court", "MirrorAnnounced", pool=pool, sequence=sequence, sender=NODE.address, uri="https://m.example")
    chain.submit(NODE, 0)
    projection.refresh()
    assert list(projection.state.submissions) == [(1, 0)]
    assert not projection.state.mirrors
    assert (pool, sequence) not in projection.state.submissions


def test_an_archived_file_that_an_event_touches_changes(archived: tuple[ScriptedChain, Projection]) -> None:
    chain, projection = archived
    held, as_it_was = projection.state, copy.deepcopy(whole(projection.state))
    chain.emit("Pools", "FileForfeited", pool=1, sequence=3, amount=5)
    chain.emit("Court", "MirrorAnnounced", pool=1, sequence=40, sender=NODE.address, uri="https://late.example")
    projection.refresh()
    assert projection.state.submissions[1, 3].forfeited
    assert whole(projection.state) == whole(replayed(chain))
    assert whole(held) == as_it_was
    busy(chain, 60, projection.refresh)
    assert dict.get(projection.state.submissions, (1, 3)) is None, "it is archived again"
    assert whole(projection.state) == whole(replayed(chain))


def test_a_restart_reads_the_checkpoint_and_what_came_after_it(
    archived: tuple[ScriptedChain, Projection], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, _ = archived
    history, read = chain.history, list[Event]()

    def counted(after: int = -1) -> Iterable[Event]:
        read[:] = history(after)
        return read

    monkeypatch.setattr(chain, "history", counted)
    again = Projection(chain)
    assert 0 < len(read) < 50
    assert whole(again.state) == whole(replayed(chain))
    busy(chain, 60, again.refresh)
    assert whole(again.state) == whole(replayed(chain))
    monkeypatch.setattr("chain.indexer.store._version", lambda: "another")
    assert whole(Projection(chain).state) == whole(replayed(chain))
    assert len(read) == len(chain.events)


@pytest.mark.parametrize("depth", [5, 30, 400])
def test_reorganisations_leave_no_trace_in_the_archive(archived: tuple[ScriptedChain, Projection], depth: int) -> None:
    chain, projection = archived
    chain.rewind(depth)
    chain.sequence = len(replayed(chain).pools[1].sequences)
    projection.refresh()
    assert whole(projection.state) == whole(replayed(chain))
    for counter in range(90):
        chain.submit(CHEAT, counter)
        projection.refresh()
    assert whole(projection.state) == whole(replayed(chain)) == whole(Projection(chain).state)


def test_every_state_is_the_replay_of_its_events_and_never_changes_again() -> None:
    chain, projection = followed()
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
    chain, projection = followed()
    version = projection.state.version
    chain.head += 5
    assert not projection.refresh()
    assert (projection.state.head, projection.state.version) == (chain.head, version)


def test_a_reducer_that_fails_half_way_leaves_the_state_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, projection = followed()
    before, as_it_was = projection.state, copy.deepcopy(projection.state)
    right = Pools.WorkSubmitted

    def fails_after_half(self: Pools, args: Args) -> None:
        right(self, args)
        if args["node"] == CHEAT.address:
            raise ArithmeticError("half-way")

    monkeypatch.setattr(Pools, "WorkSubmitted", fails_after_half)
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
    monkeypatch.setattr(Pools, "WorkSubmitted", right)
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
        broken.setattr(chain, "history", lambda after: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            projection.refresh()
    assert (projection.state is held, projection.state.generation) == (True, 0)
    assert projection.refresh()
    assert (projection.state.submissions, projection.state.generation) == ({}, 1)
    assert projection.state.version > held.version
    assert [sub.node for sub in held.submissions_of(1)] == [NODE.address]


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
    monkeypatch.setattr(chain, "history", lambda after: pytest.fail("the history is not read again"))
    chain.head -= 100
    chain.rewind(1)
    chain.submit(CHEAT, 0)
    assert projection.refresh()
    assert 0 < len(applied) < 20
    monkeypatch.undo()
    assert projection.state == replayed(chain)


def test_a_refresh_catches_up_however_many_polls_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, projection = followed()
    for counter in range(7):
        chain.submit(NODE, counter)

    def poll() -> Batch:
        new = chain.events[chain._polled : chain._polled + 3]
        chain._polled += len(new)
        return Batch(None, new, new[-1].block if new else chain.head, more=chain._polled < len(chain.events))

    monkeypatch.setattr(chain, "poll", poll)
    assert projection.refresh()
    assert projection.state == replayed(chain)
    assert not projection.refresh()


def test_a_seat_that_is_opened_again_stays_frozen_and_keeps_its_fees() -> None:
    opened: Args = {"seat": 1, "owner": "0xa", "voter": "0xb", "bond": 5, "activeFrom": 2}
    seats = Seats(State(), Event(1, b"", "", 0, "Seats", "SeatOpened", opened, 0))
    seats.SeatOpened(opened)
    first = seats.state.seats[1]
    first.frozen, first.fees, first.closed, first.groups = 2, 7, True, (3,)
    seats.SeatOpened(opened | {"activeFrom": 9})
    seat = seats.state.seats[1]
    assert (seat.frozen, seat.fees, seat.closed, seat.groups, seat.active_from) == (2, 7, False, (), 9)
