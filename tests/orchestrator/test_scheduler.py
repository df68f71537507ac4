"""The scheduler's rule: never more than training can use, never a place lost, fair when places are short."""

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.indexer.records import Pool, Status, Step, Submission
from orchestrator.scheduling.scheduler import (
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
    measure,
    renew,
)
from orchestrator.scheduling.scheduler import decide as decide_for
from protocol.config import DataConfig
from protocol.verdict import Code
from tests.orchestrator.chain import CHEAT, NODE, TERMS
from tests.orchestrator.conftest import Desk, is_error
from tests.validator.world import CONFIG

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
        mine = [one for one in self.leases if one.node == name and one.expires > self.now]
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


# What the scheduler is told about recent files and steps.


def pool(*times: int) -> Pool:
    steps = [Step(k, b"m" * 32, bytes(32), at + 1, at, at, "0x") for k, at in enumerate(times)]
    return Pool(1, "0xo", b"c" * 32, TERMS, 3600, 1, steps=steps)


def file(sequence: int, node: str, counter: int, time: int, code: Code = Code.NONE) -> Submission:
    return Submission(1, sequence, node, 0, counter, 10, 2, bytes(32), bytes(32), time, time, "0x", code=int(code))


def test_a_new_pool_has_no_pace() -> None:
    pace = measure(pool(100), [], {})
    assert (pace.making, pace.typical, pace.step, pace.useful) == ({}, 0.0, 0.0, {})


def test_the_newest_steps_tell_how_long_a_step_takes() -> None:
    assert measure(pool(0, 1000, 1004, 1010, 1014), [], {}).step == 5.0
    assert measure(pool(*range(0, 900, 100), *range(810, 890, 10)), [], {}).step == 10.0


def test_nodes_are_measured_by_their_own_newest_files() -> None:
    grants = {("0xa", n, 0): 100.0 + 10 * n for n in range(30)} | {("0xb", 0, 0): 100.0}
    files = [file(n, "0xa", n, 103 + 10 * n + 50 * (n < 10), Code.ACCEPT) for n in range(30)]
    files.append(file(30, "0xb", 0, 140, Code.ACCEPT))
    pace = measure(pool(0), files, grants)
    assert pace.making == {"0xa": 3.0, "0xb": 40.0}
    assert pace.typical == 3.0
    # Without a lease (or with one of long ago) a file says nothing.
    assert measure(pool(0), files, {}).making == {}


def test_fast_garbage_does_not_make_honest_nodes_slow() -> None:
    grants = {(f"0x{n}", 0, 0): 100.0 for n in range(20)} | {("0xa", 0, 0): 100.0}
    junk = [file(n, f"0x{n}", 0, 101, Code.REJECT_WEIGHTS if n % 2 else Code.NONE) for n in range(20)]
    pace = measure(pool(0), [*junk, file(20, "0xa", 0, 130, Code.ACCEPT)], grants)
    assert (pace.making, pace.typical) == ({"0xa": 30.0}, 30.0)


def test_trust_falls_with_files_that_were_not_accepted_and_comes_back() -> None:
    bad = [file(n, "0xa", n, 100, Code.REJECT_WEIGHTS) for n in range(4)]
    good = [file(4 + n, "0xa", 4 + n, 100, Code.ACCEPT) for n in range(16)]
    waiting = [file(20, "0xb", 0, 100)]
    assert measure(pool(0), [*bad, *waiting], {}).useful == {"0xa": 0.5}
    assert measure(pool(0), bad + good, {}).useful == {"0xa": 1.0}


# Leases against a simulated pool with latencies: training always progresses, and little comes too late.


TICK = 0.25
PACED = Rule(files_per_step=4, max_off_policy_steps=2, steps=30, lease_seconds=30.0)


@dataclass
class Maker:
    """A node: how long its files take, how many of them are bad, and when it vanishes in the middle of one. One that
    `hangs` vanishes as well, but goes on sending heartbeats."""

    seconds: float
    bad: float = 0.0
    dies: float = 1e9
    hangs: bool = False
    free_at: float = 0.0
    lease: Lease | None = None
    counter: int = 0


