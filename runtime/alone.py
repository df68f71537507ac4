"""Run one function in a process of its own.

An engine keeps global state and memory; both are gone when its process ends.
"""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from protocol.errors import MusterError, first_line
from protocol.files import die_with_parent
from runtime.entry import start_logging

P = ParamSpec("P")
R = TypeVar("R")
_END_SECONDS = 10.0


def alone(what: str, seconds: float, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what `function` returns, or raise what it raises, in a new process with this one's environment. `what`
    names it in errors. Raises MusterError if it takes more than `seconds`, or its process dies."""
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
