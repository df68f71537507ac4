"""`muster pool status`: five answers, whatever is down; then money, nodes and what files wait for."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import PoolOption, Reading
from cli.output import emit
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from cli.session import Session

_SHOWN = 10


def status(
    pool: PoolOption,
    look: Reading,
    orchestrator: Annotated[
        str | None, typer.Option(help="URL of the pool's service, if not where its owner announced it.")
    ] = None,
) -> None:
    """Is the pool seen, what is it doing, what was paid, what was refused, what must its owner do? It answers what it
    can when chain or service are down, and says which is, since when."""
    from cli.looks import look_at_chain, look_at_service
    from cli.views.answers_pool import PoolLook, pool_answers
    from cli.views.texts import pool_text
    from protocol.api.endpoints import STATUS

    chain = look_at_chain(look, (pool,), lambda session: chain_facts(session, pool))
    known = chain.facts or {}
    service = look_at_service(orchestrator or (known["view"]["service"]["url"] if known else None), STATUS)
    found = PoolLook(pool, time.time(), (chain.part, service.part), chain.facts, service.facts)
    answers = pool_answers(found)
    view = known["view"] | {"free": known["free"]} if known else {}
    details = [pool_text(view)] if known else []
    emit(view | answers.document(), look.json, lambda: "\n\n".join([answers.text(), *details]))


def chain_facts(session: "Session", pool: int) -> dict[str, Any]:
    """What `PoolLook` wants of the chain. Raises ConfigError if there is no such pool."""
    from cli.views.pools import pool_view
    from cli.views.progress import reason

    state, now = session.state(), session.client.now()
    view = pool_view(state, pool, now)
    if view is None:
        raise ConfigError(f"there is no pool {pool} on this deployment", "check --pool")
    onchain, terms = session.suite.pools.pool_of(pool), state.pools[pool].terms
    refused = [(sub, why) for sub in state.submissions_of(pool) if (why := reason(state, sub))]
    return {
        "view": view,
        "free": onchain.free,
        "file": terms.maxUnits * terms.rate + terms.committee * terms.fee,
        "now": now,
        "settle_at": onchain.settle_at if view["status"] == "closing" else 0,
        "refused": [{"sequence": s.sequence, "node": s.node, "reason": why} for s, why in refused[-_SHOWN:]],
        "slashed": sum(node["slashed"] for node in view["nodes"]),
    }
