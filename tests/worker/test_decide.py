"""A worker's next step after kills, reorganisations, ejection: for every state there is one right answer."""

from dataclasses import replace

import pytest

from chain.indexer.records import Account, Pool, Step, Terms
from chain.indexer.state import State
from protocol.accounts import Account as Key
from protocol.api.work import ReceiptSigner
from protocol.identity import PoolId
from worker.decide import Do, decide
from worker.journal import JournalEntry

NODE = "0x" + "11" * 20
SEEDS = {0: b"\x00" * 32, 1: b"\x01" * 32, 2: b"\x02" * 32}


def file(counter: int, step: int, step_seed: bytes) -> JournalEntry:
    return JournalEntry(counter, step, step_seed, bytes(32), bytes(32), bytes(32), 1, 1)


def chain(**account: object) -> State:
    special = {"maxLag": 2, "configHash": b"", "inviteOnly": False, "class": 0}
    values = dict.fromkeys(Terms.__dataclass_fields__, 1) | special
    steps = [Step(n, b"m" * 32, b"", 10 + n, 9 + n, 0, "") for n in range(3)]
    pool = Pool(1, "0x" + "22" * 20, b"", Terms.of(values), 3600, 1, steps=steps)
    member = replace(Account(1, NODE, "0x" + "33" * 20, member=True, counter=4), **account)  # type: ignore[arg-type]
    return State(pools={1: pool}, accounts={(1, NODE): member})


def later(steps: int) -> State:
    """The chain with so many policy steps."""
    state = chain()
    state.pools[1].steps += [Step(n, b"m" * 32, b"", 10 + n, 9 + n, 0, "") for n in range(3, steps)]
    return state


def test_makes_the_file_that_is_due() -> None:
    decision = decide(chain(), 1, NODE, [], SEEDS)
    assert (decision.do, decision.counter, decision.steps) == (Do.MAKE, 4, (0, 1, 2))


@pytest.mark.parametrize("older", [file(3, 2, SEEDS[2]), file(3, 1, SEEDS[1])])
def test_killed_after_the_file_was_made_or_its_submission_dropped_resumes_it(older: JournalEntry) -> None:
    mine = file(4, 2, SEEDS[2])
    decision = decide(chain(), 1, NODE, [older, mine], SEEDS)
    assert (decision.do, decision.entry) == (Do.RESUME, mine)


def test_killed_after_the_transaction_makes_the_next() -> None:
    assert decide(chain(counter=5), 1, NODE, [file(4, 2, SEEDS[2])], SEEDS).do is Do.MAKE


def test_a_file_of_another_seed_or_of_a_step_too_old_is_made_anew() -> None:
    """A reorganisation changed the seed."""
    assert decide(chain(), 1, NODE, [file(4, 2, b"\x09" * 32)], SEEDS).do is Do.MAKE
    seeds = SEEDS | {3: b"\x03" * 32, 4: b"\x04" * 32}
    decision = decide(later(5), 1, NODE, [file(4, 1, SEEDS[1])], seeds)
    assert (decision.do, decision.steps) == (Do.MAKE, (2, 3, 4))


@pytest.mark.parametrize(
    ("account", "do", "words"),
    [
        ({"ejected": True, "eject_sequence": 7}, Do.STOP, "ejected from pool 1: its submission 7"),
        ({"removed": True}, Do.STOP, "removed"),
        ({"member": False}, Do.WAIT, "not joined"),
        ({"frozen_at": 5}, Do.WAIT, "not final"),
        ({"joined_step": 3}, Do.WAIT, "no policy step"),
    ],
)
def test_reasons_not_to_work(account: dict[str, object], do: Do, words: str) -> None:
    decision = decide(chain(**account), 1, NODE, [], SEEDS)
    assert decision.do is do
    assert words in decision.reason


def test_unconfirmed_seeds_are_not_built_on() -> None:
    assert decide(chain(), 1, NODE, [], {}).do is Do.WAIT
    assert decide(chain(), 1, NODE, [], {0: SEEDS[0]}).steps == (0,)


@pytest.mark.parametrize(("status", "do"), [("paused", Do.WAIT), ("closing", Do.STOP), ("settled", Do.STOP)])
def test_pool_status(status: str, do: Do) -> None:
    state = chain()
    state.pools[1].status = status
    decision = decide(state, 1, NODE, [], SEEDS)
    assert decision.do is do
    assert not decision.failed


RECEIPT = ReceiptSigner(Key.create(), PoolId(1, "0x" + "11" * 20, 1)).sign(NODE, "00" * 32, 1, 7)


def promised(step: int = 2, step_seed: bytes = SEEDS[2]) -> JournalEntry:
    return replace(file(4, step, step_seed), receipt=RECEIPT)


@pytest.mark.parametrize("status", ["paused", "closing", "understaffed"])
def test_a_file_with_a_receipt_is_handed_in_though_the_pool_takes_no_others(status: str) -> None:
    state = chain()
    state.pools[1].status = status
    assert decide(state, 1, NODE, [promised()], SEEDS).entry == promised()
    assert decide(state, 1, NODE, [replace(promised(), overdue=True)], SEEDS).do is not Do.RESUME
    assert decide(state, 1, NODE, [replace(promised(), receipt=None)], SEEDS).do is not Do.RESUME


@pytest.mark.parametrize("account", [{"removed": True}, {"member": False}])
def test_a_file_with_a_receipt_is_handed_in_though_its_node_is_no_member(account: dict[str, object]) -> None:
    assert decide(chain(**account), 1, NODE, [promised()], SEEDS).do is Do.RESUME


def test_a_file_with_a_receipt_is_handed_in_though_its_step_has_passed() -> None:
    assert decide(later(9), 1, NODE, [promised()], {8: b"\x08" * 32}).do is Do.RESUME


@pytest.mark.parametrize("step_seed", [b"\x09" * 32, b"\x02" * 31 + b"\x03"])
def test_a_receipt_does_not_make_another_seeds_file_fit(step_seed: bytes) -> None:
    """After a reorganisation it would be refused as another assignment, and its node slashed."""
    assert decide(chain(), 1, NODE, [promised(2, step_seed)], SEEDS).do is Do.MAKE


def test_where_a_receipt_does_not_help() -> None:
    """Of a step before the node joined again, of an ejected node, and of a pool that is not there."""
    assert decide(chain(joined_step=2), 1, NODE, [promised(1, SEEDS[1])], SEEDS).do is Do.MAKE
    assert decide(chain(ejected=True), 1, NODE, [promised()], SEEDS).do is Do.STOP
    assert decide(State(), 1, NODE, [], SEEDS).do is Do.WAIT
