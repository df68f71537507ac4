"""`muster node status`: five answers, whatever is down; then the stake, the pools and every file."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import NodeOption, Reading
from cli.output import emit

if TYPE_CHECKING:
    from chain.indexer.state import State
    from cli.session import Session


def status(
    node: NodeOption,
    look: Reading,
    pool: Annotated[int | None, typer.Option(help="Only this pool.")] = None,
    last: Annotated[int, typer.Option(min=0, help="Show that many submissions; 0 for all.")] = 20,
    orchestrator: Annotated[
        str | None, typer.Option(help="URL of the pool's service, if not where its owner announced it.")
    ] = None,
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Add up what judges published of all files, by the law of the pool.")
    ] = False,
) -> None:
    """Does the network see me, what am I doing, what did I earn, what was refused, what must I do? It answers what it
    can when chain, service or process are down, and says which is, since when."""
    from cli.looks import look_at_chain, look_at_process, look_at_service, version_of
    from cli.surroundings import Around, look_around
    from cli.views.answers_node import NodeLook, node_answers
    from cli.views.texts import node_text
    from protocol.api.endpoints import NODE

    states: list[State] = []

    def facts(session: "Session") -> dict[str, Any]:
        states.append(session.state())
        return chain_facts(session, states[0], node, pool)

    chain = look_at_chain(look, (node, pool), facts)
    known = chain.facts or {}
    url = orchestrator or known.get("service")
    service = look_at_service(url, NODE, node)
    if states and url and known["view"]:
        add_evidence(known["view"], states[0], last, url, service.part.down)
    case = own_case(states, known["pool"], node, url) if evidence and states else {}
    home = home_of(node)
    process = look_at_process(home, "worker")
    around = look_around(Around(url, node, config_hash=known.get("config", ""), home=home), service.part)
    parts = (chain.part, service.part, process.part)
    facts_of = (chain.facts, service.facts, process.facts)
    answers = node_answers(NodeLook(node, time.time(), parts, *facts_of, version_of(url, service.part), around))
    view = known.get("view")
    details = [node_text(view, last)] if view else []
    details += [case_lines(case)] if case else []
    emit(
        (view or {}) | answers.document() | ({"case": case} if case else {}),
        look.json,
        lambda: "\n\n".join([answers.text(), *details]),
    )


def chain_facts(session: "Session", state: "State", node: str, pool: int | None) -> dict[str, Any]:
    """What `NodeLook` wants of the chain; `pool`: the one that is meant, else the node's."""
    from cli.views.nodes import node_view

    now = session.client.now()
    view = node_view(state, node, now, pool)
    meant = state.pools.get(pool or (view["pool"] if view else 0))
    wei = session.client.balance(node)
    return {
        "view": view | {"wei": wei} if view else None,
        "now": now,
        "wei": wei,
        "gas_price": session.client.gas_price(),
        "pool": meant.pool if meant else 0,
        "status": meant.status if meant else "",
        "least": meant.terms.minStake if meant else 0,
        "service": meant.service_url if meant else "",
        "config": meant.config_hash.hex() if meant else "",
    }


def add_evidence(view: dict[str, Any], state: "State", last: int, url: str, down: str) -> None:
    """What judges published of each refused file that is shown; `down`: why the service cannot be asked, if so."""
    from cli.evidence import explain

    for account in view["accounts"]:
        for shown in account["submissions"][-last:]:
            if shown["reason"]:
                sub = state.submissions[account["pool"], shown["sequence"]]
                shown["evidence"] = [f"no evidence: {down}"] if down else explain(state, sub, url)


def own_case(states: "list[State]", pool: int, node: str, url: str | None) -> dict[str, Any]:
    """The node's own case in the pool that is meant, or {"unknown": why it cannot be computed}."""
    from cli.node_case import published_case
    from protocol.errors import MusterError

    if not pool or not url:
        return {"unknown": "no pool, or nobody knows its service"}
    try:
        return published_case(states[0], pool, node, url)
    except MusterError as error:
        return {"unknown": f"{error.what}: {error.hint}"}


def case_lines(case: dict[str, Any]) -> str:
    """For people."""
    from cli.node_case import case_text
    from protocol.errors import printable

    return f"evidence: {printable(case['unknown'], 300)}" if "unknown" in case else case_text(case)


def home_of(node: str) -> Path | None:
    """The home of the worker's process, if the operator's profile is about this node."""
    from cli.profile import find_profile
    from protocol.errors import MusterError
    from runtime.keystore import address_of

    profile = find_profile("operator")
    if profile is None or profile.node is None:
        return None
    try:
        return profile.home if address_of(profile.node.keystore) == node else None
    except MusterError:
        return None
