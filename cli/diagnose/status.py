"""What `muster node status`, `validator status` and `pool status` ask and answer.

Chain, the pool's service and the process each answer, or are reported down since when. The facts about machine, service
and storage are those of `muster watch` (`runtime.diagnose`).
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from chain.indexer.records import Submission
from chain.indexer.state import State
from cli.diagnose import views
from cli.diagnose.answers import Facts, StatusLook, StatusPart, answers_text, node_answers, pool_answers, seats_answers
from cli.hardware import existing
from cli.options import PoolReading, Reading
from cli.pool.document import pool_without_evidence, service_objects
from cli.profile import Role, find_profile
from cli.session import NotKnownError, Session, ask_service, look_for_chain
from protocol.api.endpoints import NODE, STATUS, VALIDATOR, Get
from protocol.encoding import parse_json
from protocol.errors import ConfigError, MusterError, UnreachableError, printable
from protocol.files import user_cache, write_atomic
from protocol.verdict import BallotDocument, Code, code_at
from runtime import diagnose
from runtime.diagnose import Alarm, WatchLimits, free_bytes, surroundings
from runtime.home_status import crash_message, last_line, last_sign, log_of, runs, stalled
from runtime.keystore import address_of
from storage.keys import MissingObjectError, object_key
from validator.config import ENGINES, RETAINED, UNSERVED

log = logging.getLogger("muster.cli")
A = TypeVar("A")
_DOCUMENT_SECONDS, _DOCUMENT_BYTES = 10.0, 4 << 20
_SHOWN = 10


class LastSeen:
    """The newest answer of a part of the network, in the user's cache, so that status commands can say since when it is
    down and what was true before. `of` names question and part."""

    def __init__(self, *of: object) -> None:
        name = hashlib.sha256(json.dumps([str(part) for part in of]).encode()).hexdigest()[:32]
        self._path = user_cache("status") / f"{name}.json"

    def keep(self, facts: Facts) -> None:
        """Write what it answers now; a cache that cannot be written is no fault of the command."""
        try:
            write_atomic(self._path, json.dumps({"time": time.time(), "facts": facts}).encode(), 0o600)
        except OSError as error:
            log.info("cannot remember %s: %s", self._path, error)

    def recall(self) -> tuple[float, Facts | None]:
        """Return (Unix seconds, facts) of its last answer; (0, None) if there was none."""
        try:
            kept = parse_json(self._path.read_bytes())
            return float(kept["time"]), dict(kept["facts"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0, None


def look_at_chain(look: Reading, of: tuple[object, ...], facts: Callable[[Session], Facts]) -> StatusPart:
    """Return `facts` of the chain that `look` names; `of` says what they are about. Raises ConfigError for what is no
    outage: a missing file, another chain."""
    seen = LastSeen("chain", look.deployment and look.deployment.absolute(), *of)
    try:
        look_for_chain(look.deployment, look.rpc)
        chain_facts = facts(look.open())
    except UnreachableError as error:
        when, old = seen.recall()
        return StatusPart("chain", old, error.what, when)
    seen.keep(chain_facts)
    return StatusPart("chain", chain_facts)


def look_at_service(url: str | None, endpoint: Get[A], of: str = "") -> StatusPart:
    """Return a public document of a pool's service as JSON; `of` fills the endpoint's path."""
    if not url:
        return StatusPart("service", None, "no URL is named (--pool URL), and its owner announced none")
    seen = LastSeen("service", url, endpoint.path, of)
    if of:
        before, _, after = endpoint.path.partition("{")
        endpoint = replace(endpoint, path=before + of + after.partition("}")[2])
    try:
        answer = ask_service(url, endpoint)
    except NotKnownError:
        return StatusPart("service")
    except MusterError as error:
        when, old = seen.recall()
        return StatusPart("service", old, printable(error.what, 300), when)
    service_facts: Facts = endpoint.answer.dump_python(answer, mode="json")
    seen.keep(service_facts)
    return StatusPart("service", service_facts)


def look_at_process(home: Path | None) -> StatusPart:
    """Look at a process on this machine, by its home. Facts: `log`, its newest line; `unsubmitted`,
    finished files that wait to be handed in; of a validator `unserved`, why pools cannot be judged, by their
    numbers, `retained`, the files that it retains for juries, and `engines`, with what it judges."""
    if home is None:
        return StatusPart("process", None, "it is not known where its home is: muster init")
    retained, engines = _document(home / RETAINED), _document(home / ENGINES)
    try:
        retention: Facts = {name: int(retained[name]) for name in ("files", "bytes", "oldest")}
        retention |= {name: printable(str(retained[name]), 500) for name in ("where", "problem")}
    except (ValueError, KeyError, TypeError):
        retention = {}
    facts = {
        "log": last_line(log_of(home)),
        "unsubmitted": len(list(home.glob("*/journal/*.json"))),
        "unserved": unserved_pools(home),
        "retained": retention,
        "engines": [printable(str(name), 40) for name in engines] if isinstance(engines, list) else [],
    }
    if runs(home):
        return StatusPart("process", facts)
    seen = last_sign(home)
    why = "it does not run on this machine" if seen else "it was never started on this machine"
    if seen and (message := crash_message(home)):
        why += f"; its last message: {message}"
    return StatusPart("process", facts, why, seen)


def _document(path: Path) -> Any:
    """Return a JSON document that a process writes for us; None if there is none that can be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def unserved_pools(home: Path) -> dict[str, str]:
    """Return why a validator cannot judge pools, by their numbers."""
    unserved = _document(home / UNSERVED)
    entries = unserved.items() if isinstance(unserved, dict) else ()
    return {printable(str(pool), 12): printable(str(why), 300) for pool, why in entries}


