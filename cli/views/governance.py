"""Governance for people: who may do what, the parameters, and every proposal with what it will do."""

from typing import TYPE_CHECKING, Any

from chain import abi
from cli.output import clock, fields, table
from protocol.amounts import show_tokens
from protocol.errors import ConfigError, printable

if TYPE_CHECKING:
    from chain.deployment import Deployment
    from chain.indexer.records import Proposal, ProposedCall
    from chain.indexer.state import State


def governance_view(state: "State", deployment: "Deployment", now: int) -> dict[str, Any]:
    """The document of `muster governance status`, without what only the chain can say."""
    announced = {since: values for since, values in state.params.items() if since > now}
    return {
        "roles": state.roles,
        "announced": next(({**values, "since": since} for since, values in announced.items()), None),
        "paused_until": state.paused_until if state.paused_until > now else None,
        "proposals": [proposal_view(p, deployment, now) for p in state.proposals.values()],
    }


def proposal_view(proposal: "Proposal", deployment: "Deployment", now: int) -> dict[str, Any]:
    ready = proposal.status == "scheduled" and now >= proposal.ready_at
    return {
        "id": "0x" + proposal.id.hex(),
        "status": "ready" if ready else proposal.status,
        "ready_at": proposal.ready_at,
        "block": proposal.block,
        "calls": [call_words(call, deployment) for call in proposal.calls],
    }


def call_words(call: "ProposedCall", deployment: "Deployment") -> str:
    """`Params.setPaused(paused=False)`; the bytes of a call that no contract of the suite has."""
    contract = deployment.names().get(call.target, "")
    functions = abi.load(contract).functions.values() if contract else ()
    for function in functions:
        if call.data[:4] == function.selector:
            try:
                arguments = function.inputs.named(call.data[4:])
            except ConfigError:
                break
            shown = ", ".join(f"{k}={'0x' + v.hex() if isinstance(v, bytes) else v}" for k, v in arguments.items())
            return printable(f"{contract}.{function.name}({shown})", 2000)
    return f"{contract or call.target}: 0x{call.data.hex()}"


def governance_text(view: dict[str, Any]) -> str:
    roles = {role: ", ".join(holders) or "nobody" for role, holders in view["roles"].items()}
    announced = view["announced"]
    facts = {
        "timelock": f"{view['timelock']}, delay {view['delay']} s",
        "parameters": f"owned by {view['owner']}; announced {view['unbonding']} s before they hold",
        "test token": f"minted by {view['minter']}",
        **roles,
        "new entries": f"paused until {clock(view['paused_until'])}" if view["paused_until"] else "open",
    }
    rows = [
        [name, _amount(name, value), _amount(name, announced[name]) if announced else "-"]
        for name, value in view["values"].items()
    ]
    since = f"from {clock(announced['since'])}" if announced else "announced"
    proposals = [[p["id"], p["status"], clock(p["ready_at"]), "; ".join(p["calls"])] for p in view["proposals"]]
    return "\n\n".join(
        (
            fields(facts),
            table(["parameter", "now", since], rows),
            table(["proposal", "status", "ready at", "calls"], proposals, "no proposal yet"),
        )
    )


def _amount(name: str, value: int) -> str:
    return f"{value / 100:g}%" if name.endswith("Bps") else f"{show_tokens(value)} tokens"
