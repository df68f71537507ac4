"""What status commands ask: chain, pool's service and process, so that each answers or is reported down since when.

The facts about machine, service and storage are those of `muster watch` (`runtime.diagnose`).
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cli.answers import StatusPart
from cli.hardware import existing
from cli.session import AnswersOtherwiseError, NotKnownError, Session, ask_service, look_for_chain
from protocol.api.endpoints import HEALTH, OBJECTS, Get
from protocol.encoding import parse_json
from protocol.errors import ConfigError, MusterError, UnreachableError, printable
from protocol.files import user_cache, write_atomic
from runtime.diagnose import Alarm, Facts, ServiceFacts, ServiceView, WatchLimits, free_bytes, surroundings
from runtime.presence import crash_message, last_line, last_sign, runs, stalled

if TYPE_CHECKING:
    from chain.indexer.records import Submission
    from chain.indexer.state import State
    from cli.options import Reading

log = logging.getLogger("muster.cli")
A = TypeVar("A")
_DOCUMENT_SECONDS, _DOCUMENT_BYTES = 10.0, 4 << 20


class LastSeen:
    """What a part of the network answered last, kept in the user's cache, so that status commands can say since when it
    is down and what was true before. `of` names question and part. A cache that cannot be used costs no more."""

    def __init__(self, *of: object) -> None:
        name = hashlib.sha256(json.dumps([str(one) for one in of]).encode()).hexdigest()[:32]
        self._path = user_cache("status") / f"{name}.json"

    def keep(self, facts: dict[str, Any]) -> None:
        """It answered now, with these facts."""
        try:
            write_atomic(self._path, json.dumps({"time": time.time(), "facts": facts}).encode(), 0o600)
        except OSError as error:
            log.info("cannot remember %s: %s", self._path, error)

    def recall(self) -> tuple[float, dict[str, Any] | None]:
        """Return (Unix seconds, facts) of its last answer; (0, None) if there was none."""
        try:
            kept = parse_json(self._path.read_bytes())
            return float(kept["time"]), dict(kept["facts"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0, None


@dataclass(frozen=True)
class Look:
    """What a part answered: now, or when it was up for the last time; None if it never answered from here."""

    part: StatusPart
    facts: dict[str, Any] | None


def look_at_chain(look: "Reading", of: tuple[object, ...], facts: Callable[[Session], dict[str, Any]]) -> Look:
    """Return `facts` of the chain that `look` names; `of` says what they are about. Raises ConfigError for what is no
    outage: a missing file, another chain."""
    seen = LastSeen("chain", look.deployment and look.deployment.absolute(), *of)
    try:
        look_for_chain(look.deployment, look.rpc)
        found = facts(look.open())
    except UnreachableError as error:
        when, old = seen.recall()
        return Look(StatusPart("chain", error.what, when), old)
    seen.keep(found)
    return Look(StatusPart("chain"), found)


def look_at_service(url: str | None, endpoint: "Get[A]", of: str = "") -> Look:
    """Return a public document of a pool's service as JSON; `of` fills the endpoint's path."""
    if not url:
        why = "no URL is named (--pool URL), and its owner announced none"
        return Look(StatusPart("service", why), None)
    seen = LastSeen("service", url, endpoint.path, of)
    if of:
        before, _, after = endpoint.path.partition("{")
        endpoint = replace(endpoint, path=before + of + after.partition("}")[2])
    try:
        answer = ask_service(url, endpoint)
    except NotKnownError:
        return Look(StatusPart("service"), None)
    except MusterError as error:
        when, old = seen.recall()
        silent = not isinstance(error, AnswersOtherwiseError)
        return Look(StatusPart("service", printable(error.what, 300), when, silent), old)
    found: dict[str, Any] = endpoint.answer.dump_python(answer, mode="json")
    seen.keep(found)
    return Look(StatusPart("service"), found)


def version_of(url: str | None, service: StatusPart) -> str:
    """Return the version of a pool's service, if that is up; else empty."""
    health = look_at_service(url, HEALTH).facts if url and not service.down else None
    return str(health["version"]) if health else ""


def look_at_process(home: Path | None, role: str) -> Look:
    """Look at the process of a role on this machine, by its home. Facts: `log`, its newest line; `unsubmitted`,
    finished files that wait to be handed in; of a validator `unserved`, why pools cannot be judged, by their
    numbers, `retained`, the files that it retains for juries, and `engines`, with what it judges."""
    if home is None:
        return Look(StatusPart("process", "it is not known where its home is: muster init"), None)
    path = home / "logs" / f"{role}.log"
    facts = {
        "log": last_line(path),
        "unsubmitted": len(list(home.glob("*/journal/*.json"))),
        "unserved": unserved_pools(home),
        "retained": _retained(home),
        "engines": _engines(home),
    }
    if runs(home):
        return Look(StatusPart("process"), facts)
    seen = last_sign(home, path)
    why = "it does not run on this machine" if seen else "it was never started on this machine"
    if seen and (message := crash_message(home)):
        why += f"; its last message: {message}"
    return Look(StatusPart("process", why, seen), facts)


