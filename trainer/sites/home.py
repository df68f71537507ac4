"""The home folder of a process of a run: it is one run's, and one process's at a time."""

from contextlib import ExitStack
from pathlib import Path

from protocol.errors import ConfigError
from protocol.files import locked, write_atomic
from protocol.sites.run import SitesRun

_LOCK, _RUN, _LOCK_SECONDS = "site.lock", "run.sha256", 10.0


def claim_home(home: Path, run: SitesRun) -> None:
    """From now on it is this run's. Raises ConfigError where it is another's: states of both would be taken for one
    another's."""
    mark = home / _RUN
    if not mark.exists():
        write_atomic(mark, run.digest.encode())
    elif mark.read_bytes() != run.digest.encode():
        raise ConfigError(f"{home} is the home of another run than {run.name}", "name another home, or that run")


def hold_home(home: Path) -> ExitStack:
    """While it is not closed no other process works there. Raises MusterError where one does."""
    held = ExitStack()
    held.enter_context(locked(home / _LOCK, f"the other process in {home} to end", _LOCK_SECONDS))
    return held
