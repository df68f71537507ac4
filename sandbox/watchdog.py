"""A process that cleans up after the launcher of a sandbox, however that ended: the launcher holds its standard input,
where a line means that all is done. Standard library only: it starts with every sandbox."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_TRIES = (0.0, 0.5, 2.0)  # an engine whose client was killed may still be making the container
_COMMAND_SECONDS = 30.0
_GROUP_SECONDS = 5.0


class Watchdog:
    """`command` is run, unless it is empty, and `folders` of cgroups removed if this process ends before it calls
    `dismiss`."""

    def __init__(self, command: Sequence[str], folders: Sequence[Path]) -> None:
        order = json.dumps({"command": command, "folders": list(map(str, folders))})
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sandbox.watchdog", order],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self, done: bool = True) -> None:
        """End it: nothing is left to clean up; unless `done`, it cleans up now, and nobody waits for it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"done\n" if done else b"")
            self._process.stdin.close()
        if done:
            self._process.wait(_COMMAND_SECONDS)


def remove_folders(folders: list[Path]) -> None:
    """Kill the processes in cgroups and remove these, for five seconds at most."""
    end = time.monotonic() + _GROUP_SECONDS
    while folders := [folder for folder in folders if folder.exists()]:
        for folder in folders:
            with suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
            with suppress(OSError):
                folder.rmdir()
        if time.monotonic() > end:
            return
        time.sleep(0.02)


def main(order: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.readline():
        return
    wanted = json.loads(order)
    for pause in _TRIES if wanted["command"] else ():
        time.sleep(pause)
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(wanted["command"], capture_output=True, timeout=_COMMAND_SECONDS, check=False)
    remove_folders(list(map(Path, wanted["folders"])))


if __name__ == "__main__":
    main(sys.argv[1])
