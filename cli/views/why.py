"""What happened to a file, in plain words: what it is, what was decided and by whom, what that costs, what can be done.
Pure, from the projected chain."""

from typing import Any

from chain.indexer.records import Status, Submission
from chain.indexer.state import State
from cli.output import clock
from cli.views.progress import votes_on, waiting
from protocol.amounts import show_tokens
from protocol.verdict import Code

MEANING = {
    Code.ACCEPT: "every check passed",
    Code.UNSURE: "no check failed, though a figure was close to its threshold; that counts as accepted",
    Code.REJECT_WEIGHTS: "its proofs do not come from the pool's weights computed in the pool's dtype",
    Code.REJECT_SAMPLING: "its tokens are not those that the pool's sampling noise gives with these weights",
    Code.REJECT_ASSIGNMENT: "it holds other problems, prompts or target lengths than were assigned to it",
    Code.REJECT_REWARD: "the rewards in it are not those that its answers get",
    Code.REJECT_DUPLICATE: "work in it was handed in before",
    Code.REJECT_TERMINATION: "an answer in it ends where the model would not have ended",
    Code.REJECT_COMMITMENT: "its bytes are not those that were committed to on chain",
    Code.MALFORMED: "it is not a file of the pool's format",
    Code.UNAVAILABLE: "its judges could not get its bytes, though the pool's service had attested them; it is paid",
    Code.CANARY: "the pool's owner planted it to see whether validators look; it never counted",
    Code.VOID: "nobody's votes decided it: not enough of the committee voted in time, and nobody is blamed",
    Code.UNDECIDED: "its committee did not agree",
    Code.LATE: "nobody attested its upload in time, so it was never judged and is not paid",
}


def why_view(state: State, sub: Submission, now: int) -> dict[str, Any]:
    """Everything that `why_text` says of a file; amounts in base units, `now` in chain time."""
    rate, code = state.pools[sub.pool].terms.rate, Code(sub.code)
    votes = votes_on(state, sub)
    return {
        "pool": sub.pool,
        "file": sub.sequence,
        "node": sub.node,
        "step": sub.step,
        "units": sub.units,
        "time": sub.time,
        "status": str(sub.status),
        "code": code.label,
        "meaning": MEANING.get(code, ""),
        "waiting": waiting(state, sub, now),
        "votes": {seat: Code(vote).label for seat, vote in votes.items()},
        "agreeing": sum(1 for vote in votes.values() if vote == sub.code),
        "decided": sub.decided_time,
        "pay": sub.units * rate if sub.is_paid else 0,
        "forfeited": sub.forfeited,
        "slashed": sub.slashed,
        "disputed": sub.disputed,
        "final": sub.is_final(now),
        "final_time": sub.final_time,
        "disputable": bool(sub.decided_time and not sub.disputed and not sub.finalized and now < sub.final_time),
    }


def why_text(view: dict[str, Any], evidence: list[str]) -> str:
    """The same in sentences, with what the judges published as `evidence`."""
    head = f"File {view['file']} of pool {view['pool']}: {view['units']} output tokens of policy step {view['step']}, "
    lines = [head + f"handed in by {view['node']} at {clock(view['time'])}."]
    if view["status"] == str(Status.PENDING):
        return "\n".join([*lines, f"Not judged yet: {view['waiting']}."])
    lines.append(f"Outcome: {view['code']}: {view['meaning']}.")
    if view["votes"]:
        said = ", ".join(f"seat {seat} {label}" for seat, label in view["votes"].items())
        lines.append(f"{view['agreeing']} of {len(view['votes'])} opened votes say so: {said}.")
    lines += [f"  {line}" for line in evidence]
    return "\n".join([*lines, *_money(view), *_next(view)])


def _money(view: dict[str, Any]) -> list[str]:
    if view["slashed"]:
        return [f"It cost the node {show_tokens(view['slashed'])} tokens of its stake."]
    if view["forfeited"]:
        return ["Its pay was forfeited: another file of the node was found to be forged before it vested."]
    if view["pay"]:
        return [f"It earns {show_tokens(view['pay'])} tokens."]
    return ["It is not paid; the stake is untouched."]


def _next(view: dict[str, Any]) -> list[str]:
    if view["disputed"]:
        return [f"It is disputed: {view['waiting']}."]
    if view["disputable"]:
        order = f"muster node dispute --pool {view['pool']} --file {view['file']}"
        return [f"Whoever sees it otherwise can dispute it until {clock(view['final_time'])}: {order}"]
    return ["That is final."] if view["final"] else [f"{view['waiting'].capitalize()}."] if view["waiting"] else []
