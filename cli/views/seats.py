"""A validator's view: seats, votes, fees due and penalties."""

from collections.abc import Iterator
from typing import Any

from chain.indexer.records import Lane, Round, Seat
from chain.indexer.state import State, describe
from cli.views import picked
from protocol.verdict import Code, unpack


def seats_of(state: State, address: str) -> list[Seat]:
    """Seats that `address` owns or votes for, closed ones included."""
    return [seat for _, seat in sorted(state.seats.items()) if address in (seat.owner, seat.voter)]


def seat_view(state: State, seat: Seat, now: int) -> dict[str, Any]:
    """One seat. `pools`: those it may be drawn for; `due`: memberships whose fees and penalties can be settled by
    `claim` now."""
    memberships = list(memberships_of(state, seat.seat))
    return {
        **picked(seat, "seat", "owner", "voter", "bond", "earned", "penalised", "release_at"),
        "standing": standing(seat),
        "groups": [describe(one) for one in seat.groups],
        "pools": [pool.pool for pool in state.pools.values() if seat.active and pool.validator_group in seat.groups],
        "drawn": len(memberships),
        "voted": sum(1 for _, round_, member in memberships if member in round_.reveals),
        "due": len(list(due(state, seat.seat, now))),
        "penalties": [
            picked(slash, "pool", "sequence", "code", "amount", "time", "tx")
            for slash in state.slashes
            if slash.kind == "seat" and slash.who == str(seat.seat)
        ],
    }


def standing(seat: Seat) -> str:
    """active, leaving (with the epoch), evicted, unbonding or closed."""
    if seat.closed:
        return "closed"
    if seat.release_at:
        return "unbonding"
    if seat.left_epoch:
        return f"{'evicted' if seat.evicted else 'leaving'} in epoch {seat.left_epoch}"
    return "active"


def memberships_of(state: State, seat: int) -> Iterator[tuple[Lane, Round, int]]:
    """Every committee the seat was drawn into: lane, round, member."""
    for _, lane in sorted(state.lanes.items()):
        for round_ in lane.rounds:
            if seat in round_.seats:
                yield lane, round_, round_.seats.index(seat)


def due(state: State, seat: int, now: int) -> Iterator[tuple[int, int, int, int]]:
    """(pool, lane, round, member) of every membership that `Court.closeMember` would close at chain time `now`: its
    round is settled, the challenge window over, no file before a jury."""
    for lane, round_, member in memberships_of(state, seat):
        window = state.pools[lane.pool].terms.challengeWindow
        disputed = Code.DISPUTED in unpack(round_.codes)
        final = round_.settled and now >= round_.settled_time + window and not disputed
        if final and member not in round_.closed:
            yield lane.pool, lane.lane, round_.round, member


def jury_duties(state: State, seat: int) -> Iterator[tuple[int, int]]:
    """(trial, juror) of every concluded jury whose juror's fee or penalty is still open."""
    for number, trial in sorted(state.trials.items()):
        if seat in trial.seats and trial.settled and trial.seats.index(seat) not in trial.closed:
            yield number, trial.seats.index(seat)


def open_rounds(state: State, seat: int) -> Iterator[dict[str, Any]]:
    """The committees that the seat is in and that are not settled yet."""
    for lane, round_, member in memberships_of(state, seat):
        if not round_.settled:
            voted = {"committed": member in round_.commits, "revealed": member in round_.reveals}
            yield {"pool": lane.pool, "lane": lane.lane, "seat": seat, **voted}
