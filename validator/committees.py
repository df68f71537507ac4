"""Who votes in a round or trial, and which of the members are ours."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from chain.contracts.court import Committee
from chain.errors import ContractError
from chain.judging import Round, Trial
from chain.state import State

log = logging.getLogger("muster.validator")


@dataclass(frozen=True)
class DrawnCommittee:
    """Members of a round or trial: `seats[j]` votes with `voters[j]`; `seed` is the draw's."""

    seats: tuple[int, ...]
    voters: tuple[str, ...]
    seed: bytes

    def ours(self, voters: Mapping[str, object]) -> Iterator[tuple[int, int, str]]:
        """(member, seat, voter) of those whose keys we hold."""
        for member, (seat, voter) in enumerate(zip(self.seats, self.voters, strict=True)):
            if voter in voters:
                yield member, seat, voter


def drawn_committee(state: State, current: Round | Trial) -> DrawnCommittee:
    """The committee of a drawn round; a voting key replaced since then counts at once, as on chain."""
    return DrawnCommittee(current.seats, tuple(state.seats[seat].voter for seat in current.seats), current.seed)


def drawn_or_forecast(
    state: State, current: Round | Trial, forecast: Callable[[], Committee | None]
) -> DrawnCommittee | None:
    """Who votes: from events once drawn, before that from the chain's own forecast; None while it is not known."""
    if current.drawn:
        return drawn_committee(state, current)
    if state.head < current.seed_block:
        return None
    try:
        committee = forecast()
    except ContractError as error:
        log.debug("no committee: %s", error)
        return None
    return DrawnCommittee(committee.seats, committee.voters, committee.seed) if committee else None
