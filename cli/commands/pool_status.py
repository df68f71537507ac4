"""`muster pool status`: five answers, whatever is down; then money, nodes and what files wait for."""

import time
from pathlib import Path
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
    from cli.looks import look_at_chain, look_at_process, look_at_service
    from cli.no_null_model import pool_without_null_model
    from cli.surroundings import Around, look_around
    from cli.views.answers_pool import PoolLook, pool_answers
    from cli.views.texts import pool_text
    from protocol.api.endpoints import STATUS

    chain = look_at_chain(look, (pool,), lambda session: chain_facts(session, pool))
    known = chain.facts or {}
    url = orchestrator or (known["view"]["service"]["url"] if known else None)
    service = look_at_service(url, STATUS)
    home = home_of(pool)
    around = look_around(Around(url, owner=True, config_hash=known.get("config", ""), home=home), service.part)
    looks = {role: look_at_process(home / role, role) for role in ("orchestrator", "trainer")} if home else {}
    down = {role: one.part.down for role, one in looks.items() if one.part.down and one.part.seen}
    parts = (chain.part, service.part)
    no_null_model = "" if service.part.down else pool_without_null_model(url, known)
    found = PoolLook(pool, time.time(), parts, chain.facts, service.facts, around, down, no_null_model)
    answers = pool_answers(found)
    view = known["view"] | {"free": known["free"]} if known else {}
    details = [pool_text(view)] if known else []
    view |= {"no_null_model": no_null_model} if no_null_model else {}
    emit(view | answers.document(), look.json, lambda: "\n\n".join([answers.text(), *details]))


def chain_facts(session: "Session", pool: int) -> dict[str, Any]:
    """What `PoolLook` wants of the chain. Raises ConfigError if there is no such pool."""
    from cli.views import picked
    from cli.views.pools import pool_view
    from cli.views.progress import reason

    state, now = session.state(), session.client.now()
    view = pool_view(state, pool, now)
    if view is None:
        raise ConfigError(f"there is no pool {pool} on this deployment", "check --pool")
    onchain, terms = session.suite.pools.pool_of(pool), state.pools[pool].terms
    slashes = [one for one in state.slashes if one.pool == pool and one.kind == "node"]
    refused = [(sub, why) for sub in state.submissions_of(pool) if (why := reason(state, sub))]
    return {
        "view": view,
        "free": onchain.free,
        "file": terms.maxUnits * terms.rate + terms.committee * terms.fee,
        "now": now,
        "settle_at": onchain.settle_at if view["status"] == "closing" else 0,
        "refused": [{"sequence": s.sequence, "node": s.node, "reason": why} for s, why in refused[-_SHOWN:]],
        "slashed": [picked(one, "sequence", "who", "amount") for one in slashes[-_SHOWN:]],
        "config": state.pools[pool].config_hash.hex(),
        "audit_rate": terms.auditRate,
    }


def home_of(pool: int) -> Path | None:
    """The home of the owner's processes, if the profile is about this pool."""
    from cli.profile import find_profile

    profile = find_profile("owner")
    return profile.home if profile and profile.pool == pool else None
