"""A command as a person runs it: in a terminal, its questions answered with yes."""

import os
import pty
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

_QUESTION = re.compile(rb"\[y/N\]: ?$")


class TerminalCommand:
    """Runs at once. `log` gets what the terminal shows."""

    def __init__(self, line: str, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        ours, theirs = pty.openpty()
        self.line, self._log, self._terminal = line, log, ours
        self.process = subprocess.Popen(
            shlex.split(line), cwd=folder, env=dict(environment), stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        threading.Thread(target=self._read, name="terminal", daemon=True).start()

    def shown(self) -> str:
        """What the terminal shows so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def wait(self, seconds: float) -> int:
        """Its exit code. Raises subprocess.TimeoutExpired."""
        return self.process.wait(seconds)

    def stop(self, seconds: float = 60.0) -> None:
        """As Ctrl-C would; what does not end in time is killed."""
        if self.process.poll() is None:
            self.process.send_signal(2)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)

    def _read(self) -> None:
        with self._log.open("ab") as out:
            last = b""
            while True:
                try:
                    data = os.read(self._terminal, 65536)
                except OSError:  # the other end is closed: the command ended
                    break
                if not data:
                    break
                out.write(data)
                out.flush()
                last = (last + data)[-200:]
                if _QUESTION.search(last):
                    time.sleep(0.2)
                    os.write(self._terminal, b"y\n")
                    last = b""
        os.close(self._terminal)
