"""From nothing to earning, one step at a time: what is missing for a node, and what is done about it next. Pure.

The chain and the files are looked at anew before every step, so an interruption at any point costs nothing.
"""

from dataclasses import dataclass

from chain.indexer.state import Standing
from cli.up.steps import UpDo, UpStep, closed_step, ether_step, tokens_step
from protocol.amounts import show_tokens


@dataclass(frozen=True)
class NodeFacts:
    """What is known of a node. Wei and base units. `operator` and `node` are empty while the keys are missing;
    `registered_to`: the node's operator on chain, or empty; `least`: the pool's least stake, `wanted` the one that was
    asked for; `elsewhere`: another pool that the node is in, or 0."""

    pool: int
    operator: str = ""
    node: str = ""
    agreed: bool = False
    operator_wei: int = 0
    operator_needs: int = 0
    node_wei: int = 0
    node_needs: int = 0
    tokens: int = 0
    registered_to: str = ""
    stake: int = 0
    least: int = 0
    wanted: int = 0
    standing: Standing = Standing.NOT_JOINED
    pool_status: str = "open"
    invite_only: bool = False
    invited: bool = False
    elsewhere: int = 0


def next_step(facts: NodeFacts) -> UpStep:
    """The first thing that is missing."""
    if not facts.operator or not facts.node:
        return UpStep(UpDo.MAKE_KEYS, "the operator's key or the node's is missing")
    return _refusal(facts) or _stake_step(facts) or _member_step(facts)


def _refusal(facts: NodeFacts) -> UpStep | None:
    """What no step of ours can mend."""
    if facts.registered_to not in ("", facts.operator):
        who = f"node {facts.node} belongs to operator {facts.registered_to}, not to {facts.operator}"
        return UpStep(UpDo.STOP, f"{who}: use that operator's key, or make another node key")
    if facts.standing is Standing.EJECTED:
        return UpStep(UpDo.STOP, f"the node was ejected from pool {facts.pool}: a new node needs a new key")
    if facts.standing is Standing.REMOVED:
        return UpStep(UpDo.STOP, f"the owner removed the node from pool {facts.pool}: ask why")
    if closed := closed_step(facts.pool, facts.pool_status, "it takes no more work"):
        return closed
    if facts.elsewhere:
        hint = f"leave it first: muster node leave --pool {facts.elsewhere}"
        return UpStep(UpDo.STOP, f"the node is in pool {facts.elsewhere}; {hint}")
    if _joins(facts) and facts.invite_only and not facts.invited:
        ask = f"send its owner the node's address {facts.node}, and pass --invite FILE"
        return UpStep(UpDo.STOP, f"pool {facts.pool} takes invited nodes only; {ask}")
    return None


def _joins(facts: NodeFacts) -> bool:
    return facts.standing in (Standing.NOT_JOINED, Standing.LEFT)


def _stake_step(facts: NodeFacts) -> UpStep | None:
    """Until enough is at stake. Stake is only added while it is below the pool's least, or the node not registered."""
    missing = max(facts.wanted, facts.least) - facts.stake if facts.stake < facts.least else 0
    if not facts.registered_to:
        missing = max(facts.wanted, facts.least)
    if not missing and not _joins(facts):
        return None
    if not facts.agreed:
        return UpStep(UpDo.ASK, "the pool's terms", missing)
    why = "the operator's key pays gas to register and join"
    lacking = ether_step(why, facts.operator_wei, facts.operator_needs, facts.operator)
    if lacking := lacking or tokens_step("the stake is", facts.tokens, missing, facts.operator):
        return lacking
    if not facts.registered_to:
        return UpStep(UpDo.REGISTER, f"register the node with {show_tokens(missing)} tokens at stake", missing)
    if missing:
        return UpStep(UpDo.DEPOSIT, f"add {show_tokens(missing)} tokens to the stake", missing)
    return None


def _member_step(facts: NodeFacts) -> UpStep:
    if _joins(facts):
        if facts.pool_status == "paused":
            return UpStep(UpDo.WAIT, f"pool {facts.pool} is paused by its owner: nobody can join")
        return UpStep(UpDo.JOIN, f"join pool {facts.pool}")
    lacking = ether_step("the node's key pays the gas of its files", facts.node_wei, facts.node_needs, facts.node)
    return lacking or UpStep(UpDo.RUN, f"the node works for pool {facts.pool}")
