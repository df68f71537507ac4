"""What every `status` answers, in this order, whatever is down: five questions, and which parts could not be asked."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cli.output import clock, seconds
from protocol.errors import printable
from protocol.version import VERSION, behind

QUESTIONS = {
    "seen": "Does the network see me?",
    "doing": "What am I doing?",
    "earned": "What did I earn, and when does it unlock?",
    "refused": "What was refused, and why?",
    "todo": "What must I do?",
}

_SILENT = ("unhealthy", "dead", "waiting")
"""States of `NodeState` in which a service waits for heartbeats."""


@dataclass(frozen=True)
class StatusPart:
    """Something that answers come from: the chain, a pool's service, the process on this machine. `down`: why it cannot
    be asked, empty while it can, and whether it was `silent` then; `seen`: when it was up for the last time (Unix
    seconds), 0 if that is not known."""

    name: str
    down: str = ""
    seen: float = 0.0
    silent: bool = False

    @property
    def since(self) -> str:
        """`down since …`, in words."""
        known = f"since {clock(self.seen)} at the latest" if self.seen else "since before this machine first looked"
        return f"the {self.name} is down {known}: {self.down}"


@dataclass(frozen=True)
class FiveAnswers:
    """Lines for people under each question; every part that was asked, up or down."""

    seen: tuple[str, ...]
    doing: tuple[str, ...]
    earned: tuple[str, ...]
    refused: tuple[str, ...]
    todo: tuple[str, ...]
    parts: tuple[StatusPart, ...] = ()

    def document(self) -> dict[str, Any]:
        """The same five keys for every role, and `down`: part, why, and since when (Unix seconds, null if unknown)."""
        down = [{"part": one.name, "why": one.down, "since": one.seen or None} for one in self.parts if one.down]
        return {key: list(getattr(self, key)) for key in QUESTIONS} | {"down": down}

    def text(self) -> str:
        """Each question with its answers below it."""
        blocks = ["\n".join([question, *_indented(getattr(self, key))]) for key, question in QUESTIONS.items()]
        return "\n\n".join(blocks)


def unknown(chain: StatusPart) -> list[str]:
    """The answer to what the chain alone could have said, where it never did."""
    return [f"unknown: {chain.since}"]


def aged(part: StatusPart, now: float) -> list[str]:
    """What to say of figures that a part gave before it went down, if it is down."""
    return [f"(as of {ago(part.seen, now)}: the {part.name} is down)"] if part.down else []


def heard(service: StatusPart, entry: dict[str, Any] | None, now: float) -> str:
    """What the pool's service knows of somebody, by its `NodeEntry` or `ValidatorEntry`; None: nothing."""
    if service.down:
        return service.since
    if entry is None:
        return "the service: it has never heard of this address"
    return f"the service: {entry['state']}, last heartbeat {ago(entry['last_seen'] or 0, now)}"


def silent(service: StatusPart, entry: dict[str, Any] | None, process: StatusPart) -> list[str]:
    """What to do about a process that runs and is not heard, or a service that is down."""
    if service.down:
        return ["nothing about the service: a running process waits for it; tell the pool's owner if it lasts"]
    if not process.down and (entry is None or entry["state"] in _SILENT):
        return ["the process runs, but the service does not hear it: muster doctor (clock, service)"]
    return []


def behind_service(service: StatusPart, version: str, entry: dict[str, Any] | None) -> list[str]:
    """What to do where what runs has another `version` than the pool's service."""
    ours = printable(entry.get("version") or "", 40) if entry else VERSION
    said = behind(printable(version, 40), ours)
    return [said] if said and not service.down else []


def running(process: StatusPart, facts: dict[str, Any] | None) -> list[str]:
    """What a role's process on this machine does, by its log."""
    if process.down:
        return [process.since]
    said = [f"it said last: {facts['log']}"] if facts and facts["log"] else []
    return ["the process runs on this machine", *said]


def told(service: StatusPart, entry: dict[str, Any] | None) -> list[str]:
    """What it told the service that it does."""
    if service.down or not entry or not entry["phase"]:
        return []
    step = "" if entry["at_step"] is None else f", policy step {entry['at_step']}"
    return [f"it told the service: {printable(entry['phase'])}{step}"]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def ago(when: float, now: float) -> str:
    """`12 s ago`; `never` for 0."""
    return f"{seconds(max(0.0, now - when))} ago" if when else "never"


def at(chain_time: int, chain_now: int) -> str:
    """A moment in chain time for people: the clock, and how long until then."""
    left = chain_time - chain_now
    return f"{clock(time.time() + left)} (in {seconds(left)})" if left > 0 else "now"
