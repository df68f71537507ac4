"""How fast a sharer's rounds may go by: small pure functions over round numbers.

A member's round has the problems that its number gives it, and the number is its own word. Who may take any of 2³²
picks its problems among as many; who may go on by `ahead` rounds for each of the receiver's own picks among so many a
round, whenever it spends them.
"""

from typing import NamedTuple


class Met(NamedTuple):
    """Where a receiver first met a sharer: the sharer's `round`, in the receiver's `own` round."""

    round: int
    own: int


def allowed_until(met: Met, own: int, ahead: int) -> int:
    """The newest round of that sharer that a receiver takes in its own round `own`: it may have gone on by `ahead` for
    each round since, this one included."""
    return met.round + ahead * (own - met.own + 1)
