"""What `muster node status`, `validator status` and `pool status` answer: facts of the chain and of whatever else
there is to ask, as a document and as a text."""

import time

from chain.indexer.state import State
from cli.diagnose import views
from cli.diagnose.answers import Facts, StatusLook, StatusPart, answers_text, node_answers, pool_answers, seats_answers
from cli.diagnose.look import explain, look_around, look_at, look_at_chain, look_at_process, look_at_service
from cli.options import PoolReading
from cli.pool.document import pool_without_evidence
from cli.profile import find_profile
from cli.session import Session
from protocol.api.endpoints import NODE, STATUS, VALIDATOR
from protocol.errors import ConfigError, UnreachableError

_SHOWN = 10


def node_status(look: PoolReading, node: str, last: int) -> tuple[Facts, str]:
    """Answer for a node, with its `last` files (0: all)."""
    states: list[State] = []

    def facts(session: Session) -> Facts:
        states.append(session.state())
        try:
            number = look.number(session) if look.pool else None
        except UnreachableError:  # the service is down: the chain knows the node's pool
            number = None
        return _node_facts(states[0], session.client.now(), node, number)

    chain = look_at_chain(look, (node, look.pool), facts)
    known = chain.facts or {}
    url = (look.pool.url if look.pool else None) or known.get("service")
    looked = look_at(node, "operator", chain, url, NODE, node=node)
    view = known.get("view")
    if states and url and view:
        _explain_refused(view, states[0], last, url, looked.service.down)
    answers = node_answers(looked)
    details = [views.files_text(account, last) for account in view["accounts"]] if view else []
    return (view or {}) | answers, "\n\n".join([answers_text(answers), *details])


def _node_facts(state: State, now: int, node: str, pool: int | None) -> Facts:
    """Return what `node_answers` wants of the chain; `pool`: the one that is meant, else the node's."""
    view = views.node_view(state, node, now, pool)
    accounts = view["accounts"] if view else []  # of a node that is in no pool, the last one is meant
    meant = state.pools.get(pool or (view["pool"] if view else 0) or (accounts[-1]["pool"] if accounts else 0))
    return {
        "view": view,
        "now": now,
        "pool": meant.pool if meant else 0,
        "status": meant.status if meant else "",
        "least": meant.terms.minStake if meant else 0,
        "service": meant.service_url if meant else "",
        "config": meant.config_hash.hex() if meant else "",
    }


def _explain_refused(view: Facts, state: State, last: int, url: str, down: str) -> None:
    """Add what judges published of each refused file that is shown; `down`: why the service cannot be asked, if so."""
    for account in view["accounts"]:
        for shown in account["submissions"][-last:]:
            if shown["reason"]:
                sub = state.submissions[account["pool"], shown["sequence"]]
                shown["evidence"] = [f"no evidence: {down}"] if down else explain(state, sub, url)


def validator_status(look: PoolReading, address: str) -> tuple[Facts, str]:
    """Answer for whoever owns seats or votes for them."""
    chain = look_at_chain(look, (address,), lambda session: _seats_facts(session, session.state(), address))
    known = chain.facts or {}
    owner = known["seats"][0]["owner"] if known.get("seats") else address
    url = (look.pool.url if look.pool else None) or known.get("service")
    answers = seats_answers(look_at(address, "validator", chain, url, VALIDATOR, seats_of=owner))
    view = {"address": address, "epoch": known["epoch"], "seats": known["seats"]} if known else {}
    details = [views.seats_text(known["epoch"], known["seats"])] if known else []
    return view | answers, "\n\n".join([answers_text(answers), *details])


def _seats_facts(session: Session, state: State, address: str) -> Facts:
    """Return what `seats_answers` wants of the chain."""
    now, seats = session.client.now(), views.seats_of(state, address)
    shown = [views.seat_view(state, seat, now) for seat in seats]
    voters = {seat.voter for seat in seats if seat.active}
    pools = [state.pools[pool] for view in shown for pool in view["pools"]]
    served = next((pool for pool in pools if pool.service_url), None)
    return {
        "seats": shown,
        "now": now,
        "epoch": session.suite.seats.current_epoch(),
        "bond": session.suite.seats.bond(),
        "gas_price": session.client.gas_price(),
        "voters": {voter: session.client.balance(voter) for voter in sorted(voters)},
        "open": [panel for seat in seats if not seat.closed for panel in views.open_rounds(state, seat.seat)],
        "service": served.service_url if served else "",
        "config": served.config_hash.hex() if served else "",
    }


def pool_status(look: PoolReading) -> tuple[Facts, str]:
    """Answer for a pool; about its processes too where the owner's profile is of this pool."""
    chain = look_at_chain(look, (look.pool,), lambda session: _pool_facts(session, look.number(session)))
    known = chain.facts or {}
    url = (look.pool.url if look.pool else None) or (known["view"]["service"]["url"] if known else None)
    service = look_at_service(url, STATUS)
    pool = known["view"]["pool"] if known else (look.pool.number if look.pool else None) or 0
    profile = find_profile("owner")
    home = profile.home if profile and profile.pool == pool else None
    around, _ = look_around(url, home, known.get("config", ""), owner=True)
    looks = {role: look_at_process(home / role) for role in ("orchestrator", "trainer")} if home else {}
    gone = {role: part.down for role, part in looks.items() if part.down and part.seen}
    missing = "" if service.down else pool_without_evidence(url, known)
    looked = StatusLook(str(pool), time.time(), chain, service, StatusPart("process"), around=around)
    answers = pool_answers(looked, gone, missing)
    view = known["view"] | {"free": known["free"]} if known else {}
    details = [views.pool_text(view)] if known else []
    view |= {"no_evidence": missing} if missing else {}
    return view | answers, "\n\n".join([answers_text(answers), *details])


def _pool_facts(session: Session, pool: int) -> Facts:
    """Return what `pool_answers` wants of the chain. Raises ConfigError if there is no such pool."""
    state, now = session.state(), session.client.now()
    view = views.pool_view(state, pool, now)
    if view is None:
        raise ConfigError(f"there is no pool {pool} on this deployment", "check --pool")
    onchain, terms = session.suite.pools.pool_of(pool), state.pools[pool].terms
    slashes = [slash for slash in state.slashes if slash.pool == pool and slash.kind == "node"]
    refused = [(sub, why) for sub in state.submissions_of(pool) if (why := views.reason(state, sub))]
    return {
        "view": view,
        "free": onchain["free"],
        "file": terms.maxUnits * terms.rate + terms.committee * terms.fee,
        "now": now,
        "settle_at": onchain["settleAt"] if view["status"] == "closing" else 0,
        "refused": [{"sequence": s.sequence, "node": s.node, "reason": why} for s, why in refused[-_SHOWN:]],
        "slashed": [views.picked(slash, "sequence", "who", "amount") for slash in slashes[-_SHOWN:]],
        "config": state.pools[pool].config_hash.hex(),
    }
