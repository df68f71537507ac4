"""The refusals that people meet, in words, and what to do about them. Errors that only a fault of ours can cause keep
their names alone."""

import time
from collections.abc import Callable
from typing import Any

from protocol.amounts import show_tokens

_POOL_STATUS = ("unknown", "open", "paused", "closing", "settled", "understaffed: too few seats judge it")


def _clock(value: Any) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(int(value)))


def _status(value: Any) -> str:
    return _POOL_STATUS[int(value)] if int(value) < len(_POOL_STATUS) else str(value)


_SHOWN: dict[str, Callable[[Any], str]] = {
    "time": _clock,
    "releaseAt": _clock,
    "first": str,
    "status": _status,
    "needed": show_tokens,
    "stake": show_tokens,
    "free": show_tokens,
    "balance": show_tokens,
    "allowance": show_tokens,
    "pay": show_tokens,
    "bonds": show_tokens,
}
_PLAIN = frozenset({"TooEarly", "StepOutOfRange"})

_WORDS: dict[str, tuple[str, str]] = {
    "AlreadyAppealed": ("this outcome has been appealed already", "wait for the appeal's jury"),
    "AlreadyClosed": ("this part has been settled already", "nothing has to be done"),
    "AlreadyEjected": ("this one was found out and ejected already", "nothing has to be done"),
    "AlreadyJoined": ("this key has joined the swarm before", "join with a new key: a key joins once"),
    "AlreadyLeft": ("the membership has ended already", "muster swarm withdraw, once the stake is free"),
    "AlreadyMember": ("the node is in this pool already", "nothing has to be done"),
    "AlreadyOptedIn": ("the seat judges that already", "nothing has to be done"),
    "AlreadyRegistered": ("the node key has an operator already", "use another key for this node"),
    "AlreadyResolved": ("the dispute is over", "muster node status says how it ended"),
    "AlreadySettled": ("the lane is settled already", "nothing has to be done"),
    "AlreadyTried": ("there is a case over exactly these files: {nodeCase}", "muster case show says how it stands"),
    "AmountTooLarge": ("the amount is larger than the contracts take", "use a smaller one"),
    "BadConsent": ("the node key did not sign this consent", "sign it with the node's key, for this operator"),
    "BadInvite": ("the pool's owner did not sign this invite", "ask for one for this node, pool and chain"),
    "BadRounds": ("these rounds are out of order, or recorded already", "record from round {next} on"),
    "BadSignature": ("the member did not sign both of these envelopes", "check the two files"),
    "BadSwarmTerms": ("a swarm needs a document, a stake, and a delay from the network's shortest window to a year",
                      "check --stake and --delay"),
    "BadTerms": ("the term `{field}` is outside its bounds", "docs/contracts.md, Parameters, has them"),
    "ConsentExpired": ("the node's consent has expired", "sign a new one: muster node consent"),
    "CounterMismatch": ("the node has submitted meanwhile", "read its counter again"),
    "ERC20InsufficientAllowance": ("the contract may take {allowance} tokens, {needed} are needed",
                                   "approve the contract for at least that many grains first"),
    "ERC20InsufficientBalance": ("{sender} has {balance} tokens, {needed} are needed",
                                 "get more tokens: on a test network, from who governs it"),
    "ERC2612ExpiredSignature": ("the permit has expired", "run the command again"),
    "EscrowExhausted": ("the pool's budget has {free} tokens left, {needed} are needed", "its owner has to fund it"),
    "InPool": ("the node is in pool {pool}", "muster node leave --pool {pool}, and wait until its stake unlocks"),
    "InviteExpired": ("the invite has expired", "ask the pool's owner for a new one"),
    "InviteRequired": ("the pool takes invited nodes only", "ask the pool's owner for an invite"),
    "ExpiredConsent": ("the member's consent has expired", "run the command again"),
    "IsFrozen": ("pay is frozen: a refused file of this node is not final", "wait for the end of its challenge window"),
    "NoConsent": ("the file's node did not consent", "sign with its own key, for this chain and this contract"),
    "NoDispute": ("nobody disputes this file", "check --file"),
    "NoSuchCase": ("there is no such case", "check its number: muster case show"),
    "NoSuchFile": ("there is no such file", "check --pool and --file"),
    "NoSuchPool": ("there is no such pool", "check --pool"),
    "NoSuchMember": ("this key never joined the swarm", "muster swarm join"),
    "NoSuchSwarm": ("there is no such swarm", "check --swarm"),
    "NodeIsFrozen": ("one of the node's files was refused and is not final", "wait for the end of its dispute"),
    "NotAccepted": ("file {sequence} is not accepted for good", "name files whose challenge window is over"),
    "NotFinal": ("the outcome can still change until {time}", "run this again then"),
    "NotMember": ("the node is in no pool of that number", "join first: muster node join"),
    "NotOperator": ("this key is not the node's operator", "use the operator's key"),
    "NotOperatorOrNode": ("this key is neither the node nor its operator", "use one of the two"),
    "NotOptedIn": ("the seat does not judge that", "muster validator status says what it judges"),
    "NotOwner": ("this key does not own the pool", "use the key that created it"),
    "NotSeatOwner": ("this key does not own the seat", "use the key that bonded it"),
    "NotStakeOwner": ("this key did not pay the stake", "use the key that joined the member"),
    "NotVoter": ("this key does not vote for the seat", "vote with the seat's voting key"),
    "NotYet": ("this is possible from {time} on", "run this again then"),
    "NothingAtStake": ("no stake stands for this any more", "nothing can be done about it"),
    "NothingToClaim": ("nothing has vested since the last claim", "see: muster node status"),
    "OutOfBounds": ("`{name}` is outside its bounds", "docs/contracts.md, Parameters, has them"),
    "OverLimit": ("{units} output tokens would be in flight, the stake allows {limit}",
                  "wait for pay to vest and claim it, or deposit more stake"),
    "PayAboveBonds": ("a lane of the largest files would earn {pay} tokens, more than the {bonds} tokens that a "
                      "committee's majority has bonded", "lower `rate` or `max_units`, or enlarge `committee`"),
    "Paused": ("governance has paused new entries", "try later: muster governance status"),
    "ReceiptOutOfTime": ("the receipt is of a time that does not count", "nothing can be done about this file"),
    "Removed": ("the pool's owner or a slash has removed this node for good", "register another node key"),
    "SameEnvelope": ("both are the same envelope", "signing it twice is no breach"),
    "SeatActive": ("the seat is still active", "first: muster validator leave"),
    "SeatInactive": ("the seat has left, or its bond is too small", "muster validator top-up, or bond a new seat"),
    "SeatLocked": ("the bond is locked until {releaseAt}, or {frozen} duties are open", "run this again then"),
    "StakeHeld": ("the stake is locked until {releaseAt}", "first: muster swarm leave; then wait until it is free"),
    "StakeLocked": ("the stake is locked until {releaseAt}, or {frozen} refused files and cases are not final",
                    "run this again then"),
    "StakeTooLow": ("the stake is {stake} tokens, {needed} are needed", "deposit more: muster node stake"),
    "StepOutOfRange": ("step {step} is not taken from this node: it may work for {first} to {last}",
                       "work on a newer policy step"),
    "TooEarly": ("this is possible in epoch {neededEpoch}, now it is {epoch}", "run this again then"),
    "TooFewSeats": ("only {seats} seats can be drawn", "more validators have to bond seats first"),
    "TooManyCases": ("too many cases against this node are open", "wait until some are concluded: muster case show"),
    "TooManyClasses": ("a seat judges five pools or families at most", "muster validator opt-out of one first"),
    "TooManyUnsettled": ("{most} files of the node have no final outcome", "wait until some have"),
    "TooSoon": ("this cannot be changed again before {time}", "run this again then"),
    "Undecided": ("the jury has not decided yet", "run this again when its votes are in: muster case show"),
    "UnknownNode": ("nobody has registered this node", "muster node register, or check --node"),
    "WindowOver": ("the time for this ended at {time}", "nothing can be done any more"),
    "WrongStatus": ("the pool is {status}", "muster pool status says what it waits for"),
    "WrongConsent": ("the member's key did not sign this consent", "run the command again with the member's key"),
    "ZeroVoter": ("a seat needs a voting key", "name one with --voter"),
    "AccessControlUnauthorizedAccount": ("this key may not do that", "muster governance status names who may"),
    "OwnableUnauthorizedAccount": ("this key may not do that", "muster governance status names who may"),
    "TimelockUnexpectedOperationState": (
        "the proposal is not in the state for that",
        "muster governance status says when it is ready, and whether it is done",
    ),
}  # fmt: skip


def in_words(name: str, arguments: dict[str, Any]) -> tuple[str, str]:
    """What a custom error says and what to do about it; both empty for one that nobody can do anything about."""
    what, hint = _WORDS.get(name, ("", ""))
    show = {} if name in _PLAIN else _SHOWN
    shown = {argument: show.get(argument, str)(value) for argument, value in arguments.items()}
    try:
        return what.format(**shown), hint.format(**shown)
    except KeyError:  # the contracts named the argument otherwise: the error's own text follows
        return "", hint
