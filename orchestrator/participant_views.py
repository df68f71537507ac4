"""Who takes part in a run, for its public documents: nodes, validators, other processes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from chain.indexer.records import Account, Pool, Status
from chain.indexer.state import State
from orchestrator.ledger import fees_paid
from orchestrator.liveness import Beat, node_state
from protocol.api.held import HeldEntry
from protocol.api.run import NodeEntry, NodeState, OtherEntry, SeatEntry, ValidatorEntry
from protocol.verdict import Code

MOST_HELD = 16
"""Steps that are told of; a relay or node may say what it likes."""
_HEARD = (NodeState.HEALTHY, NodeState.UNHEALTHY)


def nodes(state: State, pool: Pool, beats: dict[str, Beat], now: float) -> list[NodeEntry]:
    """Every node that ever joined the pool."""
    accounts = [account for (of, _), account in state.accounts.items() if of == pool.pool]
    return [node_entry(state, pool, account, beats.get(account.node), now) for account in accounts]


def node_entry(state: State, pool: Pool, account: Account, beat: Beat | None, now: float) -> NodeEntry:
    files = Counter(sub.status for sub in state.submissions_of(pool.pool, account.node))
    return NodeEntry(
        address=account.node,
        operator=account.operator,
        accepted=files[Status.ACCEPTED],
        rejected=files[Status.REJECTED],
        pending=files[Status.PENDING],
        units=account.units_awarded,
        earned=account.units_awarded * pool.terms.rate,
        claimed=account.paid,
        slashed=account.slashed,
        ejected=Code(account.eject_code).label if account.ejected else None,
        **_heard(beat, now, ejected=account.ejected, left=not account.member),
    )


def node_states(state: State, pool: int, beats: Mapping[str, Beat], now: float) -> dict[str, NodeState]:
    """Every node that ever joined the pool, in that order."""
    out = {}
    for (of, address), account in state.accounts.items():
        if of == pool:
            beat = beats.get(address)
            seen = beat.last_seen if beat else None
            out[address] = node_state(seen, now, ejected=account.ejected, left=not account.member)
    return out


def validator_states(state: State, beats: Mapping[str, Beat], now: float) -> dict[str, NodeState]:
    """Every owner of seats, by address."""
    keys: dict[str, set[str]] = {}
    active = set()
    for seat in state.seats.values():
        keys.setdefault(seat.owner, {seat.owner}).add(seat.voter)
        if seat.active:
            active.add(seat.owner)
    seen = {owner: [beats[key].last_seen for key in own if key in beats] for owner, own in sorted(keys.items())}
    return {owner: node_state(max(times, default=None), now, left=owner not in active) for owner, times in seen.items()}


def validators(state: State, pool: int, beats: dict[str, Beat], now: float) -> list[ValidatorEntry]:
    """Every owner of seats, with the votes, fees and penalties in this pool."""
    votes, fees = _votes(state, pool), fees_paid(state, pool)
    out = []
    for owner in sorted({seat.owner for seat in state.seats.values()}):
        seats = [seat for seat in state.seats.values() if seat.owner == owner]
        own = [beats[key] for key in {owner, *(seat.voter for seat in seats)} if key in beats]
        newest = max(own, key=lambda beat: beat.last_seen, default=None)
        out.append(
            ValidatorEntry(
                address=owner,
                seats=[SeatEntry.model_validate(seat, from_attributes=True) for seat in seats],
                votes=sum(votes[seat.seat] for seat in seats),
                fees=fees[owner],
                penalised=sum(seat.penalised for seat in seats),
                **_heard(newest, now, left=not any(seat.active for seat in seats)),
            )
        )
    return out


def _votes(state: State, pool: int) -> Counter[int]:
    """Seat → files it revealed a vote on."""
    votes = Counter[int]()
    for (of, _), lane in state.lanes.items():
        for one in lane.rounds if of == pool else ():
            for member in one.reveals:
                votes[one.seats[member]] += len(lane.sequences)
    return votes


def others(state: State, pool: int, beats: dict[str, Beat], now: float) -> list[OtherEntry]:
    """Processes whose heartbeats come and that are neither nodes nor validators: the trainer."""
    known = {address for of, address in state.accounts if of == pool}
    known |= {key for seat in state.seats.values() for key in (seat.owner, seat.voter)}
    return [
        OtherEntry(address=address, role=beat.said.role, **_heard(beat, now))
        for address, beat in beats.items()
        if address not in known
    ]


def _heard(beat: Beat | None, now: float, *, ejected: bool = False, left: bool = False) -> dict[str, Any]:
    """The fields of a ParticipantEntry that follow from its newest heartbeat and its standing on chain."""
    state = node_state(beat.last_seen if beat else None, now, ejected=ejected, left=left)
    if beat is None:
        return {"state": state}
    said = beat.said
    same = said.model_dump(include={"name", "engine", "version", "phase", "metrics", "weights"})
    lacks = max(said.waits, key=lambda wait: wait.since).what if said.phase == "trouble" and said.waits else ""
    return {**same, "last_seen": beat.last_seen, "state": state, "trouble": lacks, "at_step": said.step}


def held_steps(beats: Mapping[str, Beat], relays: Iterable[int | None], now: float) -> list[HeldEntry]:
    """Who has which policy step, newest first, by those whose heartbeats come and the steps that `relays` announced."""
    counts = {role: Counter[int]() for role in ("worker", "validator", "relay")}
    for beat in beats.values():
        role, step = beat.said.role, beat.said.weights
        if step is not None and role in counts and node_state(beat.last_seen, now) in _HEARD:
            counts[role][step] += 1
    counts["relay"].update(one for one in relays if one is not None)
    steps = sorted({one for held in counts.values() for one in held}, reverse=True)[:MOST_HELD]
    nodes, validators, others = counts.values()
    return [HeldEntry(step=one, nodes=nodes[one], validators=validators[one], relays=others[one]) for one in steps]