@dataclass
class SimulatedPool:
    """Everything that happens between a grant and the next policy step, with times in seconds."""

    rule: Rule
    makers: dict[str, Maker]
    verdict: tuple[float, float] = (6.0, 6.0)
    confirm: float = 2.5
    train: float = 1.5
    seed: int = 0
    now: float = 0.0
    published: list[float] = field(default_factory=lambda: [0.0])
    training: float | None = None
    files: list[QueuedFile] = field(default_factory=list)
    due: dict[int, tuple[float, bool]] = field(default_factory=dict)
    making: dict[str, list[float]] = field(default_factory=dict)
    consumed: set[int] = field(default_factory=set)
    batch: list[int] = field(default_factory=list)
    asked: dict[str, float] = field(default_factory=dict)
    granted: dict[str, float] = field(default_factory=dict)
    changed: float = 0.0
    most: float = 0.0
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    @property
    def step(self) -> int:
        return len(self.published) - 1

    @property
    def usable(self) -> int | None:
        known = [step for step, at in enumerate(self.published) if at + self.confirm <= self.now]
        return known[-1] if known else None

    def pace(self) -> Pace:
        gaps = [b - a for a, b in zip(self.published, self.published[1:], strict=False)][-8:]
        recent = {name: times[-16:] for name, times in self.making.items()}
        done = Counter(f.node for f in self.files if f.status is not Status.PENDING)
        good = Counter(f.node for f in self.files if f.status is Status.ACCEPTED)
        return Pace(
            making={name: median(times) for name, times in recent.items()},
            typical=median([one for times in recent.values() for one in times]) if recent else 0.0,
            step=median(gaps) if gaps else 0.0,
            useful={name: (good[name] + 4) / (done[name] + 4) for name in done},
        )

    def queue(self) -> QueueState:
        leases = [maker.lease for maker in self.makers.values() if maker.lease is not None]
        return QueueState(
            self.step,
            self.usable,
            self.step,
            self.consumed,
            self.files,
            leases,
            self.asked,
            self.granted,
            changed=self.changed,
            pace=self.pace(),
        )

    def tick(self) -> None:
        self.now += TICK
        self._work()
        self._judge()
        self._train()

    def _work(self) -> None:
        for name, maker in self.makers.items():
            if self.now >= maker.dies or self.now < maker.free_at:
                continue
            if maker.lease is not None:
                self._submit(name, maker, maker.lease)
            self._ask(name, maker)

    def _submit(self, name: str, maker: Maker, lease: Lease) -> None:
        sequence = len(self.files)
        self.files.append(QueuedFile(sequence, name, lease.step, Status.PENDING))
        good = self.random.random() >= maker.bad
        self.due[sequence] = (self.now + self.random.uniform(*self.verdict), good)
        self.making.setdefault(name, []).append(self.now - lease.granted)
        maker.lease, maker.counter = None, maker.counter + 1

    def _ask(self, name: str, maker: Maker) -> None:
        before = in_flight(self.rule, self.queue(), self.now)
        own = (maker.lease,) if maker.lease else ()
        node = Requester(name, maker.counter, 0, leases=own)
        decision = decide_for(self.rule, self.queue(), node, None, self.now)
        self.asked.pop(name, None)
        if isinstance(decision, Grant):
            limit = decision.limit + 1e9 * (not maker.hangs)  # heartbeats, and a file is never given up
            maker.lease = Lease(f"{name}/{maker.counter}", name, decision.step, maker.counter, self.now, limit, limit)
            maker.free_at = self.now + maker.seconds * self.random.uniform(0.8, 1.2)
            self.granted[name] = self.now
            self.most = max(self.most, before.total + 1)
            room = self.rule.files_per_step * (self.rule.max_off_policy_steps + 1 - (self.step - decision.step))
            assert before.expected + 1 <= room + 1e-5 or self.now - self.changed >= self.rule.stall_seconds
            if maker.dies <= maker.free_at + TICK and not maker.hangs:
                maker.lease = maker.lease._replace(expires=self.now + self.rule.lease_seconds)
        elif isinstance(decision, Wait):
            # Asking again costs nothing here; what matters is that the answer changes in time.
            maker.free_at = self.now + min(decision.seconds, 5.0)
            if decision.queued:
                self.asked[name] = self.now

    def _judge(self) -> None:
        for sequence, (at, good) in list(self.due.items()):
            if at <= self.now:
                state = Status.ACCEPTED if good else Status.REJECTED
                self.files[sequence] = replace(self.files[sequence], status=state)
                self.changed = self.now
                del self.due[sequence]

    def _train(self) -> None:
        if self.training is not None:
            if self.now >= self.training:
                self.consumed.update(self.batch)
                self.published.append(self.now)
                self.training, self.changed = None, self.now
            return
        ready = sorted(
            (f for f in self.left() if f.step >= self.step - self.rule.max_off_policy_steps), key=lambda f: f.step
        )
        if len(ready) >= self.rule.files_per_step:
            self.batch = [f.sequence for f in ready[: self.rule.files_per_step]]
            self.training = self.now + self.train

    def left(self) -> list[QueuedFile]:
        return [f for f in self.files if f.status is Status.ACCEPTED and f.sequence not in self.consumed]

    def run(self, limit: float) -> "SimulatedPool":
        while self.step < self.rule.steps:
            assert self.now < limit, f"stuck at step {self.step} of {self.rule.steps} after {self.now:.0f} s"
            self.tick()
        return self

    @property
    def wasted(self) -> float:
        """Share of accepted files that were never trained on."""
        accepted = sum(f.status is Status.ACCEPTED for f in self.files)
        return len(self.left()) / accepted


