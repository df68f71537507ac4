"""How a process starts from a command line, and how it ends: one line for what a person can mend, an exit code.

A thread that a process cannot do without ends it when it fails, and its supervisor starts it again: a process that
lives on without its judge, its signer or its heartbeats would look well and earn penalties.
"""

import argparse
import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from enum import IntEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

from protocol.errors import ConfigError, MusterError, first_line
from protocol.files import die_with_parent
from runtime.home_status import keep_crash_message

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
    """Run a role's process from the file that `--config` names, as supervisors do: `python -m worker.main`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True, help="configuration file, JSON or TOML")
    config = parser.parse_args().config

    def main() -> None:
        run(config)

    run_main(main)


# --- Threads that a process cannot do without


class _Death:
    """What follows the death of an essential thread: by default only the log says so, as in commands and tests."""

    follow: Callable[[str], object] = staticmethod(lambda message: None)


def end_with_threads(home: Path | None) -> None:
    """From now on, end this process with Exit.STALLED when a thread of `essential` fails, and keep why in `home`."""

    def end(message: str) -> None:
        if home is not None:
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
            logging.getLogger("muster.process").critical("%s; ending the process", message, exc_info=error)
            _Death.follow(message)

    return threading.Thread(target=guarded, name=name, daemon=True)


# --- A function in a process of its own


P = ParamSpec("P")
R = TypeVar("R")
_END_SECONDS = 10.0


def alone(what: str, seconds: float, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what `function` returns, or raise what it raises, in a new process with this one's environment: an engine
    keeps global state and memory, and both are gone with its process. `what` names it in errors. Raises MusterError if
    it takes more than `seconds`, or its process dies."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_result, args=(sender, os.getpid(), function, args, kwargs))
    child.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise MusterError(f"{what} took more than {seconds:.0f} s", "use a faster engine or device")
        result, error = receiver.recv()
    except EOFError:
        child.join(_END_SECONDS)
        hint = "its messages are above; look for room in memory, and at the engine's installation"
        raise MusterError(f"{what} ended early (exit code {child.exitcode})", hint) from None
    finally:
        # Python takes a process that used vLLM apart for many seconds, and its answer is here.
        child.kill()
        child.join(_END_SECONDS)
        receiver.close()
    if error is not None:
        raise error
    answer: R = result
    return answer


def _send_result(sender: Connection, parent: int, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Send (result, None) or (None, error) from the child; what it prints is no part of the command's result."""
    die_with_parent(parent)
    os.dup2(2, 1)
    start_logging()
    answer: tuple[Any, MusterError | None]
    try:
        answer = function(*args, **kwargs), None
    except MusterError as error:
        answer = None, error
    except OSError as error:
        answer = None, MusterError(first_line(error), "check the path, its permissions and the room on its disk")
    sender.send(answer)
    sender.close()
