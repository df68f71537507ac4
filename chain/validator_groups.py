"""Validator groups: what a seat opts into, one pool by its number or a group that several pools share by its name."""

import re

from chain.records import Pool, Seat, Terms
from chain.state import State
from protocol.errors import ConfigError
from protocol.keccak import keccak

FIRST_SHARED_GROUP = 1 << 24
"""Groups below are single pools; docs/contracts.md."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._/-]{0,63}")


def group_number(name: str) -> int:
    """Return the number of a shared group from its name or number. Raise ConfigError."""
    if name.isdecimal():
        if FIRST_SHARED_GROUP <= int(name) < 1 << 32:
            return int(name)
        raise ConfigError(
            f"{name} is not the number of a shared group", f"those are {FIRST_SHARED_GROUP} to {(1 << 32) - 1}"
        )
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not the name of a group", "write lower-case letters, digits, `.`, `_`, `-`, `/`"
        )
    return int.from_bytes(keccak(name.encode())[-4:]) | 1 << 31


def describe(validator_group: int) -> str:
    """Return a group in words."""
    return f"pool {validator_group}" if validator_group < FIRST_SHARED_GROUP else f"group {validator_group}"


def needed(terms: Terms) -> int:
    """Seats that a pool's group must have: two committees and both juries, no seat in two of them."""
    return 2 * terms.committee + terms.jury + terms.appealJury


def seats_in(state: State, pool: Pool) -> list[Seat]:
    """The seats that judge a pool, from the next epoch on at the latest."""
    return [seat for seat in state.seats.values() if seat.active and pool.validator_group in seat.groups]
