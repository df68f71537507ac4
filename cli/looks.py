"""Asking chain, service and process for `status`, so that each answers or is said to be down since when."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cli.answers import StatusPart
from cli.last_seen import LastSeen
from protocol.errors import MusterError, UnreachableError, printable
from runtime.presence import last_line, last_said, last_sign, runs

if TYPE_CHECKING:
    from cli.options import Reading
    from cli.session import Session
    from protocol.api.endpoints import Get

A = TypeVar("A")


@dataclass(frozen=True)
class Look:
    """What a part said: now, or when it was up for the last time; None if it never answered from here."""

    part: StatusPart
    facts: dict[str, Any] | None


def look_at_chain(look: "Reading", of: tuple[object, ...], facts: "Callable[[Session], dict[str, Any]]") -> Look:
    """`facts` of the chain that `look` names; `of` says what they are about. Raises ConfigError for what is no outage:
    a missing file, another chain."""
    from cli.session import look_for_chain

    kept = LastSeen("chain", look.deployment and look.deployment.absolute(), *of)
    try:
        look_for_chain(look.deployment, look.rpc)
        found = facts(look.open())
    except UnreachableError as error:
        seen, old = kept.recall()
        return Look(StatusPart("chain", error.what, seen), old)
    kept.keep(found)
    return Look(StatusPart("chain"), found)


def look_at_service(url: str | None, endpoint: "Get[A]", of: str = "") -> Look:
    """A public document of a pool's service as JSON; `of` fills the endpoint's path."""
    from cli.doctor.services import AnswersOtherwiseError, NotKnownError, ask_orchestrator

    if not url:
        why = "no URL is named (--orchestrator), and its owner announced none"
        return Look(StatusPart("service", why), None)
    kept = LastSeen("service", url, endpoint.path, of)
    try:
        answer = ask_orchestrator(url, filled(endpoint, of) if of else endpoint)
    except NotKnownError:
        return Look(StatusPart("service"), None)
    except MusterError as error:
        seen, old = kept.recall()
        silent = not isinstance(error, AnswersOtherwiseError)
        return Look(StatusPart("service", printable(error.what, 300), seen, silent), old)
    found: dict[str, Any] = endpoint.answer.dump_python(answer, mode="json")
    kept.keep(found)
    return Look(StatusPart("service"), found)


def version_of(url: str | None, service: StatusPart) -> str:
    """The version of a pool's service, if that is up; else empty."""
    from protocol.api.endpoints import HEALTH

    health = look_at_service(url, HEALTH).facts if url and not service.down else None
    return str(health["version"]) if health else ""


def filled(endpoint: "Get[A]", value: str) -> "Get[A]":
    """The endpoint with the variable of its path replaced."""
    from dataclasses import replace

    before, _, after = endpoint.path.partition("{")
    return replace(endpoint, path=before + value + after.partition("}")[2])


def look_at_process(home: Path | None, role: str) -> Look:
    """The process of a role on this machine, by its home. Facts: `log`, its newest line; `unsubmitted`, finished files
    that wait to be handed in; `unserved`, why pools cannot be judged, by their numbers; `kept`, what a validator
    says of the files that it keeps for juries, empty if it says nothing; `engines`, with what it judges, and after that
    with what else files of node cases."""
    if home is None:
        return Look(StatusPart("process", "it is not known where its home is: muster init"), None)
    log = home / "logs" / f"{role}.log"
    unsubmitted = len(list(home.glob("*/journal/*.json")))
    facts = {"log": last_line(log), "unsubmitted": unsubmitted, "unserved": unserved_pools(home), "kept": _kept(home)}
    facts["engines"] = _engines(home)
    if runs(home):
        return Look(StatusPart("process"), facts)
    seen = last_sign(home, log)
    why = "it does not run on this machine" if seen else "it was never started on this machine"
    if seen and (said := last_said(home)):
        why += f"; it said last: {said}"
    return Look(StatusPart("process", why, seen), facts)


def unserved_pools(home: Path) -> dict[str, str]:
    """What a validator says of pools that it cannot judge; nothing if it says nothing, or nothing readable."""
    from validator.config import UNSERVED

    try:
        found = json.loads((home / UNSERVED).read_bytes())
    except (OSError, ValueError):
        return {}
    entries = found.items() if isinstance(found, dict) else ()
    return {printable(str(pool), 12): printable(str(why), 300) for pool, why in entries}


def _kept(home: Path) -> dict[str, Any]:
    from validator.config import RETAINED

    try:
        found = json.loads((home / RETAINED).read_bytes())
        counts: dict[str, Any] = {name: int(found[name]) for name in ("files", "bytes", "oldest")}
        return counts | {name: printable(str(found[name]), 500) for name in ("where", "problem")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _engines(home: Path) -> list[str]:
    from validator.config import ENGINES

    try:
        found = json.loads((home / ENGINES).read_bytes())
    except (OSError, ValueError):
        return []
    return [printable(str(one), 40) for one in found] if isinstance(found, list) else []
