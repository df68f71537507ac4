"""Canaries: when they are opened, how an opening is found again, and what their trees give away."""

from dataclasses import replace
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace
from typing import Any

from eth_utils.address import to_checksum_address

from chain.contracts import Canaries
from chain.indexer.records import Account, Canary, Pool, Step, Submission
from chain.indexer.state import State
from protocol.accounts import Account as KeyMaker
from protocol.accounts import LocalAccount
from protocol.errors import MusterError
from protocol.rollout_file.rows import Limits
from protocol.verdict import Code
from protocol.waits import wait_for
from tests import openings
from tests.chain.game import terms
from trainer.pool.canaries import LEAVES, CanaryOpener, CanaryPlan, StepCanaries, to_open, unsettled

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
    account = Account(1, DECOY, DECOY, sequences=[one.sequence for one in files])
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


def test_the_opening_of_a_published_file_is_found_again_from_its_steps_root() -> None:
    plan, first = CanaryPlan(b"\5" * 32, 1, KEY), 7
    state = state_of(*(file(sequence, step=3, counter=sequence) for sequence in range(first - 1, first + 17)))
    steps = [Step(number, bytes(32), bytes(32), 5, 5, 0, "") for number in range(3)]
    steps.append(Step(3, bytes(32), plan.tree(3, first).root, 5, 5, 0, ""))
    state.pools[1] = Pool(1, DECOY, bytes(32), terms(), 0, 0, steps=steps)
    for counter in (first, first + 15):
        starts = [start for start in range(counter, counter - 16, -1) if start >= 0]
        assert [start for start in starts if plan.tree(3, start).root == plan.tree(3, first).root] == [first]
        assert plan.opening(state, state.submissions[1, counter]) == plan.tree(3, first).opening(DECOY, counter)
    assert plan.opening(state, state.submissions[1, first - 1]) is None
    assert plan.opening(state, state.submissions[1, first + 16]) is None


def test_a_step_commits_to_the_decoys_next_files_and_to_nothing_without_a_decoy() -> None:
    state, plan = state_of(), CanaryPlan(b"\5" * 32, 1, KEY)
    assert plan.next_root(state, 3) == plan.tree(3, 0).root
    state.accounts[1, DECOY].counter = 4
    assert plan.next_root(state, 3) == plan.tree(3, 4).root != plan.tree(3, 0).root
    assert plan.tree(3, 4).planted == tuple((DECOY, 4 + place) for place in range(LEAVES))
    assert CanaryPlan(b"\5" * 32, 1, None).tree(3, 4) == StepCanaries(b"\5" * 32, 1, 3, ())


# The tree

NODE = to_checksum_address("0x" + "ab" * 20)
OTHER = to_checksum_address("0x" + "cd" * 20)


def tree(**changes: Any) -> StepCanaries:
    planted = tuple((NODE, 5 + place) for place in range(LEAVES))
    return replace(StepCanaries(b"\1" * 32, 1, 3, planted), **changes)


def test_every_planted_counter_opens_against_the_root() -> None:
    canaries = tree()
    for counter in range(5, 5 + LEAVES):
        opening = canaries.opening(NODE, counter)
        assert opening is not None
        assert len(opening.proof) == 4
        leaf = Canaries.leaf(opening.salt, 1, 3, NODE, counter)
        assert openings.verify(canaries.root, leaf, opening.proof)
        wrong = Canaries.leaf(opening.salt, 1, 4, NODE, counter)
        assert not openings.verify(canaries.root, wrong, opening.proof)


def test_other_files_do_not_open_and_a_root_tells_nothing_without_the_secret() -> None:
    assert tree().opening(NODE, 4) is None
    assert tree().opening(NODE, 5 + LEAVES) is None
    assert tree().opening(OTHER, 5) is None
    bare: dict[str, Any] = {"planted": ()}
    changes: list[dict[str, Any]] = [{}, {"secret": b"\2" * 32}, {"step": 4}, bare, bare | {"step": 4}]
    assert len({tree(**change).root for change in changes}) == 5


def opener_of(kind: type[CanaryOpener], *files: Submission) -> Any:
    """An opener to which the chain shows these files whenever it looks."""
    state = state_of(*files)
    client: Any = SimpleNamespace(refresh=lambda: state, chain=SimpleNamespace(now=115))
    return kind(CanaryPlan(bytes(32), 1, KEY), client, lambda key, limit: b"", Limits(1, 1, 1, 1))


class LameOpener(CanaryOpener):
    """Cannot open file 0."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tried: list[int] = []

    def _open(self, state: State, sub: Submission) -> None:
        self.tried.append(sub.sequence)
        if sub.sequence == 0:
            raise MusterError("its bytes are gone")


def test_a_file_that_cannot_be_opened_does_not_keep_the_next_from_it() -> None:
    opener = opener_of(LameOpener, file(0, **DECIDED), file(1, **DECIDED))
    opener.start()
    wait_for("two tries", lambda: len(opener.tried) >= 2 or None, 20)
    opener.stop()
    assert set(opener.tried[:2]) == {0, 1}


class PairOpener(CanaryOpener):
    """Opens a file only together with another."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.both, self.done = Barrier(2, timeout=60), list[int]()

    def _open(self, state: State, sub: Submission) -> None:
        try:
            self.both.wait()
        except BrokenBarrierError:
            raise MusterError("it was opened alone") from None
        self.done.append(sub.sequence)


def test_files_that_are_due_together_are_opened_together() -> None:
    opener = opener_of(PairOpener, file(0, **DECIDED), file(1, **DECIDED))
    opener.start()
    wait_for("two files", lambda: len(opener.done) >= 2 or None, 20)
    opener.stop()
