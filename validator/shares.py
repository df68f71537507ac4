"""Whose files have how much of a validator's store: nobody's may keep another's out. Pure.

Nothing that is kept can be thrown out for something better, so room has to be left beforehand. An owner's pools
together have half of what the others leave. Owners cost nothing, though: who is one may be many. So what our seats did
not choose, the pools of families, has half of the store together; and there a file is measured by what it pays. Its
size, in parts of what one least fee pays for, must be no greater a part than what stays free: small files and dear ones
still find room when large and cheap ones find none, and to be in their way costs what they pay themselves.
"""

from collections.abc import Collection
from dataclasses import dataclass

from chain.indexer.state import State

BYTES_OF_A_FEE = 16 << 20
"""Bytes for which the chain's least fee would pay in an empty store."""
_FEES_OF_A_PENALTY = 100


@dataclass(frozen=True)
class Tenant:
    """Whose a pool's files are. `chosen`: seats judge it because they named its number. `fee`: what one seat gets for a
    file, `least_fee` what it gets at least on this chain, in grains."""

    owner: str
    chosen: bool
    fee: int = 1
    least_fee: int = 1


def tenant_of(state: State, pool: int, now: int) -> Tenant:
    """As of chain time `now`. A pool that a reorganisation has taken away is nobody's choice."""
    found = state.pools.get(pool)
    if found is None:
        return Tenant(f"pool {pool}", chosen=False)
    least = state.params_at(now)["withheldPenalty"] // _FEES_OF_A_PENALTY
    return Tenant(found.owner, found.seat_class == pool, found.terms.fee, max(1, least))


def has_room(limit: int, held: Collection[tuple[Tenant, int]], tenant: Tenant, size: int) -> bool:
    """Whether a file of `size` bytes may join those that are `held` (with their sizes) in a store of `limit` bytes."""
    if tenant.chosen:
        room, beside = limit, held
    else:
        room, beside = limit // 2, [(one, taken) for one, taken in held if not one.chosen]
    own = sum(taken for one, taken in beside if one.owner == tenant.owner)
    others = sum(taken for one, taken in beside if one.owner != tenant.owner)
    if own + size > (room - others) // 2:
        return False
    free = room - own - others - size
    return tenant.chosen or free * BYTES_OF_A_FEE * tenant.fee >= room * size * tenant.least_fee
