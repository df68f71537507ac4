"""From nothing to judging, one step at a time: what is missing for a validator, and what is done about it next. Pure.

Seats are bonded last, once the process has its engine and weights: a seat that is drawn and silent loses money at once.
"""

from dataclasses import dataclass

from cli.up.steps import UpDo, UpStep, closed_step, ether_step, tokens_step
from protocol.amounts import show_tokens


@dataclass(frozen=True)
class ValidatorFacts:
    """What is known of a validator. Wei and base units. `voters`: address → wei; those in `seated` vote for an active
    seat of ours that judges the pool, those in `idle` for one that does not yet; `foreign`: for somebody else's."""

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


def next_step(facts: ValidatorFacts) -> UpStep:
    """The first thing that is missing."""
    if not facts.owner or not facts.voters:
        return UpStep(UpDo.MAKE_KEYS, "the owner's key or a voting key is missing")
    if facts.foreign:
        who = ", ".join(sorted(facts.foreign))
        return UpStep(UpDo.STOP, f"{who} votes for somebody else's seat: make another voting key")
    if closed := closed_step(facts.pool, facts.pool_status, "nothing is left to judge"):
        return closed
    missing = [voter for voter, _ in facts.voters if voter not in facts.seated]
    return _funds_step(facts, missing) or _seat_step(facts, missing)


def _funds_step(facts: ValidatorFacts, missing: list[str]) -> UpStep | None:
    bonds = facts.bond * sum(voter not in facts.idle for voter in missing)
    if missing and not facts.agreed:
        return UpStep(UpDo.ASK, "the bond and what it risks", bonds)
    why = "the owner's key pays gas to bond"
    lacking = ether_step(why, facts.owner_wei, facts.owner_needs, facts.owner) if missing else None
    if lacking := lacking or tokens_step("the bonds are", facts.tokens, bonds, facts.owner):
        return lacking
    why = "a voting key pays the gas of its votes"
    voters = (ether_step(why, wei, facts.voter_needs, voter) for voter, wei in facts.voters)
    return next(filter(None, voters), None)


def _seat_step(facts: ValidatorFacts, missing: list[str]) -> UpStep:
    if not facts.warm:
        return UpStep(UpDo.WARM, "the process loads its engine and the pool's weights")
    if missing:
        voter, idle = missing[0], missing[0] in facts.idle
        do = UpDo.OPT_IN if idle else UpDo.BOND
        what = "let the seat" if idle else f"bond {show_tokens(facts.bond)} tokens to let a seat"
        return UpStep(do, f"{what} of {voter} judge pool {facts.pool}", 0 if idle else facts.bond, voter)
    return UpStep(UpDo.RUN, f"{len(facts.voters)} seats judge pool {facts.pool}")
