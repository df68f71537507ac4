"""Whether a seat takes on a pool's judging: not where its programs could take longer than the pool's windows. Pure."""

from collections.abc import Iterable

from chain.indexer.records import Pool, Seat
from environments.judging_time import SlowPool, too_slow
from protocol.config import PoolConfig


def slow_pool(config: PoolConfig, pool: Pool) -> SlowPool | None:
    """Why the pool's files could not be judged in time; None where they can. Raises ConfigError for a configuration
    with a wrong parameter."""
    return too_slow(config, pool.terms.commitWindow, pool.terms.juryCommitWindow)


def promised(pool: Pool, seats: Iterable[Seat]) -> bool:
    """Whether one of the seats chose this very pool, or may still be drawn for it since it did: its silence is fined,
    so it judges as fast as it can."""
    if pool.seat_class != pool.pool:
        return False
    return any(pool.pool in (*seat.classes, *seat.left_classes) for seat in seats if not seat.closed)
