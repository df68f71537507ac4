"""What contracts answer when they refuse, in words."""

from typing import Any

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError

from chain import abi
from protocol.errors import MusterError

_ERROR_STRING = bytes.fromhex("08c379a0")
_PANIC = bytes.fromhex("4e487b71")
_PANICS = {0x01: "assertion", 0x11: "overflow", 0x12: "division by zero", 0x21: "bad enum", 0x32: "index out of range"}


class ContractError(MusterError):
    """A call was refused by a contract.

    `name` and `arguments` are the custom error's (`Error` for a reason string, `Panic`, or empty when nothing was
    returned); `call` says what was called; `tx_hash` is set when the transaction was mined all the same.
    """

    def __init__(self, call: str, data: bytes, tx_hash: str = "") -> None:
        self.name, self.arguments = decode_revert(data)
        self.call, self.data, self.tx_hash = call, data, tx_hash
        mined = f" (mined in {tx_hash})" if tx_hash else ""
        super().__init__(f"{call} was refused: {_render(self.name, self.arguments)}{mined}", _HINTS.get(self.name, ""))


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
        known = abi.all_errors().get(selector)
        if known is not None:
            return known.where, known.named(body)
    except (DecodingError, MusterError, ValueError, OverflowError):
        pass
    return "Unknown", {"data": "0x" + data[:64].hex()}


def _render(name: str, arguments: dict[str, Any]) -> str:
    if not name:
        return "it reverted without a reason"
    inner = ", ".join(f"{k}={'0x' + v.hex() if isinstance(v, bytes) else v}" for k, v in arguments.items())
    return f"{name}({inner})"


_HINTS = {
    # What to do about a custom error, where that can be said in general.
    "ERC20InsufficientAllowance": "approve the contract for at least that many grains first",
    "ERC20InsufficientBalance": "get more tokens: on a test network, from who governs it",
    "StakeTooLow": "deposit more stake",
    "AlreadyRegistered": "the node key has an operator already: use another key",
    "BadConsent": "sign the consent with the node's key for this chain and this operator",
    "NoConsent": "sign with the key of the file's own node, for this chain and this contract",
    "InviteRequired": "ask the pool's owner for an invite",
    "BadInvite": "ask the pool's owner for an invite for this node, pool and chain",
    "CounterMismatch": "the node submitted meanwhile: read its counter again",
    "StepOutOfRange": "work on a newer policy step",
    "OverLimit": "wait for pay to vest and claim it, or deposit more stake",
    "EscrowExhausted": "the pool's budget is spent: its owner has to fund it",
    "NodeIsFrozen": "the node has a rejected file: wait for the end of its dispute",
    "NotVoter": "vote with the seat's voting key",
    "AccessControlUnauthorizedAccount": "muster governance status names who may",
    "TimelockUnexpectedOperationState": "muster governance status says when it is ready, and whether it is done",
    "TooFewSeats": "more validators have to bond seats first",
    "Paused": "governance paused new entries: try later",
}
