import pytest

from chain.judging import Canary
from chain.records import Account, Submission
from chain.state import State
from protocol.verdict import Code
from trainer.canaries import to_open, unsettled
from trainer.canary_tree import StepCanaries, next_counters

CARRIER = "0x" + "Aa" * 20


def file(sequence: int, **changes: object) -> Submission:
    values = {
        "pool": 1, "sequence": sequence, "node": CARRIER, "step": 0, "counter": sequence, "units": 9, "rows": 1,
        "root": bytes(32), "sha256": bytes([sequence]) * 32, "block": 1, "time": 100, "tx": "",
    } | changes  # fmt: skip
    return Submission(**values)  # type: ignore[arg-type]


def state_of(*files: Submission, canaries: dict[int, bool] | None = None) -> State:
    """`canaries`: sequence → whether it was concluded."""
    state = State()
    account = Account(1, CARRIER, CARRIER, sequences=[one.sequence for one in files])
    state.accounts[1, CARRIER] = account
    state.submissions.update({(1, one.sequence): one for one in files})
    for sequence, concluded in (canaries or {}).items():
        state.canaries[1, sequence] = Canary(1, sequence, 0, 3, (), 0, 0, 0, concluded=concluded)
    return state


DECIDED = {"code": int(Code.REJECT_WEIGHTS), "decided_time": 110, "final_time": 130}


def test_settled_files_are_opened_once_and_in_time() -> None:
    state = state_of(file(0, **DECIDED), file(1), file(2, **DECIDED), canaries={2: False})
    assert [sub.sequence for sub in to_open(state, 1, CARRIER, now=115)] == [0]
    assert to_open(state, 1, CARRIER, now=128) == [], "too late: the transaction would miss the window"


def test_finalised_and_disputed_files_are_left_alone() -> None:
    state = state_of(file(0, **DECIDED, finalized=True), file(1, **DECIDED, disputed=True))
    assert to_open(state, 1, CARRIER, now=115) == []


@pytest.mark.parametrize(("concluded", "waits"), [(False, True), (True, False)])
def test_a_run_waits_for_its_canaries(concluded: bool, waits: bool) -> None:
    assert unsettled(state_of(file(0, **DECIDED), canaries={0: concluded}), 1, CARRIER) is waits


def test_a_run_waits_for_votes_and_not_for_what_is_final() -> None:
    assert unsettled(state_of(file(0)), 1, CARRIER)
    assert not unsettled(state_of(file(0, **DECIDED, finalized=True)), 1, CARRIER)
    assert not unsettled(state_of(), 1, CARRIER)


def test_the_tree_of_a_published_step_is_found_again_from_its_root() -> None:
    secret, first = b"\5" * 32, 7
    root = StepCanaries(secret, 1, 3, next_counters([(CARRIER, first)])).root
    for counter in (first, first + 15):
        starts = [s for s in range(counter, counter - 16, -1) if s >= 0]
        found = [s for s in starts if StepCanaries(secret, 1, 3, next_counters([(CARRIER, s)])).root == root]
        assert found == [first]
