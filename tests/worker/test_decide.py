"""A worker's next step after kills, reorganisations, ejection: for every state there is one right answer."""

from dataclasses import replace
from typing import Any

import pytest

from chain.indexer.records import Account, Pool, Step, Submission, Terms
from chain.indexer.state import State
from protocol.accounts import Account as Key
from protocol.api.work import MOST_HANDED_IN, MOST_LEASES, ReceiptSigner
from protocol.identity import PoolId
from worker.decide import Decision, Do, Load, has_room, relay_patience
from worker.decide import decide as decided
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


def decide(
    state: State | None = None, *entries: JournalEntry, seeds: dict[int, bytes] = SEEDS, **more: Any
) -> Decision:
    """The next step with these files in the journal; `handed_in`: those that the service has."""
    stems = {entry.stem for entry in more.pop("handed_in", ())}
    return decided(chain() if state is None else state, 1, NODE, entries, seeds, stems, more.pop("now", 0), **more)


def makes(decision: Decision, counter: int = 4) -> bool:
    return (decision.do, decision.counter) == (Do.WAIT, counter)


def later(steps: int) -> State:
    """The chain with so many policy steps."""
    state = chain()
    state.pools[1].steps += [Step(n, b"m" * 32, b"", 10 + n, 9 + n, 0, "") for n in range(3, steps)]
    return state


def of_status(status: str) -> State:
    state = chain()
    state.pools[1].status = status
    return state


def test_makes_the_file_that_is_due() -> None:
    decision = decide()
    assert (decision.do, decision.counter, decision.steps) == (Do.WAIT, 4, (0, 1, 2))


@pytest.mark.parametrize("older", [file(3, 2, SEEDS[2]), file(3, 1, SEEDS[1])])
def test_killed_after_the_file_was_made_or_its_submission_dropped_resumes_it(older: JournalEntry) -> None:
    mine = file(4, 2, SEEDS[2])
    decision = decide(None, older, mine)
    assert (decision.do, decision.entry) == (Do.HAND_IN, mine)


def test_killed_after_the_transaction_makes_the_next() -> None:
    assert makes(decide(chain(counter=5), file(4, 2, SEEDS[2])), 5)


def test_a_file_of_another_seed_or_of_a_step_too_old_is_made_anew() -> None:
    """A reorganisation changed the seed."""
    assert makes(decide(None, file(4, 2, b"\x09" * 32)))
    seeds = SEEDS | {3: b"\x03" * 32, 4: b"\x04" * 32}
    decision = decide(later(5), file(4, 1, SEEDS[1]), seeds=seeds)
    assert (makes(decision), decision.steps) == (True, (2, 3, 4))


EJECTED = {"ejected": True, "eject_code": 3, "eject_sequence": 7}


@pytest.mark.parametrize(
    ("state", "do", "words", "failed"),
    [
        (chain(**EJECTED), Do.STOP, "ejected from pool 1: reject: weights, submission 7", True),
        (chain(removed=True), Do.STOP, "removed", True),
        (chain(member=False), Do.WAIT, "not joined", False),
        (chain(frozen_at=5), Do.WAIT, "not final", False),
        (chain(joined_step=3), Do.WAIT, "no policy step", False),
        (State(), Do.WAIT, "not on this chain", False),
        (of_status("paused"), Do.WAIT, "paused", False),
        (of_status("closing"), Do.STOP, "closing", False),
        (of_status("settled"), Do.STOP, "settled", False),
    ],
)
def test_reasons_not_to_work(state: State, do: Do, words: str, failed: bool) -> None:
    decision = decide(state)
    assert (decision.do, decision.failed) == (do, failed)
    assert words in decision.reason


def test_unconfirmed_seeds_are_not_built_on() -> None:
    assert decide(seeds={}).do is Do.WAIT
    assert decide(seeds={0: SEEDS[0]}).steps == (0,)


RECEIPT = ReceiptSigner(Key.create(), PoolId(1, "0x" + "11" * 20, 1)).sign(NODE, "00" * 32, 1, 7)


