"""Runs `muster` commands in forks of a process that has imported everything already.

Some hundred commands would otherwise spend most of their time importing the same modules. Each command still has its
own process, arguments, environment and standard streams; some tests run the installed executable itself.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import cli

ROOT = Path(__file__).parents[2]
NEEDED = ("calibration.measuring", "chain.deploy", "engines.hf", "environments.gym", "reasoning_gym")
"""What commands import while they run, and takes long; beside `cli` itself and the roles."""
ROLES = ("orchestrator", "trainer", "validator", "worker")


class Zygote:
    """The parent's side. Any number of threads may run commands at once."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        argv = [sys.executable, "-m", "tests.cli.zygote", str(theirs.fileno())]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(argv, cwd=ROOT, env=env, pass_fds=[theirs.fileno()])
        theirs.close()

    def run(self, argv: list[str], env: dict[str, str], stdin: str, timeout: float) -> tuple[int, str, str]:
        """(exit code, standard output, standard error); a command that takes longer than `timeout` seconds is
        killed."""
        ours, theirs = socket.socketpair()
        with ours:
            socket.send_fds(self._control, [b"!"], [theirs.fileno()])
            theirs.close()
            ours.sendall(json.dumps([argv, env, stdin, timeout]).encode() + b"\n")
            code, out, err = json.loads(b"".join(iter(lambda: ours.recv(1 << 16), b"")))
        return code, out, err

    def stop(self) -> None:
        self._control.close()
        self._process.wait(10)


@cache
def shared_zygote() -> Zygote:
    """One for all tests of this process."""
    made = Zygote()
    atexit.register(made.stop)
    return made


def serve(control: socket.socket) -> None:
    """A child for each request, until the other side is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        asked, (*given,), _, _ = socket.recv_fds(control, 1, 1)
        if not asked:
            return
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answer(socket.socket(fileno=given[0]))
            os._exit(0)
        os.close(given[0])


def answer(connection: socket.socket) -> None:
    """Read a request and run its command."""
    argv, env, stdin, timeout = json.loads(connection.makefile("rb").readline())
    connection.sendall(json.dumps(run(argv, env, stdin, timeout)).encode())


def run(argv: list[str], env: dict[str, str], stdin: str, timeout: float) -> tuple[int, str, str]:
    """Fork and wait."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        child = os.fork()
        if child == 0:
            for number, file in enumerate((given, out, err)):
                os.dup2(file.fileno(), number)
            os._exit(command(argv, env))
        code = wait(child, timeout)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return code, texts[0], texts[1]


def command(argv: list[str], env: dict[str, str]) -> int:
    """In the child: `muster` with these arguments; returns the exit code."""
    from cli.main import main

    os.environ.clear()
    os.environ.update(env)
    sys.argv, sys.stdin, code = ["muster", *argv], open(0), 0  # noqa: SIM115
    sys.modules["__main__"].__package__ = None  # usage errors name the program, as that of a script
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def wait(child: int, timeout: float) -> int:
    deadline = time.monotonic() + timeout
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, 9)
        time.sleep(0.005)


def preload(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # or every child's collector would copy all of it


if __name__ == "__main__":
    commands = [found.name for found in pkgutil.walk_packages(cli.__path__, "cli.")]
    preload([*commands, *NEEDED, *(f"{role}.main" for role in ROLES)])
    serve(socket.socket(fileno=int(sys.argv[1])))