def _document(path: Path) -> Any:
    """Return a JSON document that a process writes for us; None if there is none that can be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def unserved_pools(home: Path) -> dict[str, str]:
    """Return why a validator cannot judge pools, by their numbers; nothing if it says nothing readable."""
    from validator.config import UNSERVED

    found = _document(home / UNSERVED)
    entries = found.items() if isinstance(found, dict) else ()
    return {printable(str(pool), 12): printable(str(why), 300) for pool, why in entries}


def _retained(home: Path) -> dict[str, Any]:
    from validator.config import RETAINED

    found = _document(home / RETAINED)
    try:
        counts: dict[str, Any] = {name: int(found[name]) for name in ("files", "bytes", "oldest")}
        return counts | {name: printable(str(found[name]), 500) for name in ("where", "problem")}
    except (ValueError, KeyError, TypeError):
        return {}


def _engines(home: Path) -> list[str]:
    from validator.config import ENGINES

    found = _document(home / ENGINES)
    return [printable(str(one), 40) for one in found] if isinstance(found, list) else []


@dataclass(frozen=True)
class Around:
    """What to look at: the pool's service at `url`, which is asked about `node` or the seats of `seats_of`, or with
    `owner` about the trainer; the storage, by the hash (hex) of the pool's configuration; the process's `home`."""

    url: str | None = None
    node: str | None = None
    seats_of: str | None = None
    owner: bool = False
    config_hash: str = ""
    home: Path | None = None


@dataclass(frozen=True)
class Surroundings:
    """The alarms that a watch would raise now about machine, service and storage, and whether the pool's run is
    over."""

    alarms: tuple[Alarm, ...] = ()
    finished: bool = False


def look_around(at: Around, service: StatusPart) -> Surroundings:
    """Look at machine, service and storage. A service that was silent a moment ago is not asked again."""
    found, storage_error = _ask(at) if at.url and not service.silent else (None, "")
    free = {str(at.home): free_bytes(existing(at.home))} if at.home else {}
    facts = Facts(
        now=time.time(),
        free=free,
        process_stalled=stalled(at.home) if at.home else "",
        service=found,
        storage_error=storage_error,
    )
    elsewhere = ("version_behind", "process_gone")  # the answers say these in their own way
    alarms = (alarm for alarm in surroundings(WatchLimits(), facts) if alarm.name not in elsewhere)
    return Surroundings(tuple(alarms), found is not None and found.finished)


def _ask(at: Around) -> tuple[ServiceFacts | None, str]:
    """Return what the service says, and why its storage does not answer."""
    try:
        view = ServiceView(at.url or "", at.node, at.seats_of, at.owner, allow_private=True)
    except ConfigError:
        return None, ""
    try:
        found = view.look()
        return found, view.storage_error(bytes.fromhex(at.config_hash)) if at.config_hash and found.ready else ""
    except UnreachableError:
        return None, ""
    finally:
        view.close()


def explain(state: "State", sub: "Submission", service: str) -> list[str]:
    """Return why a file was refused, in its judges' own words: one line per finding that speaks against it, with the
    seats that report it, or why a document cannot be shown.

    The documents come from strangers by way of the pool's service: their bytes are checked against the hash that the
    opened vote was bound to, and their text is stripped of control characters.
    """
    from protocol.verdict import code_at

    lane = state.lanes.get((sub.pool, sub.lane))
    reports: dict[str, list[int]] = {}
    for committee in lane.rounds if lane else []:
        for member, (codes, digest) in sorted(committee.reveals.items()):
            if code_at(codes, sub.place):
                for line in _findings(service, digest, sub.sequence):
                    reports.setdefault(line, []).append(committee.seats[member])
    return [f"{line} (seat {', '.join(map(str, sorted(set(seats))))})" for line, seats in reports.items()]


def _findings(service: str, digest: bytes, sequence: int) -> list[str]:
    from protocol.verdict import BallotDocument, Code
    from storage.keys import MissingObjectError, object_key
    from storage.transfers import HttpObjects

    # Whoever asks sees the answer and nobody else does, so the service may point to wherever its bucket is.
    objects = HttpObjects([service.rstrip("/") + OBJECTS], timeout=_DOCUMENT_SECONDS, allow_private=True)
    try:
        document = objects(object_key("verdicts", digest), _DOCUMENT_BYTES)
        verdict = BallotDocument.parse(document, digest).on(sequence)
    except MissingObjectError:
        return ["no evidence: its verdict document is not published"]
    except UnreachableError:
        return [f"no evidence: {service} does not answer"]
    except MusterError as error:
        return [f"no evidence: {printable(error.what)}"]
    finally:
        objects.close()
    return [
        printable(f"{finding.check}: {finding.note or finding.code.label}")
        for finding in verdict.findings
        if finding.code not in (Code.ACCEPT, Code.NONE)
    ]
