"""Runs `muster` commands in forks of a process that has imported everything already.

A story of a hundred commands would otherwise spend most of its time importing the same modules. Each command still has
its own process, arguments, environment and standard streams; other tests run the installed executable itself.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Zygote:
    """The parent's side: `run` returns (exit code, standard output, standard error)."""

    def __init__(self) -> None:
        argv = [sys.executable, "-m", "tests.cli.zygote"]
        self._process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, argv: list[str], env: dict[str, str], stdin: str, timeout: float) -> tuple[int, str, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([argv, env, stdin, timeout]) + "\n")
        self._process.stdin.flush()
        code, out, err = json.loads(self._process.stdout.readline())
        return code, out, err

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


def serve(argv: list[str], env: dict[str, str], stdin: str, timeout: float) -> tuple[int, str, str]:
    """Fork, run, wait; a command that takes longer than `timeout` seconds is killed."""
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


def preload() -> None:
    """What the commands of the story import, chain and keys above all."""
    for module in (
        "authorisations",
        "evidence",
        "main",
        "plan",
        "session",
        "terms",
        "views.nodes",
        "views.pools",
        "views.seats",
    ):
        importlib.import_module(f"cli.{module}")
    importlib.import_module("chain.deploy")
    importlib.import_module("chain.follower")
    importlib.import_module("environments.gym.environment")


if __name__ == "__main__":
    preload()
    for line in sys.stdin:
        request: list[Any] = json.loads(line)
        print(json.dumps(serve(*request)), flush=True)