def promised(step: int = 2, step_seed: bytes = SEEDS[2]) -> JournalEntry:
    return replace(file(4, step, step_seed), receipt=RECEIPT)


@pytest.mark.parametrize("status", ["paused", "closing", "understaffed"])
def test_a_file_with_a_receipt_is_handed_in_though_the_pool_takes_no_others(status: str) -> None:
    assert decide(of_status(status), promised()).entry == promised()
    for unpromised in (replace(promised(), overdue=True), replace(promised(), receipt=None)):
        assert decide(of_status(status), unpromised).do is not Do.HAND_IN


@pytest.mark.parametrize(
    ("state", "seeds"),
    [(chain(removed=True), SEEDS), (chain(member=False), SEEDS), (later(9), {8: b"\x08" * 32})],
    ids=["removed", "left", "step has passed"],
)
def test_a_file_with_a_receipt_is_handed_in_though_nothing_new_is_taken(state: State, seeds: dict[int, bytes]) -> None:
    assert decide(state, promised(), seeds=seeds).do is Do.HAND_IN


@pytest.mark.parametrize(
    ("state", "entry", "seeds"),
    [
        # After a reorganisation it would be refused as another assignment, and its node slashed.
        (chain(), promised(2, b"\x09" * 32), SEEDS),
        (chain(), promised(2, b"\x02" * 31 + b"\x03"), SEEDS),
        (chain(), promised(), {0: SEEDS[0], 1: SEEDS[1]}),  # its seed is unconfirmed since one
        (chain(joined_step=2), promised(1, SEEDS[1]), SEEDS),  # of a step before the node joined again
    ],
)
def test_where_a_receipt_does_not_help(state: State, entry: JournalEntry, seeds: dict[int, bytes]) -> None:
    assert makes(decide(state, entry, seeds=seeds))


def test_no_receipt_helps_an_ejected_node() -> None:
    assert decide(chain(ejected=True), promised()).do is Do.STOP


def promised_at(counter: int, time: int = 7) -> JournalEntry:
    receipt = RECEIPT.model_copy(update={"time": time})
    return replace(file(counter, 2, SEEDS[2]), receipt=receipt, sha256=bytes([counter]) * 32)


def patient() -> State:
    """The chain where a node waits for 20 s before it submits by itself."""
    state = chain()
    state.pools[1].terms = replace(state.pools[1].terms, receiptWindow=40)
    return state


def test_the_next_files_are_made_while_the_first_wait_to_be_relayed() -> None:
    files = tuple(promised_at(4 + number) for number in range(MOST_HANDED_IN))
    for count in range(MOST_HANDED_IN):
        decision = decide(None, *files, handed_in=files[:count])
        assert (decision.do, decision.entry) == (Do.HAND_IN, files[count])
        assert makes(decide(None, *files[:count], handed_in=files[:count]), 4 + count)
    decision = decide(patient(), *files, handed_in=files, now=10)
    assert (decision.do, decision.entry, decision.counter) == (Do.WAIT, files[0], None)
    assert decision.reason.startswith("4 files wait for the service to relay them, the first is file 4")


def test_while_none_waits_long_a_node_fills_lanes() -> None:
    files = tuple(promised_at(4 + number, time=1000) for number in range(MOST_LEASES))
    assert makes(decide(patient(), *files[:-1], handed_in=files, now=1001), 3 + MOST_LEASES)
    assert decide(patient(), *files, handed_in=files, now=1001).counter is None
    assert decide(patient(), *files[:MOST_HANDED_IN], handed_in=files, now=1002).counter is None


def test_a_file_that_waits_and_no_longer_fits_is_made_again_and_what_follows_it_is_kept() -> None:
    """A reorganisation changed its seed, or its step has passed."""
    gone, kept = replace(promised_at(4), step_seed=b"\x09" * 32), promised_at(5)
    decision = decide(None, gone, kept, handed_in=(gone, kept))
    assert (decision.do, decision.entry, decision.counter) == (Do.WAIT, None, 4)
    again = replace(promised_at(4), sha256=b"\x44" * 32)
    assert decide(None, gone, kept, again, handed_in=(gone, kept)).entry == again


