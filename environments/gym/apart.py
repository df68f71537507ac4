"""Datasets in a process of their own, with hash seed 0 and a global random state that nobody else uses."""

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import protocol
from environments.base import Problem
from environments.errors import ScoringUnavailable
from protocol.encoding import parse_json
from protocol.errors import ConfigError

START_SECONDS = 300.0  # its imports take seconds of an idle machine
ANSWER_SECONDS = 120.0  # the slowest generator takes half a second of one
_MAX_ANSWER_BYTES = 1 << 22


class GymApart:
    """One dataset with its parameters, by the process that all of them share. Raises ConfigError for wrong
    parameters; problems and scores raise ScoringUnavailable where the process fails twice."""

    def __init__(self, dataset: str, params: dict[str, Any]) -> None:
        self._of = {"dataset": dataset, "params": params}
        self.problem(0)

    def problem(self, seed: int) -> Problem:
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"a problem seed is an unsigned 64-bit number, not {seed}")
        return Problem(**PROCESS.ask(self._of | {"seed": seed}))

    def score(self, problem: Problem, answer_text: str) -> float:
        return float(PROCESS.ask(self._of | {"problem": asdict(problem), "answer": answer_text}))


class GymProcess:
    """`environments.gym.child`, started on first use: one question at a time, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: dict[str, Any]) -> Any:
        """Raises ConfigError for wrong parameters, ScoringUnavailable."""
        failure = ""
        for _ in range(2):
            with self._lock:
                try:
                    return self._exchange(question)
                except OSError as error:
                    failure = str(error)
                    self.close()
        raise ScoringUnavailable(
            f"reasoning_gym/{question['dataset']} failed twice in a process of its own: {failure}",
            "see this machine's load and memory",
        )

    def close(self) -> None:
        """End the process; the next question starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    @property
    def pid(self) -> int | None:
        """Of the process, if it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def _exchange(self, question: dict[str, Any]) -> Any:
        """The answer to a question. Raises OSError where the process ends, hangs or answers nonsense."""
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        return _said(_line(process, ANSWER_SECONDS))

    def _start(self) -> subprocess.Popen[bytes]:
        root = str(Path(protocol.__file__).parents[1])
        fixed = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "environments.gym.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, **fixed},
        )
        _said(_line(self._process, START_SECONDS))
        return self._process


def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """One line that the process writes within so many seconds."""
    assert process.stdout is not None
    data, end, source = b"", time.monotonic() + seconds, process.stdout.fileno()
    while not data.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0 or not select.select([source], [], [], left)[0]:
            raise OSError(f"it gave no answer for {seconds:.0f} s")
        part = os.read(source, 1 << 16)
        if not part or len(data) > _MAX_ANSWER_BYTES:
            raise OSError("it ended" if not part else "its answer does not end")
        data += part
    return data


def _said(line: bytes) -> Any:
    try:
        answer = parse_json(line)
        if "refused" in answer:
            raise ConfigError(answer["refused"], answer["hint"])
        return answer["value"]
    except (ValueError, KeyError, TypeError):
        raise OSError("its answer is not ours") from None


PROCESS = GymProcess()
atexit.register(PROCESS.close)
