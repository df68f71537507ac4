"""What happened on chain is told to whom it concerns, once."""

from dataclasses import replace

from chain.judging import Accusation, CaseOutcome, Dispute
from chain.projection import Projection
from chain.records import Account, Seat, Slash
from chain.state import State
from runtime.watch.memory import WatchMemory, with_news
from runtime.watch.news import EVENTS, news
from tests.orchestrator.chain import CHEAT, NODE, OWNER, VOTER, ScriptedChain
from tests.runtime.watch.test_alarms import config

HERS, OTHERS = str(NODE.address), str(CHEAT.address)


def state_of(scripted: ScriptedChain) -> State:
    """Our node was slashed and ejected, so was another; a seat lost; files of both are disputed."""
    scripted.submit(NODE, 0)
    scripted.submit(CHEAT, 0)
    seen = Projection(scripted).state
    state = State(head=9, pools=seen.pools, submissions=seen.submissions)
    state.seats[0] = Seat(0, str(VOTER.address), str(VOTER.address), 10, 1)
    for number, node in enumerate((HERS, OTHERS)):
        state.slashes.append(Slash("node", node, 1, number, 4, 10**9, 1, 1, f"0x{number}"))
        state.accounts[1, node] = Account(1, node, node, ejected=True, eject_code=4, eject_sequence=number)
        state.disputes[1, number] = Dispute(1, number, str(OWNER.address), 0, 5, 1, resolved=node == HERS)
    state.slashes.append(Slash("seat", "0", 1, 0, 0, 10**9, 1, 1, "0x9"))
    return state


def keys(state: State, **who: object) -> set[str]:
    """Without the transactions of slashes."""
    found = [item.key for item in news(config(**who), state)]
    return {key.rpartition(":")[0] if key.startswith("slashed") else key for key in found}


def test_an_operator_is_told_of_its_own_node(scripted: ScriptedChain) -> None:
    state = state_of(scripted)
    found = keys(state, node=HERS)
    assert found == {f"slashed:node:{HERS}:1:0", f"ejected:{HERS}:0", "disputed:0", "decided:0"}


def accusation(number: int, node: str, outcome: CaseOutcome, pool: int = 1) -> Accusation:
    case = Accusation(
        number,
        pool,
        node,
        str(OWNER.address),
        (3, 4, 7),
        b"",
        bond=5,
        trials=[number],
        block=1,
        time=1,
        outcome=outcome,
    )
    return replace(case, slashed=2 * 10**9 if outcome is CaseOutcome.UPHELD else 0)


def test_node_cases_are_told_when_opened_and_when_decided_to_the_accused_and_the_owner() -> None:
    upheld, refuted, still = CaseOutcome.UPHELD, CaseOutcome.REFUTED, CaseOutcome.OPEN
    cases = (
        accusation(1, HERS, upheld), accusation(2, HERS, still), accusation(3, OTHERS, refuted),
        accusation(4, HERS, upheld, pool=2),
    )  # fmt: skip
    state = State(head=9, cases={one.case: one for one in cases})
    own = list(news(config(node=HERS), state))
    assert [(one.key, one.event) for one in own] == [
        ("case:1", "case_opened"), ("case_decided:1", "case_decided"), ("case:2", "case_opened"),
    ]  # fmt: skip
    assert own[0].what == f"{OWNER.address} accuses node {HERS} by 3 files from 3 to 7: node case 1"
    assert own[1].what == (
        f"node case 1 against {HERS} is upheld, 2 tokens of its stake are gone (muster verify case 1)"
    )
    everybodys = {one.key: one.what for one in news(config(node=None, owner=True), state)}
    assert set(everybodys) == {"case:1", "case_decided:1", "case:2", "case:3", "case_decided:3"}
    assert everybodys["case_decided:3"] == f"node case 3 against {OTHERS} is refuted (muster verify case 3)"
    assert {one.event for one in own} <= set(EVENTS)
    # A new case after the first look is news, and once.
    memory, _ = with_news(WatchMemory(), news(config(node=HERS), State(cases={1: cases[0]})))
    memory, fresh = with_news(memory, news(config(node=HERS), state))
    assert [one.key for one in fresh] == ["case:2"]


def test_a_validator_is_told_of_its_own_seats(scripted: ScriptedChain) -> None:
    assert keys(state_of(scripted), node=None, seats_of=str(VOTER.address)) == {"slashed:seat:0:1:0"}


def test_an_owner_is_told_of_everybody_in_the_pool(scripted: ScriptedChain) -> None:
    found = keys(state_of(scripted), node=None, owner=True)
    assert len(found) == 8
    assert keys(state_of(scripted), node=None, owner=True, pool=2) == set()


def test_what_happened_before_the_first_look_is_no_news_and_nothing_is_told_twice(scripted: ScriptedChain) -> None:
    state = state_of(scripted)
    last, earlier = state.slashes.pop(), state.slashes
    who = config(node=None, seats_of=str(VOTER.address), owner=True)
    memory, fresh = with_news(WatchMemory(), news(who, state))
    assert fresh == []
    state.slashes = [*earlier, last]
    memory, fresh = with_news(memory, news(who, state))
    assert [item.event for item in fresh] == ["slashed"]
    memory, fresh = with_news(WatchMemory.model_validate_json(memory.model_dump_json()), news(who, state))
    assert fresh == []