def test_equal_nodes_and_even_latencies_waste_nothing_and_keep_the_trainer_supplied() -> None:
    pool = SimulatedPool(PACED, {name: Maker(1.0) for name in "abcd"}).run(400)
    assert pool.wasted == 0
    assert pool.most == PACED.capacity
    # A round trip is confirm 2.5 + make 1 + verdict 6 + train 1.5 = 11 s; three steps share one.
    assert pool.now / PACED.steps < 5.0


@pytest.mark.parametrize(("verdict", "most"), [((6.0, 7.0), 0.02), ((4.0, 9.0), 0.1), ((3.0, 12.0), 0.16)])
def test_uneven_verdicts_waste_little(verdict: tuple[float, float], most: float) -> None:
    """Counting files in flight alone, whatever their policy step, wastes a third in each of these worlds."""
    makers = {"a": 0.5, "b": 1.5, "c": 1.0}
    runs = [
        SimulatedPool(PACED, {n: Maker(s) for n, s in makers.items()}, verdict, seed=seed).run(600) for seed in range(8)
    ]
    assert sum(pool.wasted for pool in runs) / len(runs) < most


def test_cheaters_do_not_starve_the_trainer() -> None:
    honest = SimulatedPool(PACED, {name: Maker(1.0) for name in "abc"}, verdict=(5.0, 7.0)).run(400)
    mixed = SimulatedPool(PACED, {"a": Maker(1.0), "b": Maker(1.0), "m": Maker(1.0, bad=1.0)}, verdict=(5.0, 7.0)).run(
        600
    )
    assert mixed.wasted < 0.08
    assert mixed.now < 1.6 * honest.now


def test_a_node_slower_by_many_steps_serves_only_when_nobody_else_does() -> None:
    fast = {name: Maker(1.0) for name in "ab"}
    pool = SimulatedPool(PACED, {**fast, "slow": Maker(40.0)}).run(600)
    assert pool.wasted < 0.05
    tries = sum(f.node == "slow" for f in pool.files)
    assert tries <= 3
    alone = SimulatedPool(replace(PACED, steps=5), {"slow": Maker(40.0), "slower": Maker(60.0)}).run(2000)
    assert alone.wasted == 0


def test_when_the_fast_nodes_are_gone_the_slow_one_goes_on() -> None:
    makers = {"a": Maker(1.0, dies=60.0), "b": Maker(1.0, dies=61.0), "slow": Maker(20.0)}
    pool = SimulatedPool(replace(PACED, steps=20), makers).run(4000)
    assert sum(f.node == "slow" for f in pool.files) > 8


@pytest.mark.parametrize("hangs", [False, True])
def test_a_lost_node_costs_seconds_not_the_run(hangs: bool) -> None:
    rule = replace(PACED, steps=8)
    whole = SimulatedPool(rule, {"a": Maker(1.0), "b": Maker(1.0), "lost": Maker(1.0)}).run(400)
    # Wherever in the run it happens, the last step included.
    for dies in range(1, int(whole.now), 3):
        makers = {"a": Maker(1.0), "b": Maker(1.0), "lost": Maker(1.0, dies=float(dies), hangs=hangs)}
        pool = SimulatedPool(rule, makers, seed=dies).run(400)
        assert pool.now < whole.now + rule.lease_seconds + 25


@settings(max_examples=40, deadline=None)
@given(
    files=st.integers(1, 6),
    level=st.integers(0, 3),
    times=st.lists(st.floats(0.3, 30.0), min_size=1, max_size=4),
    bad=st.floats(0.0, 0.5),
    slowest=st.floats(2.0, 12.0),
    dies=st.floats(1.0, 30.0),
    hangs=st.booleans(),
    seed=st.integers(0, 99),
)
def test_training_always_progresses(
    files: int, level: int, times: list[float], bad: float, slowest: float, dies: float, hangs: bool, seed: int
) -> None:
    makers = {f"n{i}": Maker(seconds, bad=bad if i else 0.0) for i, seconds in enumerate(times)}
    makers["lost"] = Maker(5.0, dies=dies, hangs=hangs)
    rule = Rule(files, level, steps=6, lease_seconds=30.0)
    pool = SimulatedPool(rule, makers, verdict=(2.0, slowest), seed=seed)
    # The slowest way to a step: one honest node makes all its files, one after the other, after a lost lease ran out.
    alone = 1.3 * max(times) + slowest + pool.confirm + pool.train + 10
    # Before anybody has delivered, a hanging node's lease counts until its limit.
    lost = rule.lease_limit if hangs else rule.lease_seconds
    pool.run(lost + 6 * (files * alone + 5 * max(30.0, max(times)) + rule.stall_seconds))
    assert pool.most <= 2 * rule.capacity


