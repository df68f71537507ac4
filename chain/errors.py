"""What contracts answer when they refuse, in the words of `errors.toml`, and what to do about it."""

import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError

from chain import abi
from protocol.encoding import show_tokens
from protocol.errors import MusterError

_POOL_STATUS = ("unknown", "open", "paused", "closing", "settled", "understaffed: too few seats judge it")


def _clock(value: Any) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(int(value)))


_AMOUNTS = ("needed", "stake", "free", "balance", "allowance", "pay", "bonds")
_SHOWN: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(_AMOUNTS, show_tokens),
    "time": _clock,
    "releaseAt": _clock,
    "status": lambda value: _POOL_STATUS[value] if value < len(_POOL_STATUS) else str(value),
}
_PLAIN = frozenset({"TooEarly", "StepOutOfRange"})  # Errors whose arguments are shown as they are

CATALOGUE = tomllib.loads((Path(__file__).parent / "errors.toml").read_text())


def in_words(name: str, arguments: dict[str, Any]) -> tuple[str, str]:
    """Return what a custom error says and what to do about it; both empty if nobody can do anything about it."""
    what, hint = CATALOGUE["words"].get(name, ("", ""))
    show = {} if name in _PLAIN else _SHOWN
    shown = {argument: show.get(argument, str)(value) for argument, value in arguments.items()}
    try:
        return what.format(**shown), hint.format(**shown)
    except KeyError:  # the contracts named the argument otherwise: the error's own text follows
        return "", hint


_ERROR_STRING = bytes.fromhex("08c379a0")
_PANIC = bytes.fromhex("4e487b71")
_PANICS = {0x01: "assertion", 0x11: "overflow", 0x12: "division by zero", 0x21: "bad enum", 0x32: "index out of range"}


class ContractError(MusterError):
    """A contract refused a call. `name`, `arguments`: of the custom error (`Error` for a reason string, `Panic`, or
    empty). `call` says what was called; `tx_hash` is set when the transaction was still mined."""

    def __init__(self, call: str, data: bytes, tx_hash: str = "") -> None:
        self.name, self.arguments = decode_revert(data)
        self.call, self.data, self.tx_hash = call, data, tx_hash
        mined = f" (mined in {tx_hash})" if tx_hash else ""
        words, hint = in_words(self.name, self.arguments)
        values = {k: "0x" + v.hex() if isinstance(v, bytes) else v for k, v in self.arguments.items()}
        inner = ", ".join(f"{name}={value}" for name, value in values.items())
        raw = f"{self.name}({inner})" if self.name else "it reverted without a reason"
        super().__init__(f"{call} was refused: {f'{words} [{raw}]' if words else raw}{mined}", hint)


class TransactionError(MusterError):
    """A transaction could not be sent, or its fate is unknown when time is up; `tx_hash` is the last one tried."""

    def __init__(self, what: str, hint: str = "", tx_hash: str = "") -> None:
        super().__init__(what, hint)
        self.tx_hash = tx_hash


def decode_revert(data: bytes) -> tuple[str, dict[str, Any]]:
    """(name, arguments) of revert data."""
    selector, body = data[:4], data[4:]
    if len(data) < 4:
        return "", {}
    try:
        if selector == _ERROR_STRING:
            return "Error", {"reason": decode(["string"], body)[0]}
        if selector == _PANIC:
            code = decode(["uint256"], body)[0]
            return "Panic", {"reason": _PANICS.get(code, hex(code))}
        error = abi.all_errors().get(selector)
        if error is not None:
            return error.where, error.named(body)
    except (DecodingError, MusterError, ValueError, OverflowError):
        pass
    return "Unknown", {"data": "0x" + data[:64].hex()}
