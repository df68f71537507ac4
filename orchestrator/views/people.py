"""Nodes and validators for the dashboard: pages of them, and each with its newest votes and penalties."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Literal

from chain.indexer.records import Account, Lane, Pool
from chain.indexer.state import State
from orchestrator import participant_views, submission_views
from orchestrator.http_errors import HttpError
from orchestrator.liveness import Beat
from protocol.api.run import NodeEntry, NodeState, ValidatorEntry
from protocol.api.views import Listing, ValidatorView, VoteEntry
from protocol.verdict import Code

Order = Literal["joined", "earned", "slashed", "units"]
RECENT_VOTES = 50
_LOOKED_AT = 20_000


def nodes(
    state: State,
    pool: Pool | None,
    beats: Mapping[str, Beat],
    now: float,
    *,
    limit: int,
    after: int = 0,
    order: Order = "joined",
    wanted: NodeState | None = None,
    operator: str | None = None,
) -> Listing[NodeEntry]:
    """The nodes of a state or operator from place `after` on, in the order of joining or the largest figure first."""
    if pool is None:
        return Listing(rows=[], total=0, next=None)
    chosen = [account for (of, _), account in state.accounts.items() if of == pool.pool]
    if wanted is not None:
        states = participant_views.node_states(state, pool.pool, beats, now)
        chosen = [account for account in chosen if states[account.node] is wanted]
    if operator is not None:
        chosen = [account for account in chosen if account.operator == operator]
    if order != "joined":
        chosen.sort(key=lambda account: _figure(account, order), reverse=True)
    page = chosen[after : after + limit]
    rows = [participant_views.node_entry(state, pool, one, beats.get(one.node), now) for one in page]
    return Listing(rows=rows, total=len(chosen), next=after + limit if after + limit < len(chosen) else None)


def _figure(account: Account, order: Order) -> int:
    return account.slashed if order == "slashed" else account.units_awarded


def node(state: State, pool: Pool | None, beats: Mapping[str, Beat], now: float, address: str) -> NodeEntry:
    """Raises HttpError 404 for an address that never joined the pool."""
    account = state.accounts.get((pool.pool, address)) if pool else None
    if pool is None or account is None:
        raise HttpError(404, f"{address} has not joined this pool", "see the list of nodes")
    return participant_views.node_entry(state, pool, account, beats.get(address), now)


def validators(found: list[ValidatorEntry], *, limit: int, after: int = 0) -> Listing[ValidatorEntry]:
    page = found[after : after + limit]
    return Listing(rows=page, total=len(found), next=after + limit if after + limit < len(found) else None)


def validator(state: State, pool: Pool | None, found: list[ValidatorEntry], address: str) -> ValidatorView:
    """Raises HttpError 404 for an address that owns no seat."""
    entry = next((one for one in found if one.address == address), None)
    if entry is None:
        raise HttpError(404, f"{address} owns no seat", "see the list of validators")
    seats = {one.seat for one in entry.seats}
    votes = islice(_votes(state, pool, seats), RECENT_VOTES) if pool else ()
    lost = [one for one in reversed(state.slashes) if one.kind == "seat" and int(one.who) in seats]
    return ValidatorView(**vars(entry), recent=list(votes), slashes=submission_views.slash_entries(lost[:RECENT_VOTES]))


def _votes(state: State, pool: Pool, seats: set[int]) -> Iterator[VoteEntry]:
    """What the seats revealed on the pool's newest files, newest first."""
    for sequence in islice(reversed(pool.sequences), _LOOKED_AT):
        sub = state.submissions[pool.pool, sequence]
        for seat, code in _said(state.lane_of(sub), sub.place, seats):
            yield VoteEntry(
                sequence=sequence,
                seat=seat,
                code=code.label,
                status=sub.status.value,
                reason=Code(sub.code).label if sub.code else "",
                time=sub.time,
            )


def _said(lane: Lane, place: int, seats: set[int]) -> Iterator[tuple[int, Code]]:
    for one in lane.rounds:
        for member in one.reveals:
            code = one.code_at(place, member)
            if one.seats[member] in seats and code:
                yield one.seats[member], code
