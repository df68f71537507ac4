"""What is wrong around a process and only a look at machine, service and storage tells: the alarms of a watch, for
those who run none."""

import time
from dataclasses import dataclass
from pathlib import Path

from cli.answers import StatusPart
from protocol.errors import ConfigError, UnreachableError, printable
from runtime.diagnose import Alarm, Facts, ServiceFacts, WatchLimits, free_bytes, surroundings
from runtime.presence import stalled

_SAID_ELSEWHERE = ("version_behind", "process_gone")


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


def look_around(at: Around, service: StatusPart) -> tuple[Alarm, ...]:
    """What a watch would raise now. A service that was silent when it was asked a moment ago is not asked again."""
    from cli.hardware import existing

    found, storage_error = _ask(at) if at.url and not service.silent else (None, "")
    free = {str(at.home): free_bytes(existing(at.home))} if at.home else {}
    facts = Facts(
        now=time.time(),
        free=free,
        process_stalled=stalled(at.home) if at.home else "",
        service=found,
        storage_error=storage_error,
    )
    return tuple(one for one in surroundings(WatchLimits(), facts) if one.name not in _SAID_ELSEWHERE)


def _ask(at: Around) -> tuple[ServiceFacts | None, str]:
    """What the service says, and why its storage does not answer."""
    from runtime.diagnose import ServiceView

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


def chores(alarms: tuple[Alarm, ...]) -> list[str]:
    """What is wrong and its cure, a line each; services are strangers."""
    return [printable(f"{alarm.what}: {alarm.cure}", 400) for alarm in alarms]
