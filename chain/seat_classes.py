"""Classes of seats: the pools that a seat opts into, one by its number or a family of them by its name."""

import re

from chain.records import Pool, Seat, Terms
from chain.state import State
from protocol.errors import ConfigError
from protocol.keccak import keccak

FIRST_FAMILY = 1 << 24
"""Classes below are single pools; docs/contracts.md."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._/-]{0,63}")


def family(name: str) -> int:
    """The class of a family of pools, by its name or number. Raises ConfigError."""
    if name.isdecimal():
        if FIRST_FAMILY <= int(name) < 1 << 32:
            return int(name)
        raise ConfigError(f"{name} is not the number of a family", f"those are {FIRST_FAMILY} to {(1 << 32) - 1}")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not the name of a family", "write lower-case letters, digits, `.`, `_`, `-`, `/`"
        )
    return int.from_bytes(keccak(name.encode())[-4:]) | 1 << 31


def describe(seat_class: int) -> str:
    """A class in words."""
    return f"pool {seat_class}" if seat_class < FIRST_FAMILY else f"family {seat_class}"


def needed(terms: Terms) -> int:
    """Seats that a pool's class must have: two committees and both juries, no seat in two of them."""
    return 2 * terms.committee + terms.jury + terms.appealJury


def seats_in(state: State, pool: Pool) -> list[Seat]:
    """The seats that judge a pool, from the next epoch on at the latest."""
    return [seat for seat in state.seats.values() if seat.active and pool.seat_class in seat.classes]
