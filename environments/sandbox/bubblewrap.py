"""Full Python in bubblewrap: this machine's own interpreter, fast, and bounded by the clock.

Nothing here is the same on every machine, so no verdict may rest on it where validators must agree: a program that the
clock or the kernel ends has no score at all. Use it for work of one's own, such as filtering a set of problems.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from environments.errors import ScoringUnavailable
from environments.sandbox import guest
from environments.sandbox.program import MIB, Ending, Isolation, SandboxLimits, SandboxOutcome, SandboxProgram
from protocol.errors import ConfigError
from sandbox.choose import choose
from sandbox.launch import IsolatedProcess, Launch
from sandbox.policy import NOBODY, IsolationPolicy, Mode, Mount

_KILLED, _SIGNALLED = 128 + 9, 128
_LEAST_MEMORY, _SCRATCH = 64 * MIB, 16 * MIB
_PYTHON = Path(sys.executable).resolve()


class FullPython:
    """Runs programs for at most `seconds` on the wall, one processor, 32 processes, without network and files."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds

    def __call__(self, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
        """As a pool's `run`, but fuel and calls are not counted. Raises ScoringUnavailable where bubblewrap does not
        work here, or the program was ended by the clock or the kernel."""
        try:
            choose("bubblewrap")
        except ConfigError as error:
            raise ScoringUnavailable(error.what, error.hint) from None
        with tempfile.TemporaryFile() as stdin:
            stdin.write(_request(program) + program.stdin)
            stdin.seek(0)
            launch = Launch(Mode.BUBBLEWRAP, self._policy(limits), _argv())
            with IsolatedProcess(launch, stdin.fileno(), subprocess.PIPE, subprocess.PIPE) as process:
                written, whole = self._read(process, limits.output)
                code = process.wait() if whole else -1
        if not whole:
            return _outcome(Ending.OUTPUT, -1, written)
        if process.timed_out or code == _KILLED:
            raise ScoringUnavailable(
                f"a program in bubblewrap was ended from outside (after at most {self.seconds:.0f} s)",
                "judge it in the reproducible sandbox",
            )
        return _outcome(Ending.CRASHED, -1, written) if code >= _SIGNALLED else _outcome(Ending.EXITED, code, written)

    def _policy(self, limits: SandboxLimits) -> IsolationPolicy:
        mounts = () if _PYTHON.is_relative_to("/usr") else (Mount.same(_PYTHON.parent.parent),)
        return IsolationPolicy(
            memory=max(limits.memory, _LEAST_MEMORY),
            processes=32,
            open_files=64,
            scratch=_SCRATCH,
            seconds=self.seconds,
            mounts=mounts,
            environment={"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
            user=NOBODY if os.geteuid() == 0 else None,
        )

    def _read(self, process: IsolatedProcess, limit: int) -> tuple[list[bytes], bool]:
        """Standard output and errors, and whether that is all: not once they are more than `limit` bytes together."""
        streams = [process.process.stdout, process.process.stderr]
        written = {stream.fileno(): bytearray() for stream in streams if stream}
        waiting, open_ones, end = select.poll(), set(written), time.monotonic() + self.seconds
        for one in open_ones:
            waiting.register(one, select.POLLIN)
        while open_ones and (left := end - time.monotonic()) > 0:
            for one, _ in waiting.poll(left * 1000):
                part = os.read(one, 1 << 16)
                written[one] += part
                if not part:
                    waiting.unregister(one)
                    open_ones.remove(one)
            if sum(map(len, written.values())) > limit:
                return [b"", b""], False
        return [bytes(data) for data in written.values()], True


def _argv() -> tuple[str, ...]:
    script = Path(guest.__file__).read_text() + "\nresume()\n"
    return (str(_PYTHON), "-S", "-P", "-B", "-c", script)


def _request(program: SandboxProgram) -> bytes:
    about = {"source": program.source, "function": program.function, "arguments": program.arguments}
    document = json.dumps(about).encode()
    return b"%8d" % len(document) + document


def _outcome(ending: Ending, code: int, written: list[bytes]) -> SandboxOutcome:
    return SandboxOutcome(ending, code, written[0], written[1], 0, 0, Isolation.BUBBLEWRAP)