# Leases of a data pool, which buys a number of files and trains nothing.


BUYER = CONFIG.model_copy(update={"data": DataConfig(rollouts=2 * CONFIG.work.rows + 1)})


def test_a_data_pool_gives_as_many_places_as_it_still_buys() -> None:
    """Whichever step files are of, and however often the model is published again; a lost file frees its place, and a
    pool that has everything stands still without granting more."""
    rule = Rule.of(BUYER, lease_seconds=30, lease_limit=600, stall_seconds=60)
    assert (rule.bought, rule.capacity) == (3, 3)
    files = [QueuedFile(n, "0xb", 0, status) for n, status in enumerate((Status.ACCEPTED, Status.PENDING))]
    queue = replace(EMPTY, published=9, usable=9, files=files)
    assert isinstance(decide_for(rule, queue, A, None, 0.0), Grant)
    full = replace(queue, leases=[lease("0xc", step=2)])
    wait = decide_for(rule, full, A, None, 1.0)
    assert isinstance(wait, Wait)
    assert "the 3 files that the pool buys are being made" in wait.reason
    assert isinstance(decide_for(rule, replace(full, files=files[:1]), A, None, 1.0), Grant)
    done = replace(queue, files=[QueuedFile(n, "0xb", n, Status.ACCEPTED) for n in range(3)], changed=0.0)
    wait = decide_for(rule, done, A, None, 9999.0)
    assert isinstance(wait, Wait)
    assert "the 3 files that the pool buys are accepted" in wait.reason


# Files of the step before, for nodes that still download the newest one: no pause for the honest, no way to lag.


LAGGING = Rule(files_per_step=2, max_off_policy_steps=2, steps=50, lease_seconds=30.0)
DOWNLOADING = QueueState(
    published=5, usable=5, trained=5, consumed=(), files=(), leases=(), asked={}, granted={}, reached={"0xa": 4}
)
LATE = Requester("0xa", 7, 0, ready=4)
"""Has step 4 while step 5 is the newest."""


def granted(queue: QueueState, node: Requester, rule: Rule = LAGGING) -> int:
    decision = decide_for(rule, queue, node, None, 1.0)
    assert isinstance(decision, Grant | Keep)
    return decision.step if isinstance(decision, Grant) else decision.lease.step


def test_the_step_before_is_granted_until_the_newest_is_here() -> None:
    assert granted(DOWNLOADING, LATE) == 4
    assert granted(DOWNLOADING, replace(LATE, ready=5)) == 5


def test_who_says_nothing_gets_the_newest() -> None:
    assert granted(DOWNLOADING, replace(LATE, ready=None)) == 5


@pytest.mark.parametrize("ready", [0, 3, 6, (1 << 20) - 1])
def test_any_other_word_gains_nothing(ready: int) -> None:
    assert granted(DOWNLOADING, replace(LATE, ready=ready)) == 5


@pytest.mark.parametrize("reached", [{}, {"0xa": 3}, {"0xa": 5}, {"0xb": 4}])
def test_only_who_worked_with_the_step_before_while_it_was_the_newest(reached: dict[str, int]) -> None:
    assert granted(replace(DOWNLOADING, reached=reached), LATE) == 5


def test_never_a_step_that_the_node_or_the_trainer_does_not_take() -> None:
    assert granted(DOWNLOADING, replace(LATE, joined_step=5)) == 5
    assert granted(DOWNLOADING, LATE, replace(LAGGING, max_off_policy_steps=0)) == 5
    # Step 6 is published, its seed not confirmed: step 4 is two behind then.
    assert granted(replace(DOWNLOADING, published=6), LATE, replace(LAGGING, max_off_policy_steps=1)) == 5
    assert granted(replace(DOWNLOADING, published=6), LATE) == 4


