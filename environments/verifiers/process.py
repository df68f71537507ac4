"""The process that a package runs in: apart from the machine, asked by lines of JSON, replaced when it fails."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partialmethod
from pathlib import Path
from typing import Any, TypedDict

from environments.verifiers import guest
from protocol.encoding import parse_json
from protocol.errors import ConfigError, ScoringUnavailable, printable
from sandbox.exchange import ask, close_pipes
from sandbox.launch import IsolatedProcess, Launch, try_mode
from sandbox.policy import MIB, NOBODY, IsolationPolicy, Mode, Mount

START_SECONDS, LOAD_SECONDS, SCORE_SECONDS, ROW_SECONDS = 60.0, 300.0, 30.0, 30.0
SCORE_MEMORY = 512 * MIB
_MAX_ANSWER = 8 << 20
_TRIES = 2
_GUEST = Path(guest.__file__).parent
_PYTHON = Path(sys.executable).resolve()
_START = """
import importlib.util, sys
folder, site = sys.argv[1:]
spec = importlib.util.spec_from_file_location("guest", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["guest"] = guest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(guest)
from guest.serve import main
main(site)
"""
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "HOME": "/tmp",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MPLCONFIGDIR": "/tmp",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OPENAI_API_KEY": "none",
}
_log = logging.getLogger(__name__)


class Turn(TypedDict):
    """What the model said, and the call in it: a tool's name and its arguments as JSON."""

    text: str
    call: tuple[str, str] | None


class PackageProcess:
    """A package, loaded from the folder `site` as `load` says (guest/serve.py). One question at a time, from any
    thread: a thread of its own starts the process and speaks with it, since it ends with that thread."""

    def __init__(self, name: str, site: Path, load: dict[str, Any]) -> None:
        self._name, self._site, self._load = name, site, load
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="package")
        self._process: IsolatedProcess | None = None
        self._asked = 0
        self._loaded: dict[str, Any] = {}

    def load(self) -> dict[str, Any]:
        """Return `library`, `rows` (digests of all problems), the most `turns` (0: it names none), and `tools`, their
        schemas. Raise ConfigError where the package cannot be an environment, ScoringUnavailable."""
        return dict(self._thread.submit(self._retried, None, 0.0).result())

    def row(self, number: int) -> Any:
        """Return a problem's text. Raise ScoringUnavailable."""
        return self._thread.submit(self._retried, {"do": "row", "with": {"row": number}}, ROW_SECONDS).result()

    def replay(self, do: str, number: int, turns: Sequence[Turn]) -> Any:
        """Return the package's `score` of a rollout, or its `reply` to the turns so far, None where they are the end.
        Raise ScoringUnavailable."""
        about = {"row": number, "turns": list(turns), "memory": SCORE_MEMORY, "seconds": int(SCORE_SECONDS)}
        return self._thread.submit(self._retried, {"do": do, "with": about}, SCORE_SECONDS).result()

    score, reply = partialmethod(replay, "score"), partialmethod(replay, "reply")

    def close(self) -> None:
        """End the process; the next question starts another."""
        try:
            self._thread.submit(self._end).result()
        except RuntimeError:  # the interpreter is ending, and with it that thread
            self._end()

    @property
    def pid(self) -> int | None:
        """Of the process that runs it, if it runs."""
        return self._process.process.pid if self._process is not None else None

    # In the thread of its own

    def _retried(self, question: dict[str, Any] | None, seconds: float) -> Any:
        failure = ""
        for _ in range(_TRIES):
            try:
                if self._process is None:
                    self._start()
                return self._loaded if question is None else self._ask(question, seconds)
            except _NoAnswer as error:
                failure = str(error)
            except OSError as error:
                failure = str(error)
                _log.warning("the package %s failed in its process: %s", self._name, failure)
                self._end()
            except ConfigError:
                self._end()
                raise
            finally:
                if not self._loaded:
                    self._end()
        raise ScoringUnavailable(
            f"the package {self._name} failed {_TRIES} times: {printable(failure, 400)}",
            "see this machine's load and memory; a package that fails everywhere is none for a pool",
        )

    def _start(self) -> None:
        mode = _mode()
        folders = [self._site, _GUEST, *([] if _PYTHON.is_relative_to("/usr") else [_PYTHON.parent.parent])]
        policy = IsolationPolicy(
            memory=4096 * MIB,
            processes=64,
            open_files=256,
            scratch=16 * MIB,
            mounts=tuple(map(Mount.same, folders)),
            environment=_ENVIRONMENT,
            user=NOBODY if os.geteuid() == 0 and mode is Mode.BUBBLEWRAP else None,
        )
        argv = (str(_PYTHON), "-P", "-s", "-S", "-B", "-X", "utf8", "-c", _START, str(_GUEST), str(self._site))
        launch = Launch(mode, policy, argv)
        self._process = IsolatedProcess(launch, subprocess.PIPE, subprocess.PIPE, subprocess.DEVNULL)
        self._asked = 0
        self._exchange(b"", START_SECONDS)
        self._loaded = self._ask({"do": "load", "with": self._load}, LOAD_SECONDS)

    def _ask(self, question: dict[str, Any], seconds: float) -> Any:
        self._asked += 1
        return self._exchange(json.dumps({"id": self._asked} | question).encode() + b"\n", seconds)

    def _exchange(self, data: bytes, seconds: float) -> Any:
        """Return the answer to the last question. Raise OSError where the process ends, hangs or answers nonsense."""
        assert self._process is not None
        line = ask(self._process.process, data, seconds, _MAX_ANSWER)
        try:
            answer = parse_json(line)
            if answer["id"] != self._asked:
                raise ValueError("it is an answer to something else")
        except (ValueError, KeyError, TypeError):
            raise OSError("its answer is not ours") from None
        if "refused" in answer:
            what, hint = printable(str(answer["refused"]), 400), printable(str(answer.get("hint")))
            raise ConfigError(f"{self._name}: {what}", hint)
        if "value" not in answer:
            raise _NoAnswer(printable(str(answer.get("failed")), 400))
        return answer["value"]

    def _end(self) -> None:
        process, self._process = self._process, None
        self._loaded = {}
        if process is not None:
            process.close()
            close_pipes(process.process)


class _NoAnswer(Exception):
    """It is well, but has no answer to this question."""


@cache
def _mode() -> Mode:
    """bubblewrap where it works; else an ordinary process, which the filter of system calls still shuts in."""
    trouble = try_mode(Mode.BUBBLEWRAP, "").trouble
    if not trouble:
        return Mode.BUBBLEWRAP
    _log.warning(
        "packages of the verifiers library run without bubblewrap here (%s): they cannot write, start programs or "
        "reach the network, but they can read what this user can read",
        trouble,
    )
    return Mode.PLAIN
