"""The scheduler's rule: never more than training can use, never a place lost, fair when places are short."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.indexer.records import Pool, Status, Step, Submission
from orchestrator.scheduling import scheduler
from orchestrator.scheduling.scheduler import Decision, Grant, Lease, Pace, QueueState, Requester, Rule, Wait
from protocol.api.work import MOST_HANDED_IN, MOST_LEASES
from protocol.config import DataConfig
from protocol.verdict import Code
from tests.orchestrator.chain import CHEAT, NODE, TERMS
from tests.orchestrator.conftest import Desk
from tests.validator.world import CONFIG

RULE = Rule(files_per_step=2, max_off_policy_steps=1, steps=5, lease_seconds=30.0)
WIDE = Rule(files_per_step=2, max_off_policy_steps=2, steps=9, lease_seconds=30.0)
EMPTY = QueueState(published=0, usable=0)
A, B, C = Requester("0xa", 0, 0), Requester("0xb", 0, 0), Requester("0xc", 0, 0)


def lease(node: str, counter: int = 0, step: int = 0, at: float = 0.0) -> Lease:
    return Lease(f"{node}/{counter}", node, step, counter, at, at + 30, at + 600)


def file(
    sequence: int, node: str = "0xa", code: Code = Code.NONE, counter: int = 0, time: int = 0, step: int = 0
) -> Submission:
    return Submission(1, sequence, node, step, counter, 10, 2, bytes(32), bytes(32), time, time, "0x", code=int(code))


def decide(
    queue: QueueState, node: Requester = A, counter: int | None = None, now: float = 1.0, rule: Rule = RULE
) -> Decision:
    """Of a node that holds its leases among those of `queue`."""
    own = [one for one in queue.leases if one.node == node.address]
    return scheduler.decide(rule, queue, replace(node, leases=own), counter, now)


LAST = replace(EMPTY, published=4, usable=4)
FOUR = replace(EMPTY, leases=[lease("0xa"), lease("0xb"), lease("0xc"), lease("0xd")])
STALE = [lease("0xa"), *(lease(node, step=3) for node in ("0xb", "0xc", "0xd", "0xe"))]
UNUSABLE = replace(EMPTY, published=3, usable=2, leases=[lease(f"0x{n}", step=2) for n in range(4)])
TWO_EACH = replace(EMPTY, leases=[lease("0xb", 0), lease("0xb", 1), lease("0xc", 0), lease("0xc", 1)])
DOUBTFUL = replace(TWO_EACH, pace=Pace(useful={"0xb": 0.4}))
SLOW = Pace(making={"0xa": 40.0, "0xb": 11.0}, made={"0xa": 8, "0xb": 8}, typical=10.0, step=8.0)
ONCE = Pace(making={"0xb": 11.0}, made={"0xb": 1})
OVERTAKEN = replace(EMPTY, leases=[lease("0xb", 0), lease("0xb", 1)], pace=SLOW)
HANGING = [lease("0xa", counter, step=4)._replace(expires=600.0) for counter in (0, 1)]
HELD_UP = replace(LAST, leases=HANGING, pace=Pace(making={"0xb": 10.0}, typical=10.0, step=8.0))
STUCK = replace(
    LAST, files=[file(n, code=Code.ACCEPT, step=4) for n in range(2)], consumed=range(100, 108), changed=10.0
)
LESS = replace(EMPTY, leases=[lease("0xa"), lease("0xc"), lease("0xd")], asked={"0xb": 9.0})
TURNS = replace(
    EMPTY,
    files=[file(n, "0xd") for n in range(3)],
    asked={"0xa": 10.0, "0xb": 10.0},
    granted={"0xa": 5.0, "0xb": 2.0},
)
HOARD, AHEAD = (replace(EMPTY, leases=[lease("0xa", one), lease("0xa", one + 1)]) for one in range(2))


@pytest.mark.parametrize(
    ("queue", "node", "counter", "now", "rule", "words"),
    [
        (replace(EMPTY, published=None, usable=None), A, None, 0.0, RULE, "not published"),
        (replace(EMPTY, usable=None), A, None, 0.0, RULE, "not confirmed"),
        (replace(EMPTY, published=4, usable=2), A, None, 0.0, RULE, "not confirmed"),
        (replace(EMPTY, published=5, usable=5), A, None, 0.0, RULE, "are done"),
        (replace(EMPTY, trained=5), A, None, 0.0, RULE, "are done"),
        (replace(EMPTY, over=True), A, None, 0.0, RULE, "are done"),
        (EMPTY, Requester("0xa", 0, 1), None, 0.0, RULE, "joined late"),
        # An expired lease frees its place.
        (FOUR, Requester("0xe", 0, 0), None, 29.0, RULE, "as many as training can use"),
        (FOUR, Requester("0xe", 0, 0), None, 30.0, RULE, None),
        # A replaced lease of a stale step needs a place again.
        (replace(EMPTY, published=3, usable=3, leases=STALE), A, 0, 1.0, RULE, "last training steps"),
        # A node cannot hoard leases.
        (HOARD, A, 2, 1.0, replace(RULE, files_per_step=100), "too far ahead"),
        (HOARD, replace(A, counter=2), 1, 1.0, replace(RULE, files_per_step=100), "on chain already"),
        (AHEAD, replace(A, handed_in=1), 0, 1.0, replace(RULE, files_per_step=100), "2 open leases"),
        (HOARD, replace(A, handed_in=16), MOST_HANDED_IN + 2, 1.0, replace(RULE, files_per_step=100), "too far ahead"),
        # While a step is not usable, files of the one before must be young enough.
        (UNUSABLE, A, None, 1.0, WIDE, "step 3 is about to be usable"),
        (replace(UNUSABLE, usable=3), A, None, 1.0, WIDE, None),
        (replace(UNUSABLE, leases=[*UNUSABLE.leases][1:]), A, None, 1.0, WIDE, None),
        # Files that will hardly be accepted count for less.
        (TWO_EACH, A, None, 1.0, RULE, "as many as training can use"),
        (DOUBTFUL, A, None, 1.0, RULE, None),
        # A node that others overtake by whole steps waits while others serve, unless nothing moves or files lack.
        (OVERTAKEN, A, None, 1.0, RULE, "take 40 s, others' 10 s"),
        # A node whose files are soon done may make many at a time, a slow one two.
        (OVERTAKEN, B, 2, 1.0, RULE, None),
        (OVERTAKEN, B, MOST_LEASES, 1.0, RULE, "too far ahead"),
        (OVERTAKEN, replace(B, handed_in=9), MOST_LEASES, 1.0, RULE, None),
        (replace(OVERTAKEN, pace=Pace(making={"0xb": 301.0}, made={"0xb": 8})), B, 2, 1.0, RULE, "too far ahead"),
        # Nobody gets them all for a file or two, to let them run out.
        (replace(OVERTAKEN, pace=ONCE), B, 3, 1.0, RULE, None),
        (replace(OVERTAKEN, pace=ONCE), B, 4, 1.0, RULE, "too far ahead"),
        (OVERTAKEN, C, None, 1.0, RULE, None),
        (replace(OVERTAKEN, changed=-60.0), A, None, 1.0, RULE, None),
        (replace(OVERTAKEN, leases=[lease("0xb", 1)]), A, None, 1.0, RULE, None),
        # A node that lives but does not deliver holds no place for long, once it is known how long that takes.
        (HELD_UP, B, None, 39.0, RULE, "last training steps"),
        (HELD_UP, B, None, 41.0, RULE, None),
        (replace(HELD_UP, pace=Pace()), B, None, 41.0, RULE, "last training steps"),
        # The last step gets no more than it needs, and files that the trainer cannot use do not end the run.
        (replace(LAST, leases=[lease("0xa", step=4), lease("0xb", step=4)]), C, None, 1.0, RULE, "last training steps"),
        (STUCK, B, None, 69.0, RULE, "last training steps"),
        (STUCK, B, None, 70.0, RULE, None),
        (replace(STUCK, leases=[lease("0xb", step=4, at=70.0)]), C, None, 71.0, RULE, "last training steps"),
        # The node with less in flight goes first, while it asks; equal nodes take turns.
        (LESS, A, 1, 10.0, RULE, "served first"),
        (LESS, B, None, 10.0, RULE, None),
        (LESS, A, 1, 20.0, RULE, None),
        (TURNS, A, None, 10.0, RULE, "served first"),
        (TURNS, B, None, 10.0, RULE, None),
    ],
)
def test_who_gets_a_lease_and_who_waits_for_what(
    queue: QueueState, node: Requester, counter: int | None, now: float, rule: Rule, words: str | None
) -> None:
    decision = decide(queue, node, counter, now, rule)
    if words is None:
        assert isinstance(decision, Grant)
    else:
        assert isinstance(decision, Wait)
        assert words in decision.reason
        waits_for_a_place = ("as many as", "about to be", "last training", "served first")
        assert decision.queued is any(one in words for one in waits_for_a_place)


def test_who_waits_asks_again_by_how_long_files_take_and_how_many_wait() -> None:
    def seconds(typical: float, waiting: int) -> float:
        queue = replace(FOUR, pace=Pace(typical=typical), asked={f"0x{n}": 10.0 for n in range(waiting)})
        decision = decide(queue, Requester("0xe", 0, 0), None, 10.0)
        assert isinstance(decision, Wait)
        return decision.seconds

    assert [seconds(*case) for case in ((0, 1), (2, 1), (30, 1), (600, 1), (0, 100))] == [0.4, 0.4, 1.5, 4.0, 2.0]


def test_a_free_place_is_granted_from_the_newest_usable_step() -> None:
    decision = decide(replace(EMPTY, published=3, usable=2), now=100.0)
    assert decision == Grant(Lease("", "0xa", 2, 0, 100.0, 130.0, 700.0))


def test_heartbeats_renew_up_to_the_limit_but_never_revive() -> None:
    one = lease("0xa")
    assert scheduler.renew(RULE, one, 20.0) == 50.0
    assert scheduler.renew(RULE, one._replace(expires=599.0), 590.0) == 600.0
    assert scheduler.renew(RULE, one, 31.0) == 30.0


def test_which_files_count_as_in_flight() -> None:
    """Rejected ones do not, accepted ones until they are consumed or stale; a published step implies consumption when
    the report is missing."""
    queue = replace(EMPTY, files=[file(0, code=Code.REJECT_WEIGHTS), file(1, code=Code.ACCEPT), file(2)])
    assert scheduler.in_flight(RULE, queue, 0.0).total == 2
    assert scheduler.in_flight(RULE, replace(queue, consumed=[1]), 0.0).total == 1
    assert scheduler.in_flight(RULE, replace(queue, published=2), 0.0).total == 0
    accepted = replace(EMPTY, published=1, files=[file(n, code=Code.ACCEPT) for n in range(4)])
    assert scheduler.in_flight(RULE, accepted, 0.0).accepted == 2
    assert scheduler.in_flight(RULE, replace(accepted, consumed=[2, 3]), 0.0).accepted == 2
    assert scheduler.in_flight(RULE, DOUBTFUL, 1.0).expected == 3.0


# What the scheduler is told about recent files and steps.


def pool(*times: int) -> Pool:
    steps = [Step(k, b"m" * 32, bytes(32), at + 1, at, at, "0x") for k, at in enumerate(times)]
    return Pool(1, "0xo", b"c" * 32, TERMS, 3600, 1, steps=steps)


def test_a_new_pool_has_no_pace_and_the_newest_steps_tell_how_long_one_takes() -> None:
    assert scheduler.measure(pool(100), [], {}) == Pace()
    assert scheduler.measure(pool(0, 1000, 1004, 1010, 1014), [], {}).step == 5.0
    assert scheduler.measure(pool(*range(0, 900, 100), *range(810, 890, 10)), [], {}).step == 10.0


def test_nodes_are_measured_by_their_own_newest_files() -> None:
    grants = {("0xa", n, 0): 100.0 + 10 * n for n in range(30)} | {("0xb", 0, 0): 100.0}
    files = [file(n, "0xa", Code.ACCEPT, n, 103 + 10 * n + 50 * (n < 10)) for n in range(30)]
    files.append(file(30, "0xb", Code.ACCEPT, 0, 140))
    pace = scheduler.measure(pool(0), files, grants)
    assert pace.making == {"0xa": 3.0, "0xb": 40.0}
    assert pace.made == {"0xa": 16, "0xb": 1}
    assert pace.typical == 3.0
    # Without a lease (or with one of long ago) a file says nothing.
    assert scheduler.measure(pool(0), files, {}).making == {}


def test_fast_garbage_does_not_make_honest_nodes_slow() -> None:
    grants = {(f"0x{n}", 0, 0): 100.0 for n in range(20)} | {("0xa", 0, 0): 100.0}
    junk = [file(n, f"0x{n}", Code.REJECT_WEIGHTS if n % 2 else Code.NONE, 0, 101) for n in range(20)]
    pace = scheduler.measure(pool(0), [*junk, file(20, "0xa", Code.ACCEPT, 0, 130)], grants)
    assert (pace.making, pace.typical) == ({"0xa": 30.0}, 30.0)


def test_trust_falls_with_files_that_were_not_accepted_and_comes_back() -> None:
    bad = [file(n, "0xa", Code.REJECT_WEIGHTS, n, 100) for n in range(4)]
    good = [file(4 + n, "0xa", Code.ACCEPT, 4 + n, 100) for n in range(16)]
    assert scheduler.measure(pool(0), [*bad, file(20, "0xb", Code.NONE, 0, 100)], {}).useful == {"0xa": 0.5}
    assert scheduler.measure(pool(0), bad + good, {}).useful == {"0xa": 1.0}


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
    """Everything that happens between a grant and the next policy step, with times in seconds. `takes`: files that
    steps take in turn for a full batch, where an online filter drops some."""

    rule: Rule
    makers: dict[str, Maker]
    verdict: tuple[float, float] = (6.0, 6.0)
    takes: tuple[int, ...] = ()
    confirm: float = 2.5
    train: float = 1.5
    seed: int = 0
    now: float = 0.0
    published: list[float] = field(default_factory=lambda: [0.0])
    training: float | None = None
    files: list[Submission] = field(default_factory=list)
    due: dict[int, tuple[float, bool]] = field(default_factory=dict)
    grants: dict[tuple[str, int, int], float] = field(default_factory=dict)
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
            pace=scheduler.measure(pool(*map(round, self.published)), self.files, self.grants),
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
        self.files.append(file(sequence, name, counter=lease.counter, time=round(self.now), step=lease.step))
        good = self.random.random() >= maker.bad
        self.due[sequence] = (self.now + self.random.uniform(*self.verdict), good)
        maker.lease, maker.counter = None, maker.counter + 1

    def _ask(self, name: str, maker: Maker) -> None:
        before = scheduler.in_flight(self.rule, self.queue(), self.now)
        decision = decide(self.queue(), Requester(name, maker.counter, 0), None, self.now, self.rule)
        self.asked.pop(name, None)
        if isinstance(decision, Grant):
            given = decision.lease
            limit = given.limit + 1e9 * (not maker.hangs)  # heartbeats, and a file is never given up
            maker.lease = given._replace(id=f"{name}/{maker.counter}", expires=limit, limit=limit)
            maker.free_at = self.now + maker.seconds * self.random.uniform(0.8, 1.2)
            self.granted[name] = self.grants[name, given.counter, given.step] = self.now
            self.most = max(self.most, before.total + 1)
            room = self.rule.room(self.step - given.step)
            assert before.expected + 1 <= room + 1e-5 or self.now - self.changed >= scheduler.STALL_SECONDS
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
                code = Code.ACCEPT if good else Code.REJECT_WEIGHTS
                self.files[sequence] = replace(self.files[sequence], code=int(code))
                self.changed = self.now
                del self.due[sequence]

    def _train(self) -> None:
        if self.training is not None:
            if self.now >= self.training:
                self.consumed.update(self.batch)
                self.published.append(self.now)
                self.training, self.changed = None, self.now
            return
        oldest = self.step - self.rule.max_off_policy_steps
        ready = sorted((f for f in self.left() if f.step >= oldest), key=lambda f: f.step)
        take = self.takes[self.step % len(self.takes)] if self.takes else self.rule.files_per_step
        if len(ready) >= take:
            self.batch = [f.sequence for f in ready[:take]]
            self.training = self.now + self.train

    def left(self) -> list[Submission]:
        return [f for f in self.files if f.status is Status.ACCEPTED and f.sequence not in self.consumed]

    def run(self, limit: float) -> "SimulatedPool":
        while self.step < self.rule.steps:
            assert self.now < limit, f"stuck at step {self.step} of {self.rule.steps} after {self.now:.0f} s"
            self.tick()
        return self

    @property
    def wasted(self) -> float:
        """Share of accepted files that were never trained on."""
        return len(self.left()) / sum(f.status is Status.ACCEPTED for f in self.files)


def test_equal_nodes_and_even_latencies_waste_nothing_and_keep_the_trainer_supplied() -> None:
    pool = SimulatedPool(PACED, {name: Maker(1.0) for name in "abcd"}).run(400)
    assert pool.wasted == 0
    assert pool.most == PACED.room()
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
    makers = {"a": Maker(1.0), "b": Maker(1.0), "m": Maker(1.0, bad=1.0)}
    mixed = SimulatedPool(PACED, makers, verdict=(5.0, 7.0)).run(600)
    assert mixed.wasted < 0.08
    assert mixed.now < 1.6 * honest.now


def test_a_node_slower_by_many_steps_serves_only_when_nobody_else_does() -> None:
    fast = {name: Maker(1.0) for name in "ab"}
    pool = SimulatedPool(PACED, {**fast, "slow": Maker(40.0)}).run(600)
    assert pool.wasted < 0.05
    assert sum(f.node == "slow" for f in pool.files) <= 3
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
@given(st.data())
def test_training_always_progresses(data: st.DataObject) -> None:
    files, level, seed = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 3)), data.draw(st.integers(0, 99))
    times = data.draw(st.lists(st.floats(0.3, 30.0), min_size=1, max_size=4))
    bad, slowest = data.draw(st.floats(0.0, 0.5)), data.draw(st.floats(2.0, 12.0))
    dies, hangs = data.draw(st.floats(1.0, 30.0)), data.draw(st.booleans())
    makers = {f"n{i}": Maker(seconds, bad=bad if i else 0.0) for i, seconds in enumerate(times)}
    makers["lost"] = Maker(5.0, dies=dies, hangs=hangs)
    most = data.draw(st.integers(files, 4 * files))
    takes = tuple(data.draw(st.lists(st.integers(1, most), max_size=6)))
    rule = Rule(files, level, steps=6, lease_seconds=30.0, max_files=most if takes else 0)
    pool = SimulatedPool(rule, makers, verdict=(2.0, slowest), takes=takes, seed=seed)
    # The slowest way to a step: one honest node makes all its files, one after the other, after a lost lease ran out.
    alone = 1.3 * max(times) + slowest + pool.confirm + pool.train + 10
    # Before anybody has delivered, a hanging node's lease counts until its limit.
    lost = rule.lease_limit if hangs else rule.lease_seconds
    pool.run(lost + 6 * (rule.most_files * alone + 5 * max(30.0, max(times)) + scheduler.STALL_SECONDS))
    assert pool.most <= 2 * rule.room()


# Leases of a data pool, which buys a number of files and trains nothing.


BUYER = CONFIG.model_copy(update={"data": DataConfig(rollouts=2 * CONFIG.work.rows + 1)})


def test_a_data_pool_gives_as_many_places_as_it_still_buys() -> None:
    """Whichever step files are of, and however often the model is published again; a lost file frees its place, and a
    pool that has everything stands still without granting more."""
    rule = Rule.of(BUYER, lease_seconds=30)
    assert (rule.bought, rule.room()) == (3, 3)
    files = [file(0, "0xb", Code.ACCEPT), file(1, "0xb")]
    queue = replace(EMPTY, published=9, usable=9, files=files)
    full = replace(queue, leases=[lease("0xc", step=2)])
    done = replace(queue, files=[file(n, "0xb", Code.ACCEPT, step=n) for n in range(3)], changed=0.0)
    for some in (queue, replace(full, files=files[:1])):
        assert isinstance(decide(some, A, None, 0.0, rule), Grant)
    for all_placed, now, words in ((full, 1.0, "being made"), (done, 9999.0, "accepted")):
        wait = decide(all_placed, A, None, now, rule)
        assert isinstance(wait, Wait)
        assert f"the 3 files that the pool buys are {words}" in wait.reason


# Files of the step before, for nodes that still download the newest one: no pause for the honest, no way to lag.


LAGGING = Rule(files_per_step=2, max_off_policy_steps=2, steps=50, lease_seconds=30.0)
DOWNLOADING = QueueState(published=5, usable=5, trained=5, reached={"0xa": 4})
LATE = Requester("0xa", 7, 0, ready=4)
"""Has step 4 while step 5 is the newest."""


def granted(queue: QueueState, node: Requester = LATE, counter: int | None = None, rule: Rule = LAGGING) -> Grant:
    decision = decide(queue, node, counter, 1.0, rule)
    assert isinstance(decision, Grant)
    return decision


@pytest.mark.parametrize(
    ("queue", "node", "rule", "step"),
    [
        # The step before is granted until the newest is here, and who says nothing gets the newest.
        ({}, {}, {}, 4),
        ({}, {"ready": 5}, {}, 5),
        ({}, {"ready": None}, {}, 5),
        # Any other word gains nothing.
        *(({}, {"ready": ready}, {}, 5) for ready in (0, 3, 6, (1 << 20) - 1)),
        # Only who worked with the step before while it was the newest.
        *(({"reached": reached}, {}, {}, 5) for reached in ({}, {"0xa": 3}, {"0xa": 5}, {"0xb": 4})),
        # Never a step that the node or the trainer does not take.
        ({}, {"joined_step": 5}, {}, 5),
        ({}, {}, {"max_off_policy_steps": 0}, 5),
        # Step 6 is published, its seed not confirmed: step 4 is two behind then.
        ({"published": 6}, {}, {"max_off_policy_steps": 1}, 5),
        ({"published": 6}, {}, {}, 4),
    ],
)
def test_who_may_go_on_with_the_step_before(
    queue: dict[str, Any], node: dict[str, Any], rule: dict[str, Any], step: int
) -> None:
    made = granted(replace(DOWNLOADING, **queue), replace(LATE, **node), rule=replace(LAGGING, **rule))
    assert made.lease.step == step


def test_there_are_fewer_places_for_it_and_then_the_newest_is_granted() -> None:
    others = [lease("0xb", number, 5) for number in range(4)]
    assert granted(replace(DOWNLOADING, leases=others[:3])).lease.step == 4
    assert granted(replace(DOWNLOADING, leases=others)).lease.step == 5
    full = replace(DOWNLOADING, leases=[*others, lease("0xc", 0, 5), lease("0xc", 1, 5)])
    assert isinstance(decide(full, LATE, None, 1.0, LAGGING), Wait)


def test_a_lease_of_the_step_before_is_kept_and_one_of_the_newest_not_given_back() -> None:
    held, newest, stale = (lease("0xa", 7, step) for step in (4, 5, 3))
    queue = replace(DOWNLOADING, leases=[held])
    assert granted(queue, LATE, 7) == Grant(held._replace(expires=31.0))
    decision = granted(queue, replace(LATE, ready=5), 7)
    assert (decision.lease.step, decision.replaces) == (5, held.id)
    reached = replace(DOWNLOADING, leases=[newest], reached={"0xa": 5})
    assert granted(reached, LATE, 7) == Grant(newest._replace(expires=31.0))
    decision = granted(replace(DOWNLOADING, leases=[stale]), LATE, 7)
    assert (decision.lease.step, decision.replaces) == (4, "0xa/7"), "a stale one is replaced by the step that is here"


@dataclass
class LonelyPool:
    """One node whose files are trained on at once; `said`: what it claims to have, by the newest step."""

    usable: int = 0
    reached: int = -1
    counter: int = 0
    made: list[tuple[int, int]] = field(default_factory=list)
    files: list[Submission] = field(default_factory=list)

    def ask(self, ready: int) -> None:
        queue = replace(
            DOWNLOADING,
            published=self.usable,
            usable=self.usable,
            trained=self.usable,
            files=self.files,
            reached={"0xa": self.reached} if self.reached >= 0 else {},
        )
        step = granted(queue, Requester("0xa", self.counter, 0, ready=ready)).lease.step
        self.files = [file(0, "0xa", step=step)]
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


def test_over_http_and_after_a_restart(desk: Desk) -> None:
    assert desk.lease(NODE, counter=0, ready=None)["step"] == 0
    desk.follow(lambda: desk.chain.submit(NODE, 0))
    desk.follow(lambda: desk.chain.publish(1))
    desk.start()
    answer = desk.lease(NODE, counter=1, ready=0)
    assert answer["step"] == 0
    assert desk.lease(NODE, counter=1, ready=0)["lease"] == answer["lease"]
    assert desk.lease(NODE, counter=1, ready=1)["step"] == 1
    assert desk.lease(CHEAT, counter=0, ready=0)["step"] == 1, "it never made one of step 0"
