"""Canaries: when they are opened, how an opening is found again, and what their trees give away."""

from collections.abc import Callable
from dataclasses import replace
from threading import Barrier
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from chain.contracts import Canaries
from chain.indexer.records import Account, Canary, FileNumbers, Pool, Step, Submission
from chain.indexer.state import State
from protocol.accounts import Account as KeyMaker
from protocol.accounts import LocalAccount
from protocol.errors import MusterError
from protocol.rollout_file.rows import Limits
from protocol.verdict import Code
from protocol.waits import wait_for
from tests import openings
from tests.chain.game import terms
from trainer.pool.canaries import LEAVES, CanaryOpener, CanaryPlan, to_open, unsettled

KEY: LocalAccount = KeyMaker.from_key(b"\7" * 32)
DECOY = str(KEY.address)


def file(sequence: int, **changes: object) -> Submission:
    values = {
        "pool": 1, "sequence": sequence, "node": DECOY, "step": 0, "counter": sequence, "units": 9, "rows": 1,
        "root": bytes(32), "sha256": bytes([sequence]) * 32, "block": 1, "time": 100, "tx": "",
    } | changes  # fmt: skip
    return Submission(**values)  # type: ignore[arg-type]


def state_of(*files: Submission, canaries: dict[int, bool] | None = None) -> State:
    """`canaries`: sequence → whether it was concluded."""
    state = State()
    account = Account(1, DECOY, DECOY, sequences=FileNumbers(file.sequence for file in files))
    state.accounts[1, DECOY] = account
    state.submissions.update({(1, one.sequence): one for one in files})
    for sequence, concluded in (canaries or {}).items():
        state.canaries[1, sequence] = Canary(1, sequence, 0, 3, (), 0, 0, concluded=concluded)
    return state


DECIDED = {"code": int(Code.REJECT_WEIGHTS), "decided_time": 110, "final_time": 130}


def test_settled_files_are_opened_once_and_in_time() -> None:
    state = state_of(file(0, **DECIDED), file(1), file(2, **DECIDED), canaries={2: False})
    assert [sub.sequence for sub in to_open(state, 1, DECOY, now=115)] == [0]
    assert to_open(state, 1, DECOY, now=128) == [], "too late: the transaction would miss the window"
    state = state_of(file(0, **DECIDED, finalized=True), file(1, **DECIDED, disputed=True))
    assert [sub.sequence for sub in to_open(state, 1, DECOY, now=115)] == [1], "before any dispute of the file"


def test_a_run_waits_for_votes_and_canaries_and_not_for_what_is_final() -> None:
    assert unsettled(state_of(file(0, **DECIDED), canaries={0: False}), 1, DECOY)
    assert not unsettled(state_of(file(0, **DECIDED), canaries={0: True}), 1, DECOY)
    assert unsettled(state_of(file(0)), 1, DECOY)
    assert not unsettled(state_of(file(0, **DECIDED, finalized=True)), 1, DECOY)
    assert not unsettled(state_of(), 1, DECOY)


OWNER: LocalAccount = KeyMaker.from_key(b"\5" * 32)
PLAN, FIRST = CanaryPlan(OWNER, 1, KEY), 7


def published(root: bytes, *files: Submission) -> State:
    """A chain whose policy steps 3 and 4 have this root."""
    state = state_of(*files)
    steps = [Step(number, bytes(32), root, 5, 5, 0, "") for number in range(5)]
    state.pools[1] = Pool(1, DECOY, bytes(32), terms(), 0, 0, steps=steps)
    return state


def test_every_planted_file_opens_against_its_steps_root_and_no_other_does() -> None:
    counters = (FIRST - 1, FIRST, FIRST + 1, FIRST + 31, FIRST + LEAVES - 1, FIRST + LEAVES)
    files = [file(at, step=3, counter=counter, block=6 if at else 1) for at, counter in enumerate(counters)]
    state = published(PLAN.root(3, FIRST), *files)
    before, *planted, after = files
    for sub in planted:
        opening = PLAN.opening(state, sub)
        assert opening is not None
        assert len(opening.proof) == 10, "Canaries.DEPTH"
        leaf = Canaries.leaf(opening.salt, 1, 3, DECOY, sub.counter)
        assert openings.verify(PLAN.root(3, FIRST), leaf, opening.proof)
        wrong = Canaries.leaf(opening.salt, 1, 4, DECOY, sub.counter)
        assert not openings.verify(PLAN.root(3, FIRST), wrong, opening.proof)
    others = before, after, replace(planted[0], step=4), replace(planted[0], node=str(OWNER.address))
    assert [PLAN.opening(state, sub) for sub in others] == [None] * 4


@pytest.mark.parametrize("seen", [0, 37, 40])
def test_a_step_whose_trainer_saw_fewer_files_than_the_chain_had_opens(seen: int) -> None:
    """All of a node's leases may be answered while the trainer publishes: `seen` of forty files."""
    files = [file(at, step=3, block=5) for at in range(40)] + [file(40, step=3, block=6)]
    assert PLAN.opening(published(PLAN.root(3, seen), *files), files[-1]) is not None


def test_a_step_commits_to_the_decoys_next_files_and_a_root_tells_nothing_without_the_secret() -> None:
    state = state_of()
    assert PLAN.next_root(state, 3) == PLAN.root(3, 0)
    state.accounts[1, DECOY].counter = 4
    assert PLAN.next_root(state, 3) == PLAN.root(3, 4) != PLAN.root(3, 0)
    bare, strangers = CanaryPlan(OWNER, 1, None), CanaryPlan(KEY, 1, KEY)
    assert len({plan.root(step, 0) for plan in (PLAN, strangers, bare) for step in (3, 4)}) == 6
    assert bare.root(3, 0) == bare.root(3, 4)


def try_two(monkeypatch: pytest.MonkeyPatch, open_file: Callable[[int], object]) -> None:
    """An opener opens so what is due, files 0 and 1, until it has tried twice."""
    tried = list[int]()

    def tracked(_: CanaryOpener, state: State, sub: Submission) -> None:
        try:
            open_file(sub.sequence)
        finally:
            tried.append(sub.sequence)

    monkeypatch.setattr(CanaryOpener, "_open", tracked)
    state = state_of(file(0, **DECIDED), file(1, **DECIDED))
    client: Any = SimpleNamespace(refresh=lambda: state, chain=SimpleNamespace(now=115))
    opener = CanaryOpener(PLAN, client, lambda key, limit: b"", Limits(1, 1, 1, 1))
    opener.start()
    wait_for("two tries", lambda: len(tried) >= 2 or None, 60)
    opener.stop()
    assert set(tried[:2]) == {0, 1}


def test_a_file_that_cannot_be_opened_does_not_keep_the_next_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    try_two(monkeypatch, Mock(side_effect=MusterError("its bytes are gone")))


def test_files_that_are_due_together_are_opened_together(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Barrier(2, timeout=30)
    try_two(monkeypatch, lambda _: both.wait())
    assert not both.broken, "one was opened alone"


def test_a_file_that_was_not_planted_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    state, client = published(PLAN.root(3, FIRST), file(0, step=3)), Mock()
    opener = CanaryOpener(PLAN, client, Mock(), Limits(1, 1, 1, 1))
    for _ in range(3):
        opener._open(state, state.submissions[1, 0])
    assert [record.getMessage() for record in caplog.records] == [
        "file 0 of the decoy was not planted with step 3: its stake will be lost"
    ]
    assert not client.method_calls
