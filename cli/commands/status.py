"""`muster status`: the network at a glance, from a pool's orchestrator or from the chain alone."""

from typing import Annotated, Any

import typer

from cli.options import DeploymentOption, JsonOption, RpcOption
from cli.output import clock, emit, fields, table
from protocol.errors import ConfigError

_ESCROW = ("held", "free", "reserved", "unpaid", "claimed", "fees", "burnt")

UrlOption = Annotated[str | None, typer.Option("--orchestrator", help="URL of a pool's orchestrator.")]


def status(
    orchestrator: UrlOption = None,
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    pool: Annotated[int | None, typer.Option("--pool", min=0, help="Only this pool.")] = None,
    json: JsonOption = False,
) -> None:
    """Phase, step, nodes, escrow, and what is waited for since when."""
    if orchestrator is not None:
        document = _ask(orchestrator)
        emit(document, json, lambda: _service_text(document))
        return
    if deployment is None:
        raise ConfigError("nothing to look at is named", "pass --orchestrator URL, or --deployment FILE")
    from cli.session import open_session
    from cli.views.pools import pool_view
    from cli.views.texts import pool_text

    session = open_session(deployment, rpc)
    state, head = session.state(), session.client.head()
    views = [v for n in sorted(state.pools) if pool in (None, n) and (v := pool_view(state, n, head.time))]
    for view in views:
        view["free"] = session.suite.pools.pool_of(view["pool"]).free
    seats = sum(1 for seat in state.seats.values() if seat.active)
    summary = {
        "network": session.deployment.network,
        "chain_id": session.client.chain_id,
        "block": head.number,
        "time": head.time,
        "active_seats": seats,
        "nodes": len(state.nodes),
        "paused": state.paused,
        "pools": views,
    }
    emit(summary, json, lambda: "\n\n".join([_chain_text(summary), *map(pool_text, views)]))


def _chain_text(summary: dict[str, Any]) -> str:
    return fields(
        {
            "network": f"{summary['network']} (chain {summary['chain_id']})",
            "block": f"{summary['block']} of {clock(summary['time'])}",
            "seats": f"{summary['active_seats']} active",
            "nodes": f"{summary['nodes']} registered",
            "pools": len(summary["pools"]) or "none yet",
        }
    )


def _ask(url: str) -> dict[str, Any]:
    """What a pool's service says of itself; of a stranger's document only the shape is believed."""
    from cli.doctor.services import get_json

    document = get_json(url.rstrip("/") + "/v1/status", None, "the orchestrator")
    if not isinstance(document, dict) or not {"phase", "pool", "waits"} <= set(document):
        raise ConfigError(f"{url} is not a muster orchestrator", "check the URL")
    dashboard = get_json(url.rstrip("/") + "/v1/dashboard", None, "the orchestrator")
    escrow = dashboard.get("escrow") if isinstance(dashboard, dict) else None
    return document | {"escrow": {name: int(grains) for name, grains in _items(escrow) if str(grains).isdigit()}}


def _service_text(document: dict[str, Any]) -> str:
    """Names and reasons in the document come from strangers, so everything is made printable."""
    from protocol.amounts import show_tokens
    from protocol.errors import printable

    flight, escrow = document.get("in_flight"), document["escrow"]
    lines = {
        "pool": document["pool"],
        "phase": document["phase"],
        "step": f"{document.get('step')} of {document.get('steps')}",
        "block": f"{document.get('head')}" + (f" ({document['chain_error']})" if document.get("chain_error") else ""),
        "files": ", ".join(f"{n} {name}" for name, n in flight.items()) if isinstance(flight, dict) else "none",
        "escrow": ", ".join(f"{name} {show_tokens(escrow[name])}" for name in _ESCROW if name in escrow) or "unknown",
    }
    people = [
        [role, printable(str(address)), printable(str(standing))]
        for role, name in (("node", "nodes"), ("validator", "validators"))
        for address, standing in _items(document.get(name))
    ]
    waits = [
        printable(f"{wait.get('who', '')} is waiting for {wait.get('what')} since {_since(wait.get('since'))}")
        for wait in document["waits"]
        if isinstance(wait, dict)
    ]
    shown = fields({name: printable(str(value)) for name, value in lines.items()})
    return "\n\n".join(p for p in (shown, table(["role", "address", "state"], people), "\n".join(waits)) if p)


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _since(value: Any) -> str:
    return clock(value) if isinstance(value, int | float) and 0 <= value < 1e11 else "?"
