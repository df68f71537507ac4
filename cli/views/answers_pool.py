"""A pool owner's five answers, from what chain and service said. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cli.answers import FiveAnswers, StatusPart, aged, ago, unknown
from cli.output import clock
from cli.surroundings import chores
from cli.views.pools import phase
from protocol.amounts import show_tokens
from protocol.errors import printable
from runtime.diagnose import Alarm

_REFUSED = ("rejected", "malformed", "unavailable", "void", "canary", "late")
_FEW_FILES = 20


@dataclass(frozen=True)
class PoolLook:
    """What was seen of a pool, as in `NodeLook`. The chain's facts: `view` (of cli.views.pools), `free` (base units,
    not reserved and not owed), `file` (base units of the largest file), `now` and `settle_at` (chain time), `refused`
    (the newest refused files: sequence, node, reason), `slashed` (the newest slashes: sequence, who, amount). The
    service's: its `RunStatus`. `around`: what is wrong with machine, service and storage; `gone`: the owner's processes
    that do not run on this machine, where that is known, by their roles, with what they said last. `no_null_model`:
    why no node case can convict in it, empty if one can or nobody knows."""

    pool: int
    now: float
    parts: tuple[StatusPart, StatusPart]
    chain: dict[str, Any] | None
    service: dict[str, Any] | None
    around: tuple[Alarm, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict)
    no_null_model: str = ""


def pool_answers(look: PoolLook) -> FiveAnswers:
    """Either part may be down, and may never have been up."""
    return FiveAnswers(
        tuple(_seen(look)), tuple(_doing(look)), tuple(_earned(look)), tuple(_refused(look)), tuple(_todo(look)),
        look.parts,
    )  # fmt: skip


def _seen(look: PoolLook) -> list[str]:
    if look.chain is None:
        lines = unknown(look.parts[0])
    else:
        view = look.chain["view"]
        seats, url = view["seats"], printable(view["service"]["url"], 200) or "no announced URL"
        members = sum(node["standing"] == "member" for node in view["nodes"])
        lines = [
            f"the chain: pool {look.pool} is {view['status']}, {members} nodes are members, {seats['count']} of "
            f"{seats['needed']} needed seats judge it",
            f"the chain: its service is announced at {url}",
            *aged(look.parts[0], look.now),
        ]
    part = look.parts[1]
    lines.append(part.since if part.down else "the service: it answers")
    if look.no_null_model:
        lines.append(
            f"WARNING: {look.no_null_model}: cheats too small for any one file go unpunished (docs/evidence.md)"
        )
    return lines


def _doing(look: PoolLook) -> list[str]:
    lines = [phase(look.chain["view"]), *aged(look.parts[0], look.now)] if look.chain else unknown(look.parts[0])
    if look.service and not look.parts[1].down:
        run = look.service
        step = "none yet" if run["step"] is None else f"{run['step']} of {run['steps']}"
        flight = ", ".join(f"{run['in_flight'][name]} {name}" for name in ("leased", "pending", "accepted"))
        lines.append(f"the service: {printable(run['phase'])}, policy step {step}, files: {flight}")
        if run["chain_error"]:
            lines.append(f"the service cannot follow the chain: {printable(run['chain_error'])}")
        for wait in run["waits"][:10]:
            who, what = printable(wait["who"]), printable(wait["what"])
            lines.append(f"{who} is waiting for {what} ({ago(wait['since'], look.now)})")
    return lines


def _earned(look: PoolLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    view, free = look.chain["view"], look.chain["free"]
    money = {name: show_tokens(base_units) for name, base_units in view["money"].items()}
    lines = [
        f"{view['units_accepted']} output tokens were accepted, for {money['claimed']} tokens paid to nodes, "
        f"{money['owed']} owed to them and {money['fees_paid']} paid to validators, of {money['funded']} funded",
        f"{show_tokens(free)} tokens are free; "
        + (
            f"what is left comes back from {clock(look.chain['settle_at'])} on"
            if look.chain["settle_at"]
            else "what is left comes back when the pool was closed and settled"
        ),
    ]
    return [*lines, *aged(look.parts[0], look.now)]


def _refused(look: PoolLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    counts = {name: n for name, n in look.chain["view"]["submissions"].items() if n and name in _REFUSED}
    lines = [", ".join(f"{n} {name}" for name, n in counts.items())] if counts else []
    lines += [f"file {one['sequence']} of {one['node']}: {one['reason']}" for one in look.chain["refused"]]
    lines += [
        f"{one['who']} was slashed {show_tokens(one['amount'])} tokens for file {one['sequence']}, which touches no "
        f"other node: muster why {one['sequence']} --pool {look.pool}"
        for one in look.chain["slashed"]
    ]
    return [*(lines or ["nothing"]), *aged(look.parts[0], look.now)]


def _todo(look: PoolLook) -> list[str]:
    lines = []
    if look.parts[0].down:
        lines.append("reach the chain: name another RPC (--rpc, or `rpc` in the profile)")
    if look.chain is not None:
        lines += _chores(look, look.chain)
    if look.parts[1].down and (look.chain is None or look.chain["view"]["status"] != "settled"):
        why = look.gone.get("orchestrator") or look.parts[1].down
        lines.append(f"bring the service back: muster orchestrator run ({why})")
    if "trainer" in look.gone and _trains(look):
        lines.append(f"start the trainer again: muster trainer run ({look.gone['trainer']})")
    lines += chores(look.around)
    return lines or ["nothing"]


def _trains(look: PoolLook) -> bool:
    """Whether there is something left to train."""
    running = look.chain is not None and look.chain["view"]["status"] in ("open", "paused", "understaffed")
    return running and not (look.service and look.service["phase"] == "finished")


def _chores(look: PoolLook, chain: dict[str, Any]) -> list[str]:
    """What the pool's own state asks for."""
    view, lines = chain["view"], []
    status, seats = view["status"], view["seats"]
    if status == "settled":
        return []
    if status == "closing":
        when = "now" if chain["now"] >= chain["settle_at"] else f"from {clock(chain['settle_at'])} on"
        return [f"take the rest of the budget, {when}: muster pool settle --pool {look.pool}"]
    if status == "paused":
        lines.append(f"let it go on: muster pool resume --pool {look.pool}")
    if not view["service"]["key"]:
        lines.append(f"name the service's key: muster pool set-service --pool {look.pool}")
    if not view["service"]["url"]:
        lines.append(f"announce where the service answers: muster pool set-service --pool {look.pool} --url URL")
    if seats["count"] < seats["needed"]:
        lines.append(f"find validators: {seats['needed'] - seats['count']} more seats have to opt in")
    elif status == "understaffed":
        lines.append(f"have the seats counted: muster pool review --pool {look.pool}")
    if view["step"] < 0:
        lines.append("publish policy step 0: muster trainer run")
    elif not any(node["standing"] == "member" for node in view["nodes"]):
        lines.append("find nodes: whoever has a stake joins by `muster node up --pool URL`")
    if chain["file"] and chain["free"] < _FEW_FILES * chain["file"]:
        left = chain["free"] // chain["file"]
        lines.append(f"the free budget buys {left} more of the largest files: muster pool fund --pool {look.pool}")
    return lines
