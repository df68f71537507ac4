"""What contracts answer when they refuse, in words, and what to do about it.

Errors that only a bug of ours can cause keep their names (`UNSPOKEN`).
"""

import time
from collections.abc import Callable
from typing import Any

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError

from chain import abi
from protocol.encoding import show_tokens
from protocol.errors import MusterError

_POOL_STATUS = ("unknown", "open", "paused", "closing", "settled", "understaffed: too few seats judge it")


def _clock(value: Any) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(int(value)))


_SHOWN: dict[str, Callable[[Any], str]] = {
    "time": _clock,
    "releaseAt": _clock,
    "first": str,
    "status": lambda value: _POOL_STATUS[value] if value < len(_POOL_STATUS) else str(value),
    "needed": show_tokens,
    "stake": show_tokens,
    "free": show_tokens,
    "balance": show_tokens,
    "allowance": show_tokens,
    "pay": show_tokens,
    "bonds": show_tokens,
}
_PLAIN = frozenset({"TooEarly", "StepOutOfRange"})  # Errors whose arguments are shown as they are

UNSPOKEN = frozenset({
    "AccessControlBadConfirmation", "BadRows", "ECDSAInvalidSignature", "ECDSAInvalidSignatureLength",
    "ECDSAInvalidSignatureS", "ERC20InvalidApprover", "ERC20InvalidReceiver", "ERC20InvalidSender",
    "ERC20InvalidSpender", "EmptyCommitment", "FailedCall", "InvalidShortString", "NotAppeals", "NotBench",
    "NotCanaries", "NotCourt", "NotPools", "NotService", "OwnableInvalidOwner", "ReentrancyGuardReentrantCall",
    "SafeCastOverflowedUintDowncast", "SafeERC20FailedOperation", "StringTooLong", "TimelockInvalidOperationLength",
    "TimelockUnauthorizedCaller", "UnknownEpoch", "WrongAddress",
})  # fmt: skip
"""Errors that only a fault of ours causes, or a call that none of our programs makes."""

