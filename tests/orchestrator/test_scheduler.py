"""The scheduler's rule: never more than training can use, never a place lost, fair when places are short."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.indexer.records import Status
from orchestrator.scheduler import (
    Decision,
    Grant,
    Keep,
    Lease,
    Pace,
    QueuedFile,
    QueueState,
    Refuse,
    Requester,
    Rule,
    Wait,
    in_flight,
    live_leases,
    renew,
)
from orchestrator.scheduler import decide as decide_for

RULE = Rule(files_per_step=2, max_off_policy_steps=1, steps=5, lease_seconds=30.0)
EMPTY = QueueState(published=0, usable=0, trained=0, consumed=(), files=(), leases=(), asked={}, granted={})
A, B, C = Requester("0xa", 0, 0), Requester("0xb", 0, 0), Requester("0xc", 0, 0)


def lease(node: str, counter: int = 0, step: int = 0, at: float = 0.0) -> Lease:
    return Lease(f"{node}/{counter}", node, step, counter, at, at + 30, at + 600)


def decide(rule: Rule, queue: QueueState, node: Requester, counter: int | None, now: float) -> Decision:
    """Of a node that holds its leases among those of `queue`."""
    own = [one for one in queue.leases if one.node == node.address]
    return decide_for(rule, queue, replace(node, leases=own), counter, now)


def test_a_free_place_is_granted_from_the_newest_usable_step() -> None:
    decision = decide(RULE, replace(EMPTY, published=3, usable=2), A, None, 100.0)
    assert decision == Grant(step=2, counter=0, expires=130.0, limit=700.0)


@pytest.mark.parametrize(
    ("queue", "node", "words"),
    [
        (replace(EMPTY, published=None, usable=None), A, "not published"),
        (replace(EMPTY, usable=None), A, "not confirmed"),
        (replace(EMPTY, published=4, usable=2), A, "not confirmed"),
        (replace(EMPTY, published=5, usable=5), A, "are done"),
        (replace(EMPTY, trained=5), A, "are done"),
        (EMPTY, Requester("0xa", 0, 1), "joined late"),
    ],
)
def test_waits_say_why(queue: QueueState, node: Requester, words: str) -> None:
    decision = decide(RULE, queue, node, None, 0.0)
    assert isinstance(decision, Wait)
    assert words in decision.reason


def test_barred_nodes_and_closed_pools_are_refused() -> None:
    assert decide(RULE, EMPTY, replace(A, barred="ejected: reject_weights"), None, 0.0) == Refuse(
        "ejected: reject_weights"
    )
    assert decide(RULE, replace(EMPTY, closed="the pool is closed"), A, None, 0.0) == Refuse("the pool is closed")


def test_asking_again_keeps_the_lease_and_a_newer_step_replaces_it() -> None:
    mine = lease("0xa")
    held = replace(EMPTY, leases=[mine])
    assert decide(RULE, held, A, 0, 10.0) == Keep(mine, 40.0)
    newer = replace(held, published=1, usable=1)
    decision = decide(RULE, newer, A, 0, 10.0)
    assert isinstance(decision, Grant)
    assert decision.replaces == mine.id
    assert decision.step == 1


def test_an_expired_lease_frees_its_place() -> None:
    full = replace(EMPTY, leases=[lease("0xa"), lease("0xb"), lease("0xc"), lease("0xd")])
    assert isinstance(decide(RULE, full, Requester("0xe", 0, 0), None, 29.0), Wait)
    assert isinstance(decide(RULE, full, Requester("0xe", 0, 0), None, 30.0), Grant)


def test_a_replaced_lease_of_a_stale_step_needs_a_place_again() -> None:
    stale = lease("0xa", step=0)
    full = [lease(n, step=3) for n in ("0xb", "0xc", "0xd", "0xe")]
    queue = replace(EMPTY, published=3, usable=3, leases=[stale, *full])
    assert isinstance(decide(RULE, queue, A, 0, 1.0), Wait)


def test_heartbeats_renew_up_to_the_limit_but_never_revive() -> None:
    one = lease("0xa")
    assert renew(RULE, one, 20.0) == 50.0
    assert renew(RULE, one._replace(expires=599.0), 590.0) == 600.0
    assert renew(RULE, one, 31.0) == 30.0


def test_a_node_cannot_hoard_slots() -> None:
    wide = replace(RULE, files_per_step=100)
    queue = replace(EMPTY, leases=[lease("0xa", 0), lease("0xa", 1)])
    assert isinstance(decide(wide, queue, A, 2, 1.0), Wait)
    assert isinstance(decide(wide, queue, replace(A, counter=2), 1, 1.0), Wait)
    assert isinstance(decide(wide, queue, replace(A, counter=1), 2, 1.0), Wait)


def test_rejected_files_free_their_place_accepted_ones_keep_it_until_consumed_or_stale() -> None:
    files = [
        QueuedFile(i, "0xa", 0, state) for i, state in enumerate([Status.REJECTED, Status.ACCEPTED, Status.PENDING])
    ]
    queue = replace(EMPTY, files=files)
    assert in_flight(RULE, queue, 0.0).total == 2
    assert in_flight(RULE, replace(queue, consumed=[1]), 0.0).total == 1
    assert in_flight(RULE, replace(queue, published=2), 0.0).total == 0


def test_a_published_step_implies_consumption_when_the_report_is_missing() -> None:
    files = [QueuedFile(i, "0xa", 0, Status.ACCEPTED) for i in range(4)]
    assert in_flight(RULE, replace(EMPTY, published=1, files=files), 0.0).accepted == 2
    assert in_flight(RULE, replace(EMPTY, published=1, files=files, consumed=[2, 3]), 0.0).accepted == 2


def test_while_a_step_is_not_usable_files_of_the_one_before_must_be_young_enough() -> None:
    wide = Rule(files_per_step=2, max_off_policy_steps=2, steps=9, lease_seconds=30.0)
    queue = replace(EMPTY, published=3, usable=2, leases=[lease(f"0x{n}", step=2) for n in range(4)])
    decision = decide(wide, queue, A, None, 1.0)
    assert isinstance(decision, Wait)
    assert "step 3 is about to be usable" in decision.reason
    assert isinstance(decide(wide, replace(queue, usable=3), A, None, 1.0), Grant)
    assert isinstance(decide(wide, replace(queue, leases=queue.leases[1:]), A, None, 1.0), Grant)  # type: ignore[index]


def test_files_that_will_hardly_be_accepted_count_for_less() -> None:
    full = replace(EMPTY, leases=[lease("0xb", 0), lease("0xb", 1), lease("0xc", 0), lease("0xc", 1)])
    assert isinstance(decide(RULE, full, A, None, 1.0), Wait)
    doubtful = replace(full, pace=Pace(useful={"0xb": 0.4}))
    assert in_flight(RULE, doubtful, 1.0).expected == 3.0
    assert isinstance(decide(RULE, doubtful, A, None, 1.0), Grant)


def test_a_node_that_others_overtake_by_whole_steps_waits_while_others_serve() -> None:
    pace = Pace(making={"0xa": 40.0, "0xb": 11.0}, typical=10.0, step=8.0)
    queue = replace(EMPTY, leases=[lease("0xb", 0), lease("0xb", 1)], pace=pace)
    decision = decide(RULE, queue, A, None, 1.0)
    assert isinstance(decision, Wait)
    assert "take 40 s, others' 10 s" in decision.reason
    assert not decision.queued
    assert isinstance(decide(RULE, queue, B, 2, 1.0), Wait)
    assert isinstance(decide(RULE, queue, C, None, 1.0), Grant)
    # Nothing moves, or the next step lacks files: anybody may serve.
    assert isinstance(decide(RULE, replace(queue, changed=-60.0), A, None, 1.0), Grant)
    assert isinstance(decide(RULE, replace(queue, leases=queue.leases[1:]), A, None, 1.0), Grant)  # type: ignore[index]


def test_a_node_that_lives_but_does_not_deliver_holds_no_place_for_long() -> None:
    pace = Pace(making={"0xb": 10.0}, typical=10.0, step=8.0)
    held = [lease("0xa", counter, step=4)._replace(expires=600.0) for counter in (0, 1)]
    last = replace(EMPTY, published=4, usable=4, leases=held, pace=pace)
    assert isinstance(decide(RULE, last, B, None, 39.0), Wait)
    assert isinstance(decide(RULE, last, B, None, 41.0), Grant)
    # Where nobody has delivered yet, it is not known how long that takes.
    assert isinstance(decide(RULE, replace(last, pace=Pace()), B, None, 41.0), Wait)


def test_the_last_step_gets_no_more_than_it_needs() -> None:
    last = replace(EMPTY, published=4, usable=4, leases=[lease("0xa", step=4), lease("0xb", step=4)])
    decision = decide(RULE, last, C, None, 1.0)
    assert isinstance(decision, Wait)
    assert "last training steps" in decision.reason


def test_files_that_the_trainer_cannot_use_do_not_end_the_run() -> None:
    files = [QueuedFile(i, "0xa", 4, Status.ACCEPTED) for i in range(2)]
    stuck = replace(EMPTY, published=4, usable=4, files=files, consumed=range(100, 108), changed=10.0)
    assert isinstance(decide(RULE, stuck, B, None, 69.0), Wait)
    assert isinstance(decide(RULE, stuck, B, None, 70.0), Grant)
    one_more = replace(stuck, leases=[lease("0xb", step=4, at=70.0)])
    assert isinstance(decide(RULE, one_more, C, None, 71.0), Wait)


def test_the_node_with_less_in_flight_goes_first() -> None:
    queue = replace(EMPTY, leases=[lease("0xa"), lease("0xc"), lease("0xd")], asked={"0xb": 9.0})
    assert isinstance(decide(RULE, queue, A, 1, 10.0), Wait)
    assert isinstance(decide(RULE, queue, B, None, 10.0), Grant)
    # One that stopped asking no longer stands in the way.
    assert isinstance(decide(RULE, queue, A, 1, 20.0), Grant)


def test_equal_nodes_take_turns() -> None:
    queue = replace(EMPTY, files=[QueuedFile(i, "0xd", 0, Status.PENDING) for i in range(3)])
    queue = replace(queue, asked={"0xa": 10.0, "0xb": 10.0}, granted={"0xa": 5.0, "0xb": 2.0})
    assert isinstance(decide(RULE, queue, A, None, 10.0), Wait)
    assert isinstance(decide(RULE, queue, B, None, 10.0), Grant)


@dataclass
class SimulatedRun:
    """A pool as the chain, the trainer and the workers make it; everything a QueueState needs."""

    rule: Rule
    published: int = 0
    now: float = 0.0
    files: list[QueuedFile] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    consumed: set[int] = field(default_factory=set)
    counters: dict[str, int] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    granted: dict[str, float] = field(default_factory=dict)

    def queue(self) -> QueueState:
        return QueueState(
            self.published,
            self.published,
            self.published,
            self.consumed,
            self.files,
            self.leases,
            self.asked,
            self.granted,
        )

    def ask(self, name: str) -> None:
        node = Requester(name, self.counters.get(name, 0), 0)
        before = in_flight(self.rule, self.queue(), self.now)
        decision = decide(self.rule, self.queue(), node, None, self.now)
        if isinstance(decision, Grant):
            self.leases = [one for one in self.leases if one.id != decision.replaces]
            tag = f"{name}/{decision.counter}/{self.now}"
            self.leases.append(
                Lease(tag, name, decision.step, decision.counter, self.now, decision.expires, decision.limit)
            )
            self.granted[name] = self.now
            self.asked.pop(name, None)
            after = in_flight(self.rule, self.queue(), self.now)
            assert after.total <= self.rule.capacity
            assert after.total <= after.needed
            assert decision.step == self.published
        elif isinstance(decision, Wait):
            rivals = [n for n, when in self.asked.items() if n != name and self.now - when <= self.rule.ask_window]
            free = min(self.rule.capacity, before.needed) - before.total
            assert rivals or free <= 0 or before.needed == 0 or "open leases" in decision.reason
            self.asked[name] = self.now

    def submit(self, name: str) -> None:
        mine = [one for one in live_leases(self.leases, self.now) if one.node == name]
        if mine:
            self.leases = [one for one in self.leases if one.id != mine[0].id]
            self.files.append(QueuedFile(len(self.files), name, mine[0].step, Status.PENDING))
            self.counters[name] = mine[0].counter + 1

    def settle(self, accept: bool) -> None:
        for index, one in enumerate(self.files):
            if one.status is Status.PENDING:
                self.files[index] = replace(one, status=Status.ACCEPTED if accept else Status.REJECTED)
                return

    def train(self) -> None:
        oldest = self.published - self.rule.max_off_policy_steps
        ready = [
            one.sequence
            for one in self.files
            if one.status is Status.ACCEPTED and one.sequence not in self.consumed and one.step >= oldest
        ]
        if len(ready) >= self.take() and self.published < self.rule.steps:
            self.consumed.update(ready[: self.take()])
            self.published += 1

    def take(self) -> int:
        return self.rule.files_per_step


class FilteredRun(SimulatedRun):
    """Steps take as many files as they need for a full batch: `takes` says how many, in turn."""

    def __init__(self, rule: Rule, takes: list[int]) -> None:
        super().__init__(rule)
        self.takes = takes

    def take(self) -> int:
        return self.takes[self.published % len(self.takes)]


@settings(max_examples=100, deadline=None)
@given(usual=st.integers(1, 4), level=st.integers(0, 3), data=st.data())
def test_a_run_with_an_online_filter_finishes_without_a_stall(usual: int, level: int, data: st.DataObject) -> None:
    most = data.draw(st.integers(usual, 4 * usual))
    takes = data.draw(st.lists(st.integers(1, most), min_size=1, max_size=6))
    world = FilteredRun(Rule(usual, level, 6, lease_seconds=30.0, stall_seconds=1e9, max_files=most), takes)
    for _ in range(6 * most * (level + 2)):
        if world.published == 6:
            break
        world.now += 1.0
        for name in ("0xa", "0xb", "0xc"):
            world.ask(name)
            world.submit(name)
            world.settle(True)
        world.train()
    assert world.published == 6


names = st.sampled_from(["0xa", "0xb", "0xc"])
actions = st.one_of(
    st.tuples(st.just("ask"), names),
    st.tuples(st.just("submit"), names),
    st.tuples(st.just("settle"), st.booleans()),
    st.tuples(st.just("train")),
    st.tuples(st.just("pass"), st.floats(0.01, 40.0)),
)


@settings(max_examples=150, deadline=None)
@given(
    files=st.integers(1, 4),
    level=st.integers(0, 3),
    steps=st.integers(1, 5),
    script=st.lists(actions, max_size=80),
)
def test_in_flight_never_exceeds_the_rule_and_the_run_always_finishes(
    files: int, level: int, steps: int, script: list[tuple[str, ...]]
) -> None:
    world = SimulatedRun(Rule(files, level, steps, lease_seconds=30.0))
    for action, *args in script:
        if action == "pass":
            world.now += float(args[0])
        else:
            getattr(world, action)(*args)
    # Whatever happened before, honest work from here on ends the run: no place is lost for good.
    for _ in range(40 * steps * files * (level + 2)):
        if world.published == steps:
            break
        world.now += 1.0
        for name in ("0xa", "0xb", "0xc"):
            world.ask(name)
            world.submit(name)
            world.settle(True)
        world.train()
    assert world.published == steps
    if not script:
        assert len(world.files) == steps * files
