"""Kills, joins, leaves, repeated and late events in any order: no outer step is lost, none is made twice, and every
survivor holds the same bits. A worker that holds up steps is excluded from the next ones, and no other ever is."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from diloco import messages as m
from diloco.config import AdmissionConfig, DilocoConfig, DilocoRun
from diloco.messages import FORGIVEN_AFTER, MAX_DISPUTED, MAX_STRIKES, Strikes
from diloco.outer import OuterState, outer_step
from diloco.state_machine import Phase, Schedule
from protocol.errors import IntegrityError

NAMES = "abcdefxy"
WORKERS = st.sampled_from("abcdef")
HONEST, BAD, WORSE = ("a", "b", "c"), "x", "y"
FILES = [f"{number:064x}" for number in range(8)]


@pytest.fixture(autouse=True, scope="module")
def short_names() -> Iterator[None]:
    """Workers have names of one letter here, which are no addresses."""

    def hashed(*words: object) -> bytes:
        return hashlib.sha256(repr(words).encode()).digest()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diloco.inner.tagged_hash", hashed)
        yield


def a_run(quorum: int = 1, assigned: bool = False) -> DilocoRun:
    admission = AdmissionConfig(minimum=quorum, cosine=None)
    config = DilocoConfig(shards=2, admission=admission)
    fields: dict[str, Any] = {"name": "run", "workers": tuple(NAMES), "seed": "00" * 32}
    return DilocoRun.model_construct(**fields, assigned=assigned, settings=config)


def event(kind: type[Any], **fields: Any) -> Any:
    """An event whose workers have short names."""
    return kind.model_construct(kind=kind.model_fields["kind"].default, **fields)


def joined(worker: str, digest: str) -> Any:
    return event(m.Joined, worker=worker, message=0, digest=digest)


def left(worker: str) -> Any:
    return event(m.Left, worker=worker, message=0)


def signed(worker: str, document: str) -> Any:
    return event(m.ContributionSigned, worker=worker, message=0, document=document)


def refused(worker: str) -> Any:
    return event(m.ContributionRefused, worker=worker, message=0, document="bad", why="bad")


def unusable(now: Schedule, worker: str) -> Any:
    """It cannot use the first of its files."""
    assert now.partition is not None
    return event(m.FilesUnusable, worker=worker, message=0, items=list(now.partition.of(worker)[:1]))


def opened(worker: str, document: str) -> Any:
    return event(m.PayloadOpened, worker=worker, document=document)


def timeout(now: Schedule, phase: Phase | None = None) -> Any:
    return event(m.PhaseFailed, attempt=now.attempt, phase=(phase or now.phase).value)


def assigned(step: int, files: Sequence[str] = FILES) -> Any:
    return event(m.FilesAssigned, step=step, items=list(files))


def commit(now: Schedule, digest: str) -> Any:
    return event(m.CommitRecord, step=now.step + 1, digest=digest, attempt=now.attempt)


def tell(schedule: Schedule, *events: Any) -> Schedule:
    """Apply events; those that no coordinator writes then change nothing."""
    for one in events:
        try:
            schedule = schedule.after(one)
        except IntegrityError:
            continue
    return schedule


START = OuterState.start({"w": np.linspace(-1, 1, 5, dtype=np.float32)})


def make_step(state: OuterState, workers: Sequence[str]) -> OuterState:
    """The mean of pseudo-gradients that follow from worker and step."""
    values = [np.random.default_rng([ord(one), state.step]).standard_normal(5) for one in sorted(workers)]
    (pieces,) = state.layout.shards(1)
    return outer_step(state, DilocoConfig().outer, [(pieces, [np.mean(values, axis=0).astype(np.float32)])])


class OuterSteps(RuleBasedStateMachine):
    """`log`: the events, in order. `alive`: each running worker's state; `kept`: what dead ones left on disk. `steps`:
    who contributed to each outer step."""

    def __init__(self) -> None:
        super().__init__()
        self.run = a_run()
        self.schedule = Schedule(self.run, START.digest.hex())
        self.log: list[Any] = []
        self.alive: dict[str, OuterState] = {}
        self.kept: dict[str, OuterState] = {}
        self.steps: list[tuple[str, ...]] = []
        self.reference = START

    def tell(self, one: Any) -> bool:
        before, self.schedule = self.schedule, tell(self.schedule, one)
        self.log.append(one)
        return self.schedule is not before

    def caught_up(self, state: OuterState) -> OuterState:
        for workers in self.steps[state.step :]:
            state = make_step(state, workers)
        return state

    @rule(worker=WORKERS)
    def join(self, worker: str) -> None:
        """From an old disk, or from nothing, up to the newest state; then it asks."""
        kept = self.kept.pop(worker, START)
        state = self.caught_up(self.alive.pop(worker, kept))
        self.alive[worker] = state
        self.tell(joined(worker, state.digest.hex()))

    @rule(worker=WORKERS)
    def join_with_an_old_state(self, worker: str) -> None:
        if self.steps and worker not in self.schedule.members | self.schedule.waiting:
            assert not self.tell(joined(worker, START.digest.hex()))

    @rule(worker=WORKERS)
    def leave(self, worker: str) -> None:
        if self.alive.pop(worker, None) is not None:
            self.tell(left(worker))
            assert worker not in self.schedule.members

    @rule(worker=WORKERS)
    def kill(self, worker: str) -> None:
        """Nobody is told."""
        if (state := self.alive.pop(worker, None)) is not None:
            self.kept[worker] = state

    @rule(worker=WORKERS, other=st.booleans())
    def sign(self, worker: str, other: bool) -> None:
        if worker in self.alive:
            self.tell(signed(worker, f"{worker}{self.alive[worker].step}{' other' if other else ''}"))

    @rule(worker=WORKERS)
    def refuse(self, worker: str) -> None:
        self.tell(refused(worker))

    @rule(worker=WORKERS)
    def open(self, worker: str) -> None:
        if worker in self.alive:
            self.tell(opened(worker, f"{worker}{self.alive[worker].step}"))

    @rule()
    def time_is_up(self) -> None:
        before = self.schedule
        self.tell(timeout(before))
        assert self.schedule.position != before.position, "nobody waits for ever"

    @rule(data=st.data())
    def repeat_something_old(self, data: st.DataObject) -> None:
        """A commit or a timeout of an earlier attempt, in any order."""
        old = [one for one in self.log if one.kind in ("commit", "failed")]
        if old:
            before, one = self.schedule, data.draw(st.sampled_from(old))
            if one.attempt != before.attempt:
                self.tell(one)
                assert self.schedule is before

    @rule()
    def cannot_settle(self) -> None:
        self.tell(timeout(self.schedule, Phase.SETTLE))

    @rule(worker=WORKERS)
    def settle(self, worker: str) -> None:
        now = self.schedule
        if now.phase != Phase.SETTLE:
            return
        workers = tuple(one for one, document in now.contributors.items() if " " not in document)
        if not workers:
            assert self.tell(timeout(now, Phase.SETTLE))
            return
        after = make_step(self.reference, workers)
        assert self.tell(commit(now, after.digest.hex()))
        self.steps.append(workers)
        self.reference = after
        if worker in self.alive:
            self.alive[worker] = self.caught_up(self.alive[worker])

    @invariant()
    def every_outer_step_once(self) -> None:
        assert len(self.steps) == self.schedule.step == self.reference.step
        assert self.schedule.digest == self.reference.digest.hex()

    @invariant()
    def all_survivors_hold_the_same(self) -> None:
        assert all(self.caught_up(state).digest == self.reference.digest for state in self.alive.values())

    @invariant()
    def whoever_reads_the_log_agrees(self) -> None:
        assert tell(Schedule(self.run, START.digest.hex()), *self.log) == self.schedule
        assert self.schedule.opened <= self.schedule.documents.keys()


OuterSteps.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestOuterSteps = OuterSteps.TestCase


def member_run(*workers: str) -> Schedule:
    """Members are those who join while nobody is one, and from the next commit on the rest."""
    first, *rest = workers
    run = tell(Schedule(a_run(), "0"), joined(first, "0"), *(joined(worker, "0") for worker in rest))
    run = tell(run, signed(first, "x"), opened(first, "x"))
    return tell(run, commit(run, "1"))


def test_two_contributions_of_one_worker_are_none() -> None:
    run = tell(member_run("a", "b"), signed("a", "x"), signed("a", "y"))
    assert (set(run.barred), dict(run.documents)) == ({"a"}, {})
    run = tell(run, signed("a", "x"), signed("b", "z"))
    assert (dict(run.documents), run.phase) == ({"b": "z"}, Phase.OPEN)
    run = tell(run, opened("b", "z"))
    assert tell(run, commit(run, "2")).members == {"b"}


def test_who_leaves_after_its_payload_still_counts() -> None:
    run = tell(member_run("a", "b"), signed("a", "x"), signed("b", "y"), opened("a", "x"), left("a"), left("b"))
    assert (run.phase, dict(run.contributors)) == (Phase.SETTLE, {"a": "x"})


def test_strangers_and_files_of_others_are_an_error() -> None:
    run = files_run("a", "b")
    with pytest.raises(IntegrityError, match="is no worker of"):
        run.after(joined("stranger", "0"))
    with pytest.raises(IntegrityError, match="not assigned to it"):
        run.after(event(m.FilesUnusable, worker="a", message=0, items=["ab" * 32]))
    with pytest.raises(IntegrityError, match="out of turn"):
        run.after(assigned(0))
    waiting = tell(Schedule(a_run(assigned=True), "0"), joined("a", "0"))
    with pytest.raises(IntegrityError, match="before the files"):
        waiting.after(signed("a", "x"))
    assert run.after(opened("a", "x")) is run


# Steps whose files are assigned: each member has a part of them, and a step is made of all of them.


def files_run(*workers: str, quorum: int = 1) -> Schedule:
    """All of them have joined before the files were assigned."""
    run = Schedule(a_run(quorum, assigned=True), "0")
    return tell(run, *(joined(worker, "0") for worker in workers), assigned(0))


def test_whoever_joined_before_the_files_were_assigned_takes_part() -> None:
    run = files_run("a", "b")
    assert set(run.members) == {"a", "b"}
    late = tell(Schedule(a_run(assigned=True), "0"), joined("a", "0"), joined("b", "0"))
    assert (set(late.members), set(late.waiting)) == ({"a"}, {"b"})
    late = tell(late, assigned(0), joined("c", "0"))
    assert (set(late.members), set(late.waiting)) == ({"a", "b"}, {"c"}), "it is under way"


@pytest.mark.parametrize("silent", [True, False])
def test_a_step_of_assigned_files_is_made_of_all_of_them(silent: bool) -> None:
    """Who falls silent, or leaves, has a part of them: the others begin again."""
    run = tell(files_run("a", "b"), signed("a", "x"))
    again = tell(run, timeout(run) if silent else left("b"))
    assert (again.attempt, again.phase, set(again.members)) == (run.attempt + 1, Phase.COLLECT, {"a"})
    assert not again.documents
    both = tell(run, signed("b", "y"), opened("a", "x"))
    assert both.phase == Phase.OPEN
    again = tell(both, timeout(both) if silent else left("b"))
    assert (again.attempt, again.phase, set(again.members)) == (run.attempt + 1, Phase.COLLECT, {"a"})
    twice = tell(run, signed("a", "other"))
    assert (twice.attempt, set(twice.members)) == (run.attempt + 1, {"b"})


def test_a_barred_worker_has_no_part_in_the_step_and_is_back_in_the_next() -> None:
    run = files_run("a", "b")
    begun = run.attempt
    run = tell(run, refused("b"))
    assert (run.attempt, set(run.members), set(run.barred)) == (begun + 1, {"a"}, {"b"})
    run = tell(run, joined("b", "0"))
    assert (set(run.members), set(run.waiting)) == ({"a"}, {"b"})
    again = tell(run, timeout(run))
    assert set(again.members) == {"b"}, "nobody else is left"
    run = tell(run, signed("a", "x"), opened("a", "x"))
    run = tell(run, commit(run, "1"))
    assert (run.step, set(run.members), set(run.barred)) == (1, {"a", "b"}, set())


def test_workers_that_are_barred_in_turn_do_not_keep_the_others_from_a_step() -> None:
    run = files_run(*"abcd", quorum=2)
    for worker in "cd":
        run = tell(run, refused(worker), joined(worker, "0"))
    assert (set(run.members), set(run.waiting)) == ({"a", "b"}, {"c", "d"})
    assert tell(run, timeout(run, Phase.SETTLE)) is run, "nothing is to be settled yet"
    run = tell(run, *(signed(one, one) for one in "ab"), *(opened(one, one) for one in "ab"))
    assert set(tell(run, timeout(run, Phase.SETTLE)).members) == {"a", "b"}, "in another attempt neither"


def test_where_too_few_are_left_all_come_back_and_named_files_are_skipped() -> None:
    run = files_run(*"abc", quorum=2)
    run = tell(run, unusable(run, "a"), joined("a", "0"))
    named = run.unusable
    assert len(named) == 1
    run = tell(run, refused("b"))
    assert (set(run.members), set(run.barred)) == ({"a", "c"}, set())
    assert (run.unusable, run.skipped) == (frozenset(), named)
    assert run.partition is not None
    assert not named & set(run.partition.items)
    assert tell(run, joined("b", "0")).waiting == {"b"}


def test_a_step_of_which_nothing_is_left_is_settled_of_nothing() -> None:
    run = tell(Schedule(a_run(2, assigned=True), "0"), joined("a", "0"), joined("b", "0"), assigned(0, FILES[:1]))
    assert (run.phase, dict(run.contributors)) == (Phase.SETTLE, {})
    after = tell(run, commit(run, "1"))
    assert (after.step, set(after.members), after.items) == (1, {"a", "b"}, None)


# Strikes.


class Act(Enum):
    GOOD = "good"
    REFUSED = "refused"
    TWICE = "signs twice"
    SILENT = "silent"
    UNOPENED = "signs and does not open"
    LEAVES = "leaves"
    CANNOT = "cannot use its files"


class StrikeRun:
    """`lost`: attempts that were begun again, and timeouts that were waited for; `took_part`: workers of each step."""

    def __init__(self, assigned: bool, *bad: str, quorum: int = 2) -> None:
        self.now = Schedule(a_run(quorum, assigned), "0")
        self.assigned, self.workers = assigned, (*HONEST, *bad)
        self.lost, self.took_part = 0, list[frozenset[str]]()

    def step(self, acts: Mapping[str, Act]) -> None:
        """Until the next commit; workers that `acts` does not name are honest."""
        step, seen = self.now.step, frozenset[str]()
        self._join()
        if self.assigned:
            self.now = tell(self.now, assigned(step, [f"{step * 1000 + number:064x}" for number in range(40)]))
        first = self.now.attempt
        for _ in range(50):
            self._join()
            seen |= self.now.members
            self._attempt(acts)
            if self.now.step > step:
                self.took_part.append(seen)
                return
            assert self.now.attempt <= first + 8, "it begins again and again"
        raise AssertionError("the step does not end")

    def _join(self) -> None:
        """Whoever is out asks to come in again at once."""
        self.now = tell(self.now, *(joined(worker, self.now.digest) for worker in self.workers))

    def _attempt(self, acts: Mapping[str, Act]) -> None:
        begun = self.now.attempt
        # Who holds the step up comes last: it costs the most then.
        for worker in sorted(self.now.members - self.now.barred, key=lambda one: (one in acts, one)):
            self._collect(worker, acts.get(worker, Act.GOOD))
            if self.now.attempt > begun:
                self.lost += 1
                return
        for phase in (Phase.COLLECT, Phase.OPEN):
            if self.now.phase == Phase.OPEN:
                for worker, document in sorted(self.now.documents.items()):
                    if acts.get(worker) != Act.UNOPENED:
                        self.now = tell(self.now, opened(worker, document))
            if self.now.phase == phase:
                self.now, self.lost = tell(self.now, timeout(self.now)), self.lost + 1
            if self.now.attempt > begun:
                return
        assert self.now.phase == Phase.SETTLE
        self.now = tell(self.now, commit(self.now, str(self.now.step + 1)))

    def _collect(self, worker: str, act: Act) -> None:
        now = self.now
        if act in (Act.GOOD, Act.TWICE, Act.UNOPENED):
            self.now = tell(now, signed(worker, f"{worker} {now.step} {now.attempt}"))
        if act == Act.TWICE:
            self.now = tell(self.now, signed(worker, f"{worker} {now.step} other"))
        if act == Act.REFUSED or (act == Act.CANNOT and not self.assigned):
            self.now = tell(now, refused(worker))
        elif act == Act.CANNOT:
            self.now = tell(now, unusable(now, worker))
        if act == Act.LEAVES:
            self.now = tell(now, left(worker))

    def gaps(self, worker: str) -> list[int]:
        """How many steps in a row it was excluded from, each time."""
        missed = "".join("." if worker in one else "x" for one in self.took_part)
        return [len(one) for one in missed.split(".") if one]


def bound(steps: int, acts: Sequence[Act]) -> float:
    """Steps that one worker can hold up: each is a strike, of which every eight steps of good work take one away; with
    the most strikes it is out of 63 steps each time, or of three after a word that brings it no other strike."""
    gap = 1 << ((MAX_DISPUTED if Act.CANNOT in acts else MAX_STRIKES) - 1)
    return MAX_STRIKES + steps / FORGIVEN_AFTER + steps / gap + 1


@pytest.mark.parametrize("assigned", [True, False])
@pytest.mark.parametrize("act", [one for one in Act if one != Act.GOOD])
def test_a_worker_that_holds_up_every_step_holds_up_few(act: Act, assigned: bool) -> None:
    run = StrikeRun(assigned, BAD)
    for _ in range(200):
        run.step({BAD: act})
    if act == Act.LEAVES and not assigned:
        assert run.now.strikes == {}, "the others go on without it"
        return
    disputed = act == Act.CANNOT and assigned
    assert run.lost <= (2 + 200 / (1 << (MAX_DISPUTED - 1)) if disputed else 9)
    assert set(run.now.strikes) == {BAD}
    # Without files to assign, whoever joins waits for the next commit, also at first.
    steps = [1, 3, 7, 15, 31, 63] if assigned else [1, 1, 1, 3, 7, 15]
    assert run.gaps(BAD)[:6] == ([1, 3, 3, 3, 3, 3] if disputed else steps)
    assert all(set(HONEST) <= one for one in run.took_part[1:])


ACTS = st.lists(st.sampled_from([*Act, Act.GOOD, Act.GOOD]), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(assigned=st.booleans(), one=ACTS, other=ACTS, steps=st.integers(20, 120))
def test_whatever_two_workers_do_in_turn(assigned: bool, one: Sequence[Act], other: Sequence[Act], steps: int) -> None:
    """They cost the others no more than the rule allows, no honest worker gets a strike, and nobody is out for good."""
    run = StrikeRun(assigned, BAD, WORSE)
    for _, first, second in zip(range(steps), cycle(one), cycle(other), strict=False):
        run.step({BAD: first, WORSE: second})
        assert set(run.now.strikes) <= {BAD, WORSE}
        assert set(HONEST) <= run.now.members
    assert run.lost <= bound(steps, one) + bound(steps, other)
    assert all(gap < 1 << (MAX_STRIKES - 1) for worker in (BAD, WORSE) for gap in run.gaps(worker))


def test_a_single_kill_costs_a_worker_nothing_more() -> None:
    run = StrikeRun(True, BAD)
    run.step({BAD: Act.GOOD})
    run.step({BAD: Act.SILENT})
    assert run.now.strikes == {BAD: Strikes(count=1, until=2)}
    for _ in range(FORGIVEN_AFTER):
        run.step({})
    assert run.now.strikes == {}
    assert run.gaps(BAD) == []


def test_strikes_follow_from_nothing_but_holding_up() -> None:
    """A worker leaves before files are assigned or after it handed in its work; everybody falls silent at once."""
    run = StrikeRun(True, BAD)
    run.step({})
    idle = tell(run.now, left(BAD))
    assert idle.barred == frozenset()
    now = tell(run.now, assigned(1))
    silent = tell(now, timeout(now))
    assert (silent.members, silent.barred) == (frozenset(), frozenset())
    now = tell(now, *(signed(worker, worker) for worker in run.workers), opened(BAD, BAD), left(BAD))
    now = tell(now, *(opened(worker, worker) for worker in HONEST))
    assert tell(now, commit(now, "2")).strikes == {}


def test_where_too_few_others_are_left_an_excluded_worker_comes_back() -> None:
    run = StrikeRun(True, BAD, quorum=4)
    for _ in range(3):
        run.step({})
    run.now = replace(
        run.now, strikes={BAD: Strikes(count=7, until=99)}, waiting=frozenset({BAD}), members=frozenset("ab")
    )
    run.now = tell(run.now, joined("c", run.now.digest))
    run.step({})
    assert BAD in run.took_part[-1]


def test_who_only_waits_to_be_let_in_again_lets_no_attempt_fail() -> None:
    """Newcomers do: another attempt may have enough of them. An excluded worker would make it fail without an end."""
    strikes = {BAD: Strikes(count=7, until=99)}
    run = Schedule(
        a_run(assigned=True), "0", 5, members=frozenset(HONEST), waiting=frozenset({BAD, WORSE}), strikes=strikes
    )
    assert run.entering == {WORSE}
    only = replace(run, waiting=frozenset({BAD}))
    assert tell(only, assigned(5)).attempt == only.attempt
