"""`muster validator status`: five answers, whatever is down; then every seat and penalty."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Reading, address_option
from cli.output import emit

if TYPE_CHECKING:
    from chain.indexer.state import State
    from cli.session import Session


def status(
    address: Annotated[str, address_option("--address", "Address that owns or votes for the seats.")],
    look: Reading,
    orchestrator: Annotated[str | None, typer.Option(help="URL of a pool's service that hears the process.")] = None,
) -> None:
    """Does the network see me, what am I doing, what did I earn, what was refused, what must I do? It answers what it
    can when chain, service or process are down, and says which is, since when."""
    from cli.looks import look_at_chain, look_at_process, look_at_service, version_of
    from cli.surroundings import Around, look_around
    from cli.views.answers_seats import SeatsLook, seats_answers
    from cli.views.texts import seats_text
    from protocol.api.endpoints import VALIDATOR

    chain = look_at_chain(look, (address,), lambda session: chain_facts(session, session.state(), address))
    known = chain.facts or {}
    owner = known["seats"][0]["owner"] if known.get("seats") else address
    url = orchestrator or known.get("service")
    service = look_at_service(url, VALIDATOR, owner)
    home = home_of(address)
    process = look_at_process(home, "validator")
    around = look_around(Around(url, seats_of=owner, config_hash=known.get("config", ""), home=home), service.part)
    parts = (chain.part, service.part, process.part)
    facts_of = (chain.facts, service.facts, process.facts)
    answers = seats_answers(SeatsLook(address, time.time(), parts, *facts_of, version_of(url, service.part), around))
    view = {"address": address, "epoch": known["epoch"], "seats": known["seats"]} if known else {}
    details = [seats_text(address, known["epoch"], known["seats"])] if known else []
    emit(view | answers.document(), look.json, lambda: "\n\n".join([answers.text(), *details]))


def chain_facts(session: "Session", state: "State", address: str) -> dict[str, Any]:
    """What `SeatsLook` wants of the chain."""
    from cli.views.seats import open_rounds, seat_view, seats_of

    now, seats = session.client.now(), seats_of(state, address)
    views = [seat_view(state, seat, now) for seat in seats]
    voters = {seat.voter for seat in seats if seat.active}
    pools = [pool for view in views for pool in view["pools"]]
    served = [state.pools[pool] for pool in pools if state.pools[pool].service_url]
    return {
        "seats": views,
        "now": now,
        "epoch": session.suite.seats.current_epoch(),
        "bond": session.suite.seats.bond(),
        "gas_price": session.client.gas_price(),
        "voters": {voter: session.client.balance(voter) for voter in sorted(voters)},
        "open": [one for seat in seats if not seat.closed for one in open_rounds(state, seat.seat)],
        "service": served[0].service_url if served else "",
        "config": served[0].config_hash.hex() if served else "",
    }


def home_of(address: str) -> Path | None:
    """The home of the validator's process, if the profile is about these seats."""
    from cli.profile import find_profile
    from protocol.errors import MusterError
    from runtime.keystore import address_of

    profile = find_profile("validator")
    if profile is None:
        return None
    try:
        ours = {address_of(key.keystore) for key in (profile.key, *profile.voters)}
    except MusterError:
        return None
    return profile.home if address in ours else None
