"""From nothing to working, one step at a time: what is missing for a node or a validator, and what to do next. Pure.

Chain and files are looked at again before every step, so an interruption at any point costs nothing. A validator's
seats are bonded last, once its process has engine and weights: a seat that is drawn and silent loses money at once.
"""

from dataclasses import dataclass
from enum import Enum

from chain.indexer.state import Standing
from cli.output import counted
from protocol.encoding import show_tokens

_OVER = ("closing", "settled")


class UpDo(Enum):
    """What `muster node up` or `validator up` does next. ETHER, TOKENS: get them, or say what to send where and wait
    for it. WARM: start the process, and wait until it can judge."""

    MAKE_KEYS = "make keys"
    ASK = "ask"
    ETHER = "ether"
    TOKENS = "tokens"
    SPONSOR = "be sponsored"
    REGISTER = "register"
    DEPOSIT = "deposit"
    JOIN = "join"
    WARM = "warm"
    BOND = "bond"
    OPT_IN = "opt in"
    RUN = "run"
    STOP = "stop"


@dataclass(frozen=True)
class UpStep:
    """`amount`: wei or base units that `address` lacks, or base units to stake or bond."""

    do: UpDo
    why: str
    amount: int = 0
    address: str = ""


def lacking(do: UpDo, why: str, have: int, needs: int, address: str) -> UpStep | None:
    """Return the step that gets what a key lacks (wei or base units), if anything."""
    return UpStep(do, why, needs - have, address) if have < needs else None


# A node


@dataclass(frozen=True)
class NodeFacts:
    """What is known of a node. Wei and base units. `operator` and `node` are empty while the keys are missing;
    `registered_to`: the node's operator on chain, or empty; `least`: the pool's least stake, `wanted` the one that was
    asked for; `sponsored`: the pool's service lends it; `elsewhere`: another pool that the node is in, or 0."""

    pool: int
    operator: str = ""
    node: str = ""
    agreed: bool = False
    operator_wei: int = 0
    operator_needs: int = 0
    tokens: int = 0
    registered_to: str = ""
    stake: int = 0
    least: int = 0
    wanted: int = 0
    sponsored: bool = False
    standing: Standing = Standing.NOT_JOINED
    pool_status: str = "open"
    invite_only: bool = False
    invited: bool = False
    elsewhere: int = 0


def next_node_step(facts: NodeFacts) -> UpStep:
    """Return the first thing that is missing. Stake is added to a registered node only up to the pool's least."""
    if not facts.operator or not facts.node:
        return UpStep(UpDo.MAKE_KEYS, "the operator's key or the node's is missing")
    if refusal := node_refusal(facts):
        return refusal
    joins, least = _joins(facts), max(facts.wanted, facts.least)
    missing = least if not facts.registered_to else least - facts.stake if facts.stake < facts.least else 0
    if missing or joins:
        if not facts.agreed:
            return UpStep(UpDo.ASK, "the pool's terms", missing)
        lacks = facts.operator_wei < facts.operator_needs or facts.tokens < missing
        if joins and lacks and facts.sponsored and not facts.invite_only:
            return UpStep(UpDo.SPONSOR, "the pool's service lends the stake and lets the node join")
        why, stake = "the operator's key pays gas to register and join", f"the stake is {show_tokens(missing)} tokens"
        if step := lacking(UpDo.ETHER, why, facts.operator_wei, facts.operator_needs, facts.operator):
            return step
        if step := lacking(UpDo.TOKENS, stake, facts.tokens, missing, facts.operator):
            return step
    if not facts.registered_to:
        return UpStep(UpDo.REGISTER, f"register the node with {show_tokens(missing)} tokens at stake", missing)
    if missing:
        return UpStep(UpDo.DEPOSIT, f"add {show_tokens(missing)} tokens to the stake", missing)
    if joins:
        return UpStep(UpDo.JOIN, f"join pool {facts.pool}")
    return UpStep(UpDo.RUN, f"the node works for pool {facts.pool}")


def node_refusal(facts: NodeFacts) -> UpStep | None:
    """Return what none of our steps can mend."""
    why = ""
    if facts.registered_to not in ("", facts.operator):
        who = f"node {facts.node} belongs to operator {facts.registered_to}, not to {facts.operator}"
        why = f"{who}: use that operator's key, or make another node key"
    elif facts.standing is Standing.EJECTED:
        why = f"the node was ejected from pool {facts.pool}: a new node needs a new key"
    elif facts.standing is Standing.REMOVED:
        why = f"the owner removed the node from pool {facts.pool}: ask why"
    elif facts.pool_status in _OVER:
        why = f"pool {facts.pool} is {facts.pool_status}: it takes no more work"
    elif facts.elsewhere:
        why = f"the node is in pool {facts.elsewhere}; leave it first: muster node leave"
    elif _joins(facts) and facts.pool_status == "paused":
        why = f"pool {facts.pool} is paused by its owner, nobody can join: run this again once it goes on"
    elif _joins(facts) and facts.invite_only and not facts.invited:
        ask = f"send its owner the node's address {facts.node}, and pass --invite FILE"
        why = f"pool {facts.pool} takes invited nodes only; {ask}"
    return UpStep(UpDo.STOP, why) if why else None


def _joins(facts: NodeFacts) -> bool:
    return facts.standing in (Standing.NOT_JOINED, Standing.LEFT)


# A validator


@dataclass(frozen=True)
class ValidatorFacts:
    """What is known of a validator. Wei and base units. `voters`: address → wei; those in `seated` vote for an
    active seat of ours that judges the pool, those in `idle` for one that does not yet; `foreign`: for somebody
    else's."""

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


def next_validator_step(facts: ValidatorFacts) -> UpStep:
    """Return the first thing that is missing."""
    if not facts.owner or not facts.voters:
        return UpStep(UpDo.MAKE_KEYS, "the owner's key or a voting key is missing")
    if facts.foreign:
        who = ", ".join(sorted(facts.foreign))
        return UpStep(UpDo.STOP, f"{who} votes for somebody else's seat: make another voting key")
    if facts.pool_status in _OVER:
        return UpStep(UpDo.STOP, f"pool {facts.pool} is {facts.pool_status}: nothing is left to judge")
    missing = [voter for voter, _ in facts.voters if voter not in facts.seated]
    if missing:
        bonds = facts.bond * sum(voter not in facts.idle for voter in missing)
        if not facts.agreed:
            return UpStep(UpDo.ASK, "the bond and what it risks", bonds)
        why, bond = "the owner's key pays gas to bond", f"the bonds are {show_tokens(bonds)} tokens"
        if step := lacking(UpDo.ETHER, why, facts.owner_wei, facts.owner_needs, facts.owner):
            return step
        if step := lacking(UpDo.TOKENS, bond, facts.tokens, bonds, facts.owner):
            return step
    for voter, wei in facts.voters:
        if step := lacking(UpDo.ETHER, "a voting key pays the gas of its votes", wei, facts.voter_needs, voter):
            return step
    if not facts.warm:
        return UpStep(UpDo.WARM, "the process loads its engine and the pool's weights")
    if not missing:
        return UpStep(UpDo.RUN, f"{counted(len(facts.voters), 'seat')} in pool {facts.pool}: judging")
    voter = missing[0]
    if voter in facts.idle:
        return UpStep(UpDo.OPT_IN, f"let the seat of {voter} judge pool {facts.pool}", 0, voter)
    what = f"bond {show_tokens(facts.bond)} tokens to let a seat of {voter} judge pool {facts.pool}"
    return UpStep(UpDo.BOND, what, facts.bond, voter)