_WORDS: dict[str, tuple[str, str]] = {
    "AlreadyAppealed": ("this outcome has been appealed already", "wait for the appeal's jury"),
    "AlreadyClosed": ("this part has been settled already", "nothing has to be done"),
    "AlreadyEjected": ("this one was found out and ejected already", "nothing has to be done"),
    "AlreadyMember": ("the node is in this pool already", "nothing has to be done"),
    "AlreadyOptedIn": ("the seat judges that already", "nothing has to be done"),
    "AlreadyRegistered": ("the node key has an operator already", "use another key for this node"),
    "AlreadyResolved": ("the dispute is over", "muster node status says how it ended"),
    "AlreadySettled": ("the lane is settled already", "nothing has to be done"),
    "AlreadyTried": ("these files were challenged already: {challenge}", "muster challenge show says how it stands"),
    "AmountTooLarge": ("the amount is larger than the contracts take", "use a smaller one"),
    "BadConsent": ("the node key did not sign this consent", "sign it with the node's key, for this operator"),
    "BadInvite": ("the pool's owner did not sign this invite", "ask for one for this node, pool and chain"),
    "BadTerms": ("the term `{field}` is outside its bounds", "docs/reference/contracts.md, Parameters, has them"),
    "ConsentExpired": ("the node's consent has expired", "sign a new one: muster node join --consent-to"),
    "CounterMismatch": ("the node has submitted meanwhile", "read its counter again"),
    "ERC20InsufficientAllowance": ("the contract may take {allowance} tokens, {needed} are needed",
                                   "approve the contract for at least that many base units first"),
    "ERC20InsufficientBalance": ("{sender} has {balance} tokens, {needed} are needed",
                                 "get more tokens: on a test network, from who governs it"),
    "ERC2612ExpiredSignature": ("the permit has expired", "run the command again"),
    "EscrowExhausted": ("the pool's budget has {free} tokens left, {needed} are needed", "its owner has to fund it"),
    "InPool": ("the node is in pool {pool}", "muster node leave --pool {pool}, and wait until its stake unlocks"),
    "InviteExpired": ("the invite has expired", "ask the pool's owner for a new one"),
    "InviteRequired": ("the pool takes invited nodes only", "ask the pool's owner for an invite"),
    "IsFrozen": ("pay is frozen: a refused file of this node is not final", "wait for the end of its challenge window"),
    "NoConsent": ("the file's node did not consent", "sign with its own key, for this chain and this contract"),
    "NoDispute": ("nobody disputes this file", "check --file"),
    "NoSuchChallenge": ("there is no such challenge", "check its number: muster challenge show"),
    "NoSuchFile": ("there is no such file", "check --pool and --file"),
    "NoSuchPool": ("there is no such pool", "check --pool"),
    "NodeIsFrozen": ("one of the node's files was refused and is not final", "wait for the end of its dispute"),
    "NotAccepted": ("file {sequence} is not accepted for good", "name files whose challenge window is over"),
    "NotFinal": ("the outcome can still change until {time}", "run this again then"),
    "NotMember": ("the node is in no pool of that number", "join first: muster node join"),
    "NotOperator": ("this key is not the node's operator", "use the operator's key"),
    "NotOperatorOrNode": ("this key is neither the node nor its operator", "use one of the two"),
    "NotOptedIn": ("the seat does not judge that", "muster validator status says what it judges"),
    "NotOwner": ("this key does not own the pool", "use the key that created it"),
    "NotSeatOwner": ("this key does not own the seat", "use the key that bonded it"),
    "NotVoter": ("this key does not vote for the seat", "vote with the seat's voting key"),
    "NotYet": ("this is possible from {time} on", "run this again then"),
    "NothingAtStake": ("no stake stands for this any more", "nothing can be done about it"),
    "NothingToClaim": ("nothing has vested since the last claim", "see: muster node status"),
    "OutOfBounds": ("`{name}` is outside its bounds", "docs/reference/contracts.md, Parameters, has them"),
    "OverLimit": ("{units} output tokens would be in flight, the stake allows {limit}",
                  "wait for pay to vest and claim it, or deposit more stake"),
    "PayAboveBonds": ("a lane of the largest files would earn {pay} tokens, more than the {bonds} tokens that a "
                      "committee's majority has bonded", "lower `rate` or `max_units`, or enlarge `committee`"),
    "Paused": ("governance has paused new entries", "try later: muster governance status"),
    "ReceiptOutOfTime": ("the receipt is of a time that does not count", "nothing can be done about this file"),
    "Removed": ("the pool's owner or a slash has removed this node for good", "register another node key"),
    "SeatActive": ("the seat is still active", "first: muster validator leave"),
    "SeatInactive": ("the seat has left, or its bond is too small", "muster validator judge bonds another"),
    "SeatLocked": ("the bond is locked until {releaseAt}, or {frozen} duties are open", "run this again then"),
    "StakeLocked": ("the stake is locked until {releaseAt}, or {frozen} refused files and challenges are not final",
                    "run this again then"),
    "StakeTooLow": ("the stake is {stake} tokens, {needed} are needed", "deposit more: muster node join --stake"),
    "StepOutOfRange": ("step {step} is not taken from this node: it may work for {first} to {last}",
                       "work on a newer policy step"),
    "TooEarly": ("this is possible in epoch {neededEpoch}, now it is {epoch}", "run this again then"),
    "TooFewSeats": ("only {seats} seats can be drawn", "more validators have to bond seats first"),
    "TooManyChallenges": ("too many challenges against this node are open",
                          "wait until some are concluded: muster challenge show"),
    "TooManyGroups": ("a seat judges five pools or validator groups at most",
                      "first stop judging one: muster validator judge --stop"),
    "TooManyUnsettled": ("{most} files of the node have no final outcome", "wait until some have"),
    "TooSoon": ("this cannot be changed again before {time}", "run this again then"),
    "Undecided": ("a jury has not decided yet", "run this again when its votes are in"),
    "UnknownNode": ("nobody has registered this node", "muster node join, or check --node"),
    "WindowOver": ("the time for this ended at {time}", "nothing can be done any more"),
    "WrongStatus": ("the pool is {status}", "muster pool status says what it waits for"),
    "ZeroVoter": ("a seat needs a voting key", "name one with --voter"),
    "WrongStep": ("outer step {next} is the next to be recorded", "record that one"),
    "EmptyHash": ("a run is recorded under the hash of its document", "name the run's document"),
    "NotCoordinator": ("this key does not record this run", "use the coordinator's key"),
    "TooManyContributions": ("an outer step has more contributions than one record takes", "record fewer workers"),
    "AlreadyCommitted": ("this seat has voted on it already", "nothing has to be done"),
    "AlreadyConcluded": ("this has been concluded already", "nothing has to be done"),
    "AlreadyDrawn": ("the committee or jury has been drawn already", "nothing has to be done"),
    "AlreadyRevealed": ("this seat has revealed its vote already", "nothing has to be done"),
    "AppealOver": ("the time for an appeal ended at {time}", "nothing can be done any more"),
    "AttestationOver": ("what was to be attested had to be by block {lastBlock}", "nothing can be done any more"),
    "BadGroup": ("there is no validator group {group}",
                 "a group is a number from 1 to 4294967295: muster validator status"),
    "BadCode": ("that is no verdict", "vote with one that docs/reference/protocol.md names"),
    "BadCount": ("that is not how many files one call takes", "name one at least and 16 at most"),
    "BadReason": ("a canary is planted to be rejected, and that is no reason to reject one",
                  "choose one of the reasons"),
    "BadReceipt": ("the service did not sign this receipt, or it is too old", "nothing can be done about this file"),
    "BadUnits": ("the file has {units} output tokens, {most} are allowed", "share its rollouts out over several files"),
    "CommitOver": ("the time to vote ended at {time}", "nothing can be done any more"),
    "DelayTooShort": ("the delay cannot be shorter than {shortest} s", "propose a longer one"),
    "DrawOver": ("the draw had to be by block {lastBlock}", "nothing can be done any more"),
    "ERC2612InvalidSigner": ("the permit is not signed by {owner}", "sign it with that key, for this chain and token"),
    "InvalidAccountNonce": ("this permit was used, or another one of {account} meanwhile", "run the command again"),
    "LaneOpen": ("the lane takes files until block {end}", "run this again then"),
    "Lapsed": ("the jury was not drawn in time", "the outcome stands as it is"),
    "NoAppeal": ("nobody has appealed against this outcome", "check --pool and --file"),
    "NoGovernor": ("a network needs somebody who may propose changes", "name one"),
    "NoSuchLane": ("there is no such lane or round, or nothing of it is attested yet", "check --pool and --file"),
    "NoSuchTrial": ("no jury was asked about this", "check the number"),
    "NotAscending": ("file {sequence} is named twice, or out of order", "name files in ascending order, each once"),
    "NotCommitted": ("this seat has not voted on it", "nothing can be done any more"),
    "NotConcluded": ("the jury's case is not concluded", "run this again when its votes are in"),
    "NotDrawn": ("this seat was not drawn for it", "nothing has to be done"),
    "NotInFile": ("this rollout is not in the file", "check the file and the row"),
    "NotInSample": ("the committee did not draw this rollout", "a canary is shown by a row that was drawn"),
    "NotOpened": ("this file has not been opened as a canary", "open it first"),
    "NotPlanted": ("the file was not planted as a canary by this pool", "check --pool and --file"),
    "NotPoolOwner": ("this key does not own the pool", "use the key that created it"),
    "NotSettleable": ("the lane cannot be settled yet", "run this again later"),
    "NotSettled": ("the lane has no outcome yet", "run this again when its votes are counted"),
    "NotThisFile": ("these are the figures of another file than the one submitted", "read them from the chain again"),
    "NothingNew": ("all of it is attested already", "nothing has to be done"),
    "NothingToBurn": ("nothing is left to burn", "nothing has to be done"),
    "RevealNotOpen": ("votes can be revealed from {time} on", "run this again then"),
    "RevealOver": ("the time to reveal votes ended at {time}", "nothing can be done any more"),
    "SeatNotClosed": ("the seat has not left for good",
                      "first: muster validator leave, and wait until its bond is free"),
    "SeedNotMined": ("block {seedBlock}, from which the draw follows, is not there yet", "run this again then"),
    "StepMismatch": ("the pool is at step {actual}, not {expected}", "read its step again: muster pool status"),
    "TimelockInsufficientDelay": ("a change has to wait {minDelay} s, not {delay}", "propose it with that delay"),
    "TimelockUnexecutedPredecessor": ("another change has to be made first", "muster governance status names it"),
    "TooManySeats": ("the network has as many seats as it takes", "wait until one is closed"),
    "WrongFile": ("file {sequence} is another one than the call says", "read it from the chain again"),
    "WrongPhase": ("file {sequence} is not in the state for that", "muster pool status shows its files"),
    "WrongReveal": ("this is not the vote that was committed",
                    "reveal with the state folder that the vote was made in"),
    "AccessControlUnauthorizedAccount": ("this key may not do that", "muster governance status names who may"),
    "OwnableUnauthorizedAccount": ("this key may not do that", "muster governance status names who may"),
    "TimelockUnexpectedOperationState": (
        "the proposal is not in the state for that",
        "muster governance status says when it is ready, and whether it is done",
    ),
}  # fmt: skip


def in_words(name: str, arguments: dict[str, Any]) -> tuple[str, str]:
    """Return what a custom error says and what to do about it; both empty if nobody can do anything about it."""
    what, hint = _WORDS.get(name, ("", ""))
    show = {} if name in _PLAIN else _SHOWN
    shown = {argument: show.get(argument, str)(value) for argument, value in arguments.items()}
    try:
        return what.format(**shown), hint.format(**shown)
    except KeyError:  # the contracts named the argument otherwise: the error's own text follows
        return "", hint


# Errors


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
        words, hint = in_words(self.name, self.arguments)
        raw = _render(self.name, self.arguments)
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
