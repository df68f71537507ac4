"""How a process of ours starts from a command line, and how it ends: one line for what a person can mend, an exit code.

`python -m worker.main --config FILE` and its like run a role without the `muster` command; supervisors use them.
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

from protocol.errors import ConfigError, MusterError

log = logging.getLogger("muster")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class Exit(IntEnum):
    """Exit codes of commands and processes. `meaning` is what the command reference says of each."""

    DONE = 0, "Done. A process was asked to stop, or its work is over."
    FOUND_WRONG = 1, "A check found something wrong: a verdict differs, a file is damaged, a prerequisite is missing."
    REFUSED = 2, "Not done: a wrong option or file, a service out of reach, a contract's refusal, no confirmation."
    EJECTED = 3, "Of a worker: its node was ejected or removed. Of a trainer: a rank died; start the process again."
    STOPPED = 4, "Of a trainer: stopped as asked before the last policy step; start it again to continue."
    UNSTABLE = 5, "Of a trainer: a guard stopped the run before a bad policy step was published."
    STALLED = 6, "Of a process: its device stopped answering, or a thread that it needs died; start it again."
    INTERRUPTED = 130, "Interrupted by Ctrl-C."

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "Exit":
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


def start_logging() -> None:
    """Log to standard error from the level in MUSTER_LOG (INFO by default). Raises ConfigError for another word."""
    level = os.environ.get("MUSTER_LOG", "INFO").upper()
    if level not in LEVELS:
        raise ConfigError(f"MUSTER_LOG is {level}", f"set it to one of {', '.join(LEVELS)}")
    logging.basicConfig(
        level=level,
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)


def run_main(main: Callable[[], int | None], name: str = "muster", interrupted: str = "interrupted") -> NoReturn:
    """Run `main` and exit with the code it returns, or 0 for None.

    A MusterError, or an OSError about a file, becomes one line on standard error and exit code 2. Ctrl-C prints
    `interrupted` and exits with 130. Any other error is a bug and keeps its traceback.
    """
    try:
        start_logging()
        code = main() or Exit.DONE
    except MusterError as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        code = Exit.REFUSED
    except OSError as error:
        if error.filename is None:
            raise
        log.debug("what happened", exc_info=True)
        what = f"cannot use {os.fsdecode(error.filename)}: {error.strerror}"
        print(f"{name}: {what}; check the path, its permissions and the room on its disk", file=sys.stderr, flush=True)
        code = Exit.REFUSED
    except KeyboardInterrupt:
        print(f"{name}: {interrupted}", file=sys.stderr, flush=True)
        code = Exit.INTERRUPTED
    sys.exit(int(code))


def run_role(run: Callable[[Path], object]) -> NoReturn:
    """Run a role's process from the file that `--config` names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True, help="configuration file, JSON or TOML")
    config = parser.parse_args().config

    def main() -> None:
        run(config)

    run_main(main)