def test_there_are_fewer_places_for_it_and_then_the_newest_is_granted() -> None:
    others = [lease("0xb", number, 5) for number in range(3)]
    assert granted(replace(DOWNLOADING, leases=others), LATE) == 4
    others.append(lease("0xb", 3, 5))
    assert granted(replace(DOWNLOADING, leases=others), LATE) == 5
    full = [*others, lease("0xc", 0, 5), lease("0xc", 1, 5)]
    assert isinstance(
        decide_for(LAGGING, replace(DOWNLOADING, leases=full), LATE, None, 1.0),
        Wait,
    )


def test_a_lease_of_the_step_before_is_kept_and_one_of_the_newest_not_given_back() -> None:
    held = lease("0xa", 7, 4)
    queue, late = replace(DOWNLOADING, leases=[held]), replace(LATE, leases=[held])
    assert decide_for(LAGGING, queue, late, 7, 1.0) == Keep(held, 31.0)
    decision = decide_for(LAGGING, queue, replace(late, ready=5), 7, 1.0)
    assert isinstance(decision, Grant)
    assert (decision.step, decision.replaces) == (5, held.id)
    newest = lease("0xa", 7, 5)
    reached = replace(DOWNLOADING, leases=[newest], reached={"0xa": 5})
    assert decide_for(LAGGING, reached, replace(LATE, leases=[newest]), 7, 1.0) == Keep(newest, 31.0)


def test_stale_leases_are_replaced_by_the_step_that_is_here() -> None:
    held = [lease("0xa", 7, 3)]
    decision = decide_for(LAGGING, replace(DOWNLOADING, leases=held), replace(LATE, leases=held), 7, 1.0)
    assert isinstance(decision, Grant)
    assert (decision.step, decision.replaces) == (4, "0xa/7")


@dataclass
class LonelyPool:
    """One node whose files are trained on at once; `said`: what it claims to have, by the newest step."""

    usable: int = 0
    reached: int = -1
    counter: int = 0
    made: list[tuple[int, int]] = field(default_factory=list)
    files: list[QueuedFile] = field(default_factory=list)

    def ask(self, ready: int) -> None:
        queue = replace(
            DOWNLOADING,
            published=self.usable,
            usable=self.usable,
            trained=self.usable,
            files=self.files,
            reached={"0xa": self.reached} if self.reached >= 0 else {},
        )
        step = granted(queue, Requester("0xa", self.counter, 0, ready=ready))
        self.files = [QueuedFile(0, "0xa", step, Status.PENDING)]
        self.made.append((self.usable, step))
        self.reached, self.counter = max(self.reached, step), self.counter + 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=80))
def test_whatever_it_says_only_who_worked_with_a_step_while_newest_may_go_on_with_it(
    script: list[tuple[bool, int]],
) -> None:
    """Nobody is behind by more than one step. `script`: is a step published first, and by how much does the claim lag?

    So a node that makes one file per step is behind at most every other step. One that makes several may end a
    download of each step with the first of them.
    """
    pool = LonelyPool()
    for publish, lag in script:
        pool.usable += publish and pool.usable < 40
        pool.ask(max(0, pool.usable - lag))
    assert all(newest - step <= 1 for newest, step in pool.made)
    for number, (newest, step) in enumerate(pool.made):
        if step < newest:
            assert (step, step) in pool.made[:number]


def test_a_liar_works_with_the_newest_step_every_other_step() -> None:
    pool = LonelyPool()
    pool.ask(0)
    for _ in range(20):
        pool.usable += 1
        pool.ask(pool.usable - 1)
    assert [newest - step for newest, step in pool.made] == [0, *[1, 0] * 10]


@pytest.mark.parametrize("ready", [-1, 1 << 20, 1 << 70, 1.5, "4", True, [4]])
def test_nonsense_is_refused_by_its_field(desk: Desk, ready: object) -> None:
    assert is_error(desk.post(NODE, "/v1/leases", {"counter": 0, "ready": ready}), 422, "field `ready`")


def test_over_http_and_after_a_restart(desk: Desk) -> None:
    assert desk.post(NODE, "/v1/leases", {"counter": 0, "ready": None}).json()["step"] == 0
    desk.follow(lambda: desk.chain.submit(NODE, 0))
    desk.follow(lambda: desk.chain.publish(1))
    desk.restart()
    answer = desk.post(NODE, "/v1/leases", {"counter": 1, "ready": 0}).json()
    assert answer["step"] == 0
    assert desk.post(NODE, "/v1/leases", {"counter": 1, "ready": 0}).json()["lease"] == answer["lease"]
    assert desk.post(NODE, "/v1/leases", {"counter": 1, "ready": 1}).json()["step"] == 1
    assert desk.post(CHEAT, "/v1/leases", {"counter": 0, "ready": 0}).json()["step"] == 1, "it never made one of step 0"
