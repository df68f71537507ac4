"""How often the chain is asked who will vote."""

from typing import Any, cast

from chain.contracts import Committee
from chain.errors import ContractError
from chain.indexer.records import Panel, Seat
from chain.indexer.state import State
from validator.voting import Committees

PLACE = (1, 2, 0)


class Forecaster:
    """A contract that forecasts a committee of the seat whose number is that of the question."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.asked, self.refuses = 0, refuses

    def committee_of(self, _: tuple[int, ...]) -> Committee:
        self.asked += 1
        if self.refuses:
            raise ContractError("Court.committeeOf", b"")
        return Committee((self.asked,), ("0x",), bytes(32))


def test_a_forecast_is_asked_for_once_a_block() -> None:
    contract, state, panel = Forecaster(), State(head=10), Panel(seed_block=9)
    committees = Committees(cast(Any, contract))
    assert [committees.of(state, panel, PLACE) for _ in range(3)] == [Committee((1,), ("0x",), bytes(32))] * 3
    assert committees.of(state, panel, (1, 3, 0)) == Committee((2,), ("0x",), bytes(32)), "another lane's is its own"
    for state in (State(head=11), State(head=11, generation=1)):
        before = contract.asked
        committees.of(state, panel, PLACE)
        committees.of(state, panel, PLACE)
        assert contract.asked == before + 1


def test_what_is_drawn_or_too_early_is_not_asked_for() -> None:
    contract = Forecaster()
    committees, state = Committees(cast(Any, contract)), State(head=10)
    assert committees.of(state, Panel(seed_block=11), PLACE) is None
    assert committees.of(state, Panel(seed_block=0), PLACE) is None
    seat = cast(Any, type("Voter", (), {"voter": "0x7"}))
    state.seats[7] = cast(Seat, seat)
    found = committees.of(state, Panel(seed_block=9, seats=(7,), seed=b"s"), PLACE)
    assert found == Committee((7,), ("0x7",), b"s")
    assert contract.asked == 0


def test_a_refusal_is_no_committee() -> None:
    assert Committees(cast(Any, Forecaster(refuses=True))).of(State(head=10), Panel(seed_block=9), PLACE) is None
