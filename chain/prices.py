"""What gas may cost: an endpoint's word on it, which nobody can check, up to a limit of one's own.

The base fee is the chain's whatever an endpoint says, but a tip is paid as offered: without a limit an endpoint that
lies empties an account with one transaction.
"""

import os
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from chain.errors import TransactionError
from chain.jsonrpc import BadAnswer, RpcError, number
from protocol.errors import ConfigError, UnreachableError

SETTING = "MUSTER_MAX_GAS_PRICE"
"""Environment variable: the limit in gwei, such as 0.5."""
GWEI = 10**9
DEFAULT_LIMIT = 10 * GWEI
"""Hundreds of times what Base takes on most days."""
_MOST_GWEI = 10**9


@dataclass(frozen=True)
class Price:
    """Fees of a type 2 transaction, wei per gas."""

    most: int
    tip: int

    def raised(self, floor: "Price") -> "Price":
        """Enough to replace a transaction (nodes ask for 10% more), and no less than `floor`."""
        return Price(max(self.most * 5 // 4 + 1, floor.most), max(self.tip * 5 // 4 + 1, floor.tip))


def price_limit() -> int:
    """Wei per gas. Raises ConfigError for a setting that is no positive number of gwei."""
    given = os.environ.get(SETTING)
    if given is None:
        return DEFAULT_LIMIT
    try:
        gwei = Decimal(given)
    except InvalidOperation:
        gwei = Decimal("nan")
    if not (gwei.is_finite() and 0 < gwei <= _MOST_GWEI and int(gwei * GWEI) > 0):
        raise ConfigError(
            f"{SETTING} is {given[:40]!r}, no number of gwei", f"set it to one such as 10, or unset {SETTING}"
        )
    return int(gwei * GWEI)


def price_of(block: Any, tip: Any, limit: int) -> Price:
    """Twice the base fee, so that six full blocks in a row do not price us out, plus the node's suggested tip. Raises
    BadAnswer, for another endpoint to be asked, where there is no block or the price is beyond `limit` wei per gas."""
    if isinstance(block, RpcError) or not isinstance(block, dict):
        what = "the chain's endpoint does not return its latest block"
        raise BadAnswer(what, TransactionError(what, "check the endpoint"))
    try:
        base = number(block.get("baseFeePerGas") or "0x3b9aca00")
        suggested = 1_000_000 if isinstance(tip, RpcError) else number(tip)
    except UnreachableError as error:
        raise BadAnswer(error.what, error) from None
    price = Price(2 * base + suggested, suggested)
    if price.most > limit:
        what = f"the chain's endpoint asks {_gwei(price.most)} gwei per gas, the limit is {_gwei(limit)}"
        hint = f"wait, name another RPC URL, or set {SETTING} higher if gas costs that much now"
        raise BadAnswer(what, TransactionError(what, hint))
    return price


def _gwei(wei: int) -> str:
    """At most twenty characters, however long the number is."""
    return f"{Decimal(wei) / GWEI:.6g}"
