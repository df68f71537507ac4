"""What happened on chain is told to whom it concerns, once."""

from chain.judging import Dispute
from chain.projection import Projection
from chain.records import Account, Seat, Slash
from chain.state import State
from runtime.watch.memory import WatchMemory, with_news
from runtime.watch.news import news
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
