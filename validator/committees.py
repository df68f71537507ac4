"""Who votes in a round or trial, and which of the members are ours."""

import logging
from collections.abc import Iterator, Mapping

from chain.contracts import BallotContract, Committee, Place
from chain.errors import ContractError
from chain.indexer.records import Panel
from chain.indexer.state import State

log = logging.getLogger("muster.validator")


def ours(committee: Committee, voters: Mapping[str, object]) -> Iterator[tuple[int, int, str]]:
    """(member, seat, voter) of those whose keys we hold."""
    for member, (seat, voter) in enumerate(zip(committee.seats, committee.voters, strict=True)):
        if voter in voters:
            yield member, seat, voter


def drawn_committee(state: State, current: Panel) -> Committee:
    """The committee of a drawn round; a voting key replaced since then counts at once, as on chain."""
    return Committee(current.seats, tuple(state.seats[seat].voter for seat in current.seats), current.seed)


class Committees:
    """Who votes in a contract's bodies. What it forecasts of a body is asked for once a block."""

    def __init__(self, contract: BallotContract) -> None:
        self._contract = contract
        self._block = (0, 0)
        self._forecasts: dict[Place, Committee | None] = {}

    def of(self, state: State, current: Panel, place: Place) -> Committee | None:
        """From events once drawn, before that from the chain's own forecast; None while it is not known."""
        if current.drawn:
            return drawn_committee(state, current)
        if not current.seed_block or state.head < current.seed_block:
            return None
        block = state.head, state.generation
        if self._block != block:
            self._block, self._forecasts = block, {}
        if place not in self._forecasts:
            self._forecasts[place] = self._forecast(place)
        return self._forecasts[place]

    def _forecast(self, place: Place) -> Committee | None:
        try:
            return self._contract.committee_of(place)
        except ContractError as error:
            log.debug("no committee: %s", error)
            return None
