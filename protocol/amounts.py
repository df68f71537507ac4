"""Token amounts as people write them ("12.5") and as the contracts count them: whole base units, never a float."""

import re

from protocol.errors import ConfigError

DECIMALS = 9
TOKEN: int = 10**DECIMALS
"""Base units of one token."""
_AMOUNT = re.compile(r"(\d{1,30})(?:\.(\d+))?", re.ASCII)


def parse_tokens(text: str, what: str = "amount") -> int:
    """Base units of a decimal number of tokens, exactly. Raises ConfigError for anything else: signs, exponents, more
    than nine decimals."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{what} {text!r} is not a number of tokens", "write it like 12 or 12.5")
    whole, fraction = match[1], match[2] or ""
    if len(fraction.rstrip("0")) > DECIMALS:
        raise ConfigError(f"{what} {text} has more than {DECIMALS} decimals", "a token has 1000000000 base units")
    return int(whole) * TOKEN + int(fraction[:DECIMALS].ljust(DECIMALS, "0"))


def show_tokens(base_units: int) -> str:
    """Return the shortest exact decimal number of tokens."""
    sign, base_units = ("-", -base_units) if base_units < 0 else ("", base_units)
    whole, fraction = divmod(base_units, TOKEN)
    digits = f"{fraction:09d}".rstrip("0")
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"
