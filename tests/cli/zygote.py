"""Runs `muster` commands in forks of a process that has imported everything already.

Some hundred commands would otherwise spend most of their time importing the same modules. Each command still has its
own process, arguments, environment and standard streams; some tests run the installed executable itself.
"""

import multiprocessing
import os
import sys
import threading
import traceback
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

# A server of its own: other tests of this process have one with other imports.
_SERVER = forkserver.ForkServer()
_SERVER.set_forkserver_preload(["tests.cli.preload"])
_LOCK = threading.Lock()


def run(argv: list[str], env: dict[str, str], stdin: str, timeout: float) -> tuple[int, str, str]:
    """(exit code, standard output, standard error); a command that takes longer than `timeout` seconds is killed. Any
    number of threads may run commands at once."""
    with TemporaryDirectory() as name:
        streams = [Path(name) / stream for stream in ("in", "out", "err")]
        for path, text in zip(streams, (stdin, "", ""), strict=True):
            path.write_text(text)
        child = multiprocessing.get_context("forkserver").Process(target=_command, args=(argv, env, streams))
        with _LOCK, mock.patch.object(forkserver, "connect_to_new_process", _SERVER.connect_to_new_process):
            child.start()
        child.join(timeout)
        child.kill()
        child.join()
        assert child.exitcode is not None
        out, err = (path.read_text(errors="replace") for path in streams[1:])
        return child.exitcode, out, err


def _command(argv: list[str], env: dict[str, str], streams: list[Path]) -> None:
    """In the child: `muster` with these arguments."""
    from cli.main import main

    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDWR), number)
    os.environ.clear()
    os.environ.update(env)
    sys.argv, sys.stdin, sys.stdout, sys.stderr = ["muster", *argv], open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    sys.modules["__main__"].__package__ = None  # usage errors name the program, as that of a script
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
