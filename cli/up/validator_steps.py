"""From nothing to judging, one step at a time: what is missing for a validator, and what is done about it next. Pure.

Seats are bonded last, once the process has its engine and weights: a seat that is drawn and silent loses money at once.
"""

from dataclasses import dataclass
from enum import Enum

from protocol.amounts import show_tokens


class ValidatorDo(Enum):
    """What `muster validator up` does next. WARM: start the process, and wait until it can judge."""

    MAKE_KEYS = "make keys"
    ASK = "ask"
    ETHER = "ether"
    TOKENS = "tokens"
    WARM = "warm"
    BOND = "bond"
    OPT_IN = "opt in"
    RUN = "run"
    STOP = "stop"


@dataclass(frozen=True)
class ValidatorFacts:
    """What is known of a validator. Wei and grains. `voters`: address → wei; those in `seated` vote for an active seat
    of ours that judges the pool, those in `idle` for one that does not yet; `foreign`: for somebody else's."""

    pool: int
    owner: str = ""
    voters: tuple[tuple[str, int], ...] = ()
    agreed: bool = False
    owner_wei: int = 0
    owner_needs: int = 0
    voter_needs: int = 0
    tokens: int = 0
    bond: int = 0
    seated: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()
    warm: bool = False
    pool_status: str = "open"


@dataclass(frozen=True)
class ValidatorStep:
    """`why` is a line for people. `amount`: wei or grains that are missing; `address`: whose, or the seat's voter."""

    do: ValidatorDo
    why: str
    amount: int = 0
    address: str = ""


def next_step(facts: ValidatorFacts) -> ValidatorStep:
    """The first thing that is missing."""
    if not facts.owner or not facts.voters:
        return ValidatorStep(ValidatorDo.MAKE_KEYS, "the owner's key or a voting key is missing")
    if facts.foreign:
        who = ", ".join(sorted(facts.foreign))
        return ValidatorStep(ValidatorDo.STOP, f"{who} votes for somebody else's seat: make another voting key")
    if facts.pool_status in ("closing", "settled"):
        return ValidatorStep(ValidatorDo.STOP, f"pool {facts.pool} is {facts.pool_status}: nothing is left to judge")
    missing = [voter for voter, _ in facts.voters if voter not in facts.seated]
    return _funds_step(facts, missing) or _seat_step(facts, missing)


def _funds_step(facts: ValidatorFacts, missing: list[str]) -> ValidatorStep | None:
    bonds = facts.bond * sum(voter not in facts.idle for voter in missing)
    if missing and not facts.agreed:
        return ValidatorStep(ValidatorDo.ASK, "the bond and what it risks", bonds)
    if missing and facts.owner_wei < facts.owner_needs:
        lacks = facts.owner_needs - facts.owner_wei
        return ValidatorStep(ValidatorDo.ETHER, "the owner's key pays gas to bond", lacks, facts.owner)
    if facts.tokens < bonds:
        why = f"the bonds are {show_tokens(bonds)} tokens"
        return ValidatorStep(ValidatorDo.TOKENS, why, bonds - facts.tokens, facts.owner)
    for voter, wei in facts.voters:
        if wei < facts.voter_needs:
            lacks = facts.voter_needs - wei
            return ValidatorStep(ValidatorDo.ETHER, "a voting key pays the gas of its votes", lacks, voter)
    return None


def _seat_step(facts: ValidatorFacts, missing: list[str]) -> ValidatorStep:
    if not facts.warm:
        return ValidatorStep(ValidatorDo.WARM, "the process loads its engine and the pool's weights")
    if missing:
        voter, idle = missing[0], missing[0] in facts.idle
        do = ValidatorDo.OPT_IN if idle else ValidatorDo.BOND
        what = "let the seat" if idle else f"bond {show_tokens(facts.bond)} tokens to let a seat"
        return ValidatorStep(do, f"{what} of {voter} judge pool {facts.pool}", 0 if idle else facts.bond, voter)
    return ValidatorStep(ValidatorDo.RUN, f"{len(facts.voters)} seats judge pool {facts.pool}")
