"""Threads that a process cannot do without: one that fails ends its process, which its supervisor starts again.

A process that lives on without its judge, its signer or its heartbeats would look well and earn penalties.
"""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from runtime.entry import Exit
from runtime.presence import keep_crash_message

log = logging.getLogger("muster.process")


class _Death:
    """What follows a thread's death: by default only the log says so, as in commands and tests."""

    follow: Callable[[str], object] = staticmethod(lambda message: None)


def end_with_threads(home: Path) -> None:
    """From now on, end this process with Exit.STALLED when a thread of `essential` fails, and keep why in `home`."""

    def end(message: str) -> None:
        keep_crash_message(home, message)
        logging.shutdown()
        os._exit(Exit.STALLED)

    _Death.follow = end


def essential(name: str, run: Callable[[], object]) -> threading.Thread:
    """Return a daemon thread that calls `run`, not started yet. Whatever `run` raises, even SystemExit, ends the
    process of a daemon; `muster … status` then shows it."""

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            message = f"the thread `{name}` died: {type(error).__name__}: {error}".splitlines()[0]
            log.critical("%s; ending the process", message, exc_info=error)
            _Death.follow(message)

    return threading.Thread(target=guarded, name=name, daemon=True)