def home_of(role: Role, address: str) -> Path | None:
    """Return the home of an operator's or a validator's process, if its profile names a key with this address."""
    profile = find_profile(role)
    if profile is None:
        return None
    process, uses = ("worker", ("node",)) if role == "operator" else ("validator", ("validator", "voter"))
    keys = [key for use, key in profile.named_keys() if use in uses]
    try:
        return profile.home / process if any(address_of(key.keystore) == address for key in keys) else None
    except MusterError:
        return None


def look_at(who: str, role: Role, chain: StatusPart, url: str | None, endpoint: Get[A], **of: str) -> StatusLook:
    """Return what is known besides the chain's facts of an operator's node (`of`: node=ADDRESS), or of a validator's
    seats (seats_of=ADDRESS of their owner)."""
    service, home = look_at_service(url, endpoint, *of.values()), home_of(role, who)
    config = chain.facts.get("config", "") if chain.facts else ""
    around, finished = look_around(url, home, config, **of)
    return StatusLook(who, time.time(), chain, service, look_at_process(home), around, finished)


def look_around(
    url: str | None, home: Path | None = None, config_hash: str = "", **about: Any
) -> tuple[list[Alarm], bool]:
    """Return the alarms that a watch would raise now about machine, service and storage, and whether the pool's run is
    over. The service at `url` is asked `about` node=ADDRESS, seats_of=ADDRESS or owner=True (the trainer), the storage
    by the hash (hex) of the pool's configuration."""
    service = None
    if url:
        with suppress(MusterError):
            digest = bytes.fromhex(config_hash)
            service = diagnose.look_at_service(url, config_hash=digest, allow_private=True, **about)
    facts = diagnose.Facts(
        now=time.time(),
        free={str(home): free_bytes(existing(home))} if home else {},
        process_stalled=stalled(home) if home else "",
        service=service,
    )
    # The answers say in their own way that the service does not hear a process.
    alarms = [alarm for alarm in surroundings(WatchLimits(), facts) if alarm.name != "process_gone"]
    return alarms, service is not None and service.finished


def explain(state: State, sub: Submission, service: str) -> list[str]:
    """Return why a file was refused, in its judges' own words: one line per finding that speaks against it, with the
    seats that report it, or why a document cannot be shown.

    The documents come from strangers by way of the pool's service: their bytes are checked against the hash that the
    opened vote was bound to, and their text is stripped of control characters.
    """
    lane = state.lanes.get((sub.pool, sub.lane))
    reports: dict[str, list[int]] = {}
    for committee in lane.rounds if lane else []:
        for member, (codes, digest) in sorted(committee.reveals.items()):
            if code_at(codes, sub.place):
                for line in _findings(service, digest, sub.sequence):
                    reports.setdefault(line, []).append(committee.seats[member])
    return [f"{line} (seat {', '.join(map(str, sorted(set(seats))))})" for line, seats in reports.items()]


def _findings(service: str, digest: bytes, sequence: int) -> list[str]:
    try:
        with service_objects(service, _DOCUMENT_SECONDS) as objects:
            document = objects(object_key("verdicts", digest), _DOCUMENT_BYTES)
        verdict = BallotDocument.parse(document, digest).on(sequence)
    except MissingObjectError:
        return ["no evidence: its verdict document is not published"]
    except UnreachableError:
        return [f"no evidence: {service} does not answer"]
    except MusterError as error:
        return [f"no evidence: {printable(error.what)}"]
    return [
        printable(f"{finding.check}: {finding.note or finding.code.label}")
        for finding in verdict.findings
        if finding.code not in (Code.ACCEPT, Code.NONE)
    ]


# What each of the three answers


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
    """Answer for an account that owns seats or votes for them."""
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
    """Answer for a pool; about its processes too where the owner's profile is for this pool."""
    chain = look_at_chain(look, (look.pool,), lambda session: _pool_facts(session, look.number(session)))
    facts = chain.facts or {}
    url = (look.pool.url if look.pool else None) or (facts["view"]["service"]["url"] if facts else None)
    service = look_at_service(url, STATUS)
    pool = facts["view"]["pool"] if facts else (look.pool.number if look.pool else None) or 0
    profile = find_profile("owner")
    home = profile.home if profile and profile.pool == pool else None
    around, _ = look_around(url, home, facts.get("config", ""), owner=True)
    looks = {role: look_at_process(home / role) for role in ("orchestrator", "trainer")} if home else {}
    stopped = {role: part.down for role, part in looks.items() if part.down and part.seen}
    missing = "" if service.down else pool_without_evidence(url, facts)
    looked = StatusLook(str(pool), time.time(), chain, service, StatusPart("process"), around=around)
    answers = pool_answers(looked, stopped, missing)
    view = facts["view"] | {"free": facts["free"]} if facts else {}
    details = [views.pool_text(view)] if facts else []
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
