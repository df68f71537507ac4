"""What status commands ask: chain, pool's service and process, so that each answers or is reported down since when.

The facts about machine, service and storage are those of `muster watch` (`runtime.diagnose`).
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
from cli.diagnose.answers import Facts, StatusLook, StatusPart
from cli.hardware import existing
from cli.options import Reading
from cli.pool.document import service_objects
from cli.profile import Role, find_profile
from cli.session import NotKnownError, Session, ask_service, look_for_chain
from protocol.api.endpoints import Get
from protocol.encoding import parse_json
from protocol.errors import MusterError, UnreachableError, printable
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
        kept: Facts = {name: int(retained[name]) for name in ("files", "bytes", "oldest")}
        kept |= {name: printable(str(retained[name]), 500) for name in ("where", "problem")}
    except (ValueError, KeyError, TypeError):
        kept = {}
    facts = {
        "log": last_line(log_of(home)),
        "unsubmitted": len(list(home.glob("*/journal/*.json"))),
        "unserved": unserved_pools(home),
        "retained": kept,
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
