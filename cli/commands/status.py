"""`muster status`: the network at a glance, from a pool's orchestrator or from the chain alone."""

from typing import Annotated, Any

import typer

from cli.options import DeploymentOption, JsonOption, RpcOption
from cli.output import clock, emit, fields
from protocol.errors import ConfigError

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
    from cli.commands.pool import status_text
    from cli.session import open_session
    from cli.views.pools import pool_view

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
    emit(summary, json, lambda: "\n\n".join([_chain_text(summary), *map(status_text, views)]))


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


def _ask(url: str) -> Any:
    from cli.diagnosis.services import get_json

    return get_json(url.rstrip("/") + "/v1/status", None, "the orchestrator")


def _service_text(document: Any, indent: str = "") -> str:
    """Any JSON document as indented lines; waits in their usual words."""
    lines = []
    for name, value in document.items() if isinstance(document, dict) else enumerate(document):
        if name == "waits" and isinstance(value, list):
            lines += [f"{indent}waiting for {w.get('what')} since {clock(w.get('since', 0))}" for w in value]
        elif isinstance(value, dict | list):
            inner = _service_text(value, indent + "  ")
            lines += [f"{indent}{name}:", inner] if inner else [f"{indent}{name}: none"]
        else:
            lines.append(f"{indent}{name}: {value}")
    return "\n".join(lines)
