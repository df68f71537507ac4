"""What the rules on chain did in a run: attestations, seats' choices, silent committees, canaries that were dodged."""

from collections.abc import Iterator

from chain.judging import Canary, Lane
from chain.records import Status
from chain.seat_classes import needed, seats_in
from chain.state import State
from orchestrator.dashboard.results import DodgedCanary, Safeguards, SilentCommittee
from protocol.amounts import show_tokens
from protocol.verdict import LANE


def safeguards(state: State, pool: int) -> Safeguards:
    """Read from events alone."""
    lanes = [lane for (of, _), lane in sorted(state.lanes.items()) if of == pool]
    late = [file for file in state.submissions_of(pool) if file.status is Status.LATE]
    return Safeguards(
        attested=sum(lane.attested.bit_count() for lane in lanes),
        late=[file.sequence for file in late],
        late_fines=sum(file.slashed for file in late),
        opted_in=len(seats_in(state, state.pools[pool])),
        needed=needed(state.pools[pool].terms),
        silent=[one for lane in lanes if (one := _silent(state, lane))],
        dodged=[one for canary in state.canaries.values() if canary.pool == pool for one in _dodged(state, canary)],
    )


def _silent(state: State, lane: Lane) -> SilentCommittee | None:
    """The first committee's silence, if another one decided all that it left."""
    first, last = lane.rounds[0], lane.round
    absent = [seat for member, seat in enumerate(first.seats) if member not in first.reveals]
    decided = all(state.submissions[lane.pool, sequence].votes_code for sequence in lane.sequences)
    if not absent or 2 * len(absent) < len(first.seats) or last is first or not last.settled or not decided:
        return None
    place = lane.pool, lane.lane << 4
    fined = sum(
        slash.amount
        for slash in state.slashes
        if slash.kind == "seat" and (slash.pool, slash.sequence, slash.time) == (*place, first.settled_time)
    )
    return SilentCommittee(lane=lane.lane, absent=absent, fined=fined)


def _dodged(state: State, canary: Canary) -> Iterator[DodgedCanary]:
    """The accused seats whose owner had disputed the file. A seat is slashed once in a lane, by whichever canary."""
    dispute = state.disputes.get((canary.pool, canary.sequence))
    lane = [
        other
        for other in state.canaries.values()
        if (other.pool, other.sequence // LANE) == (canary.pool, canary.sequence // LANE)
    ]
    for seat in canary.accused if dispute and canary.upheld else ():
        if dispute and dispute.disputer == state.seats[seat].owner:
            slashed = sum(other.slashed.get(seat, 0) for other in lane)
            yield DodgedCanary(submission=canary.sequence, seat=seat, slashed=slashed)


def broken_safeguards(found: Safeguards) -> Iterator[str]:
    """Yield each safeguard that failed, in words. Every run must keep these, whatever the draws of committees."""
    if not found.attested:
        yield "no upload was attested"
    if not found.late or not found.late_fines:
        yield "the file that was never uploaded is not void and fined"
    if found.opted_in < found.needed:
        yield f"{found.opted_in} seats opted in, the pool needs {found.needed}"
    for committee in found.silent:
        if not committee.fined:
            yield f"the silent seats {committee.absent} of lane {committee.lane} paid nothing"
    for canary in found.dodged:
        if not canary.slashed:
            yield f"seat {canary.seat} dodged canary {canary.submission}"


def shown_safeguards(found: Safeguards) -> Iterator[str]:
    """The same for people."""
    yield f"uploads: {found.attested} files attested before their committee was drawn"
    if found.late:
        names = ", ".join(map(str, found.late))
        yield f"file {names} was never uploaded: void, its node paid {show_tokens(found.late_fines)} MUS"
    yield f"seats: {found.opted_in} opted into the pool, which needs {found.needed}"
    for committee in found.silent:
        fined = show_tokens(committee.fined)
        yield f"lane {committee.lane}: seats {committee.absent} kept silent, paid {fined} MUS, and were replaced"
    for canary in found.dodged:
        lost = show_tokens(canary.slashed)
        yield f"canary {canary.submission}: seat {canary.seat} had disputed it to dodge, and lost {lost} MUS"
    for what, cases in (
        ("a silent committee that is replaced", found.silent),
        ("a lazy seat that disputes the canary it accepted", found.dodged),
    ):
        if not cases:
            yield f"not shown in this run, because the draw of seats did not bring it about: {what}"
