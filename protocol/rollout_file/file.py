"""Write and read rollout files. `read` is defined for any bytes: a hostile file raises MalformedFile.

The Parquet library runs in a reader process, which forks a confined child for each file (`reader.py`). This side keeps
the process, respawns it, and judges how a file's child ended.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import protocol
from protocol.errors import MusterError, first_line
from protocol.rollout_file import rows
from protocol.rollout_file.rows import Limits, MalformedFile, Rollout, RolloutHeader, check_rollouts, decode_row

_SLACK_SECONDS = 60.0  # wall time beyond the CPU limit before our own machine, not the file, is blamed
_MAGIC = b"PAR1"
_MAX_FOOTER_BYTES = 1 << 18


class Sandbox:
    """One reader process, started on first use; one file at a time, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def parse(self, data: bytes, limits: Limits) -> list[bytes]:
        """Read the header and row bytes of a file. Raises MalformedFile, or MusterError if the reader failed twice."""
        for _ in range(2):
            with self._lock:
                try:
                    status, body = self._exchange(data, limits)
                except OSError as error:
                    self.close()
                    failure: Exception = error
                    continue
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                failure = OSError("it was killed")  # the out-of-memory killer or an operator, not our limits
            elif body[:1] != bytes([rows.CONFINED]):
                failure = OSError(body.decode("utf-8", "replace") or "it ended early")
            else:
                return _judge(status, body[1:], limits)
        raise MusterError(f"the rollout reader failed twice: {first_line(failure)}", "see this machine's load")

    def _exchange(self, data: bytes, limits: Limits) -> tuple[int, bytes]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        fields = json.dumps(asdict(limits)).encode()
        # Killing the reader ends every read and write below, however far it has come.
        late = threading.Timer(limits.cpu_seconds + _SLACK_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        try:
            process.stdin.write(rows.REQUEST.pack(len(fields), len(data)) + fields + data)
            process.stdin.flush()
            head = process.stdout.read(rows.ANSWER.size)
            status, size = rows.ANSWER.unpack(head) if len(head) == rows.ANSWER.size else (0, 1)
            body = process.stdout.read(size)
        finally:
            late.cancel()
        if len(body) < size:
            raise OSError("it ended")
        return status, body

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            root = str(Path(protocol.__file__).parents[1])
            environment = {"PYTHONPATH": root, "PATH": os.defpath, "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "protocol.rollout_file.reader"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        return self._process

    def close(self) -> None:
        """End the reader and whatever child it has."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):  # a request that the reader did not live to take
                    stream.close()


def _judge(status: int, body: bytes, limits: Limits) -> list[bytes]:
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) == signal.SIGXCPU:
            raise MalformedFile(f"takes more than {limits.cpu_seconds} s of CPU to unpack")
        raise MalformedFile(f"crashes the Parquet reader ({signal.Signals(os.WTERMSIG(status)).name})")
    if not body or body[0] not in (rows.OK, rows.REFUSED):
        raise MalformedFile(f"takes more than {limits.memory_bytes >> 20} MiB to unpack")
    if body[0] == rows.REFUSED:
        raise MalformedFile(body[1:].decode("utf-8", "replace"))
    return list(rows.unpack_body(body[1:]))


SANDBOX = Sandbox()
atexit.register(SANDBOX.close)


def write(header: RolloutHeader, rollouts: Sequence[Rollout]) -> bytes:
    """Encode a rollout file; the bytes follow from the arguments and the Parquet library's version alone. Raises
    MalformedFile if the rows are not sorted, complete, finite and consistent."""
    from protocol.rollout_file.reader import to_parquet  # lazy: most processes only read files, in the sandbox

    check_rollouts(rollouts)
    return to_parquet(header, rollouts)


def read(data: bytes, limits: Limits, sandbox: Sandbox = SANDBOX) -> tuple[RolloutHeader, list[Rollout]]:
    """Read the header and rows of a stranger's file, within `limits`; what the sandbox hands back is checked again.
    Raises MalformedFile naming what is wrong, MusterError if this machine (not the file) is at fault."""
    if len(data) > limits.file_bytes:
        raise MalformedFile(f"{len(data)} bytes, at most {limits.file_bytes} for this pool")
    if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC:
        raise MalformedFile("it is not a Parquet file")
    footer = int.from_bytes(data[-8:-4], "little")
    if footer > min(len(data) - 12, _MAX_FOOTER_BYTES):
        raise MalformedFile(f"a footer of {footer} bytes")
    parts = sandbox.parse(data, limits)
    if len(parts) != limits.rows + 1:
        raise MalformedFile(f"{len(parts) - 1} rows instead of {limits.rows}")
    header = RolloutHeader.parse(parts[0])
    rollouts = [decode_row(part) for part in parts[1:]]
    check_rollouts(rollouts, limits)
    return header, rollouts