@pytest.mark.parametrize(("window", "patience"), [(40, 20), (86_400, 600)])
def test_what_the_service_does_not_relay_in_time_is_submitted(window: int, patience: int) -> None:
    state = chain()
    pool = state.pools[1]
    pool.terms = replace(pool.terms, receiptWindow=window)
    assert relay_patience(pool.terms) == patience
    mine, due = promised_at(4, time=1000), 1000 + patience
    assert makes(decide(state, mine, handed_in=(mine,), now=due - 1), 5)
    decision = decide(state, mine, handed_in=(mine,), now=due)
    assert (decision.do, decision.entry) == (Do.SUBMIT, mine)
    assert makes(decide(state, replace(mine, overdue=True), handed_in=(mine,), now=due), 5)
    pool.status = "paused"
    assert decide(state, mine, handed_in=(mine,), now=due - 1).do is Do.WAIT
    assert decide(state, mine, handed_in=(mine,), now=due).do is Do.SUBMIT


def test_the_service_has_its_time_from_when_the_file_before_landed() -> None:
    state = patient()
    state.accounts[1, NODE].sequences.append(48)
    state.submissions[1, 48] = Submission(1, 48, NODE, 2, 3, 1, 8, bytes(32), bytes(32), 9, 1500, "")
    mine = promised_at(4, time=1000)
    assert makes(decide(state, mine, handed_in=(mine,), now=1519), 5)
    assert decide(state, mine, handed_in=(mine,), now=1520).do is Do.SUBMIT


def test_files_whose_receipts_end_soon_do_not_wait_for_one_another() -> None:
    state = patient()
    state.accounts[1, NODE].sequences.append(48)
    state.submissions[1, 48] = Submission(1, 48, NODE, 2, 3, 1, 8, bytes(32), bytes(32), 9, 1020, "")
    mine = promised_at(4, time=1000)
    assert makes(decide(state, mine, handed_in=(mine,), now=1029), 5)
    assert decide(state, mine, handed_in=(mine,), now=1030).do is Do.SUBMIT


def test_a_worker_started_again_submits_what_the_service_left_out_though_it_cannot_hand_in() -> None:
    state = chain(removed=True)
    state.pools[1].terms = replace(state.pools[1].terms, receiptWindow=40)
    mine = promised_at(4, time=1000)
    assert decide(state, mine, now=1019).do is Do.HAND_IN
    decision = decide(state, mine, now=1020)
    assert (decision.do, decision.entry) == (Do.SUBMIT, mine)


def test_the_next_files_are_made_while_others_are_under_way_and_handed_in_in_order() -> None:
    done = file(6, 2, SEEDS[2])
    decision = decide(None, done, making={4, 5})
    assert (decision.do, decision.entry, decision.counter) == (Do.WAIT, None, 7), "file 6 waits for 4 and 5"
    first = file(4, 2, SEEDS[2])
    decision = decide(None, first, done, making={5})
    assert (decision.do, decision.entry, decision.counter) == (Do.HAND_IN, first, 7)


@pytest.mark.parametrize(
    ("load", "seconds", "room"),
    [
        (Load(0, 64, 0), 600.0, True),
        (Load(1, 64, 16), 600.0, False),  # how fast it is, nobody knows yet
        (Load(1, 64, 16, rate=100.0, tokens=500.0), 600.0, True),
        (Load(1, 64, 16, rate=100.0, tokens=2000.0), 600.0, False),  # 32 rows take 640 s
        (Load(4, 64, 79, rate=1000.0, tokens=500.0), 600.0, True),
        (Load(5, 64, 80, rate=1000.0, tokens=500.0), 600.0, False),
        (Load(MOST_LEASES, 640, 100, rate=1e6, tokens=500.0), 600.0, False),
        (Load(1, 0, 0), 600.0, False),  # an engine that computes one file at a time
    ],
)
def test_files_are_taken_until_the_batch_is_full_and_no_more_than_can_be_finished(
    load: Load, seconds: float, room: bool
) -> None:
    assert has_room(load, 16, seconds) is room
