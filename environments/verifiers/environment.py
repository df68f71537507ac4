"""A locked package of the `verifiers` library as an environment: its rows are the problems, its rubric the scorer."""

import atexit
import hashlib
import math
import os
import threading
from pathlib import Path
from typing import Any

from environments.base import Declaration, Problem
from environments.errors import ScoringUnavailable
from environments.threshold import THRESHOLD, credited, take_threshold
from environments.verifiers.install import installed
from environments.verifiers.lock import PackageLock, read_lock
from environments.verifiers.process import SCORE_SECONDS, PackageProcess
from protocol.encoding import parse_json
from protocol.errors import ConfigError

MAX_ANSWER_CHARS = 1 << 16
FULL = "full_reward"
_DIGEST = 16
_PROCESSES: dict[tuple[str, Path, int], PackageProcess] = {}
_GUARD = threading.Lock()


class VerifiersEnvironment:
    """The package whose lock lies at `path` and has the SHA-256 `content`; carried wheels lie beside it. Installs it
    where this machine lacks it.

    `params`: `score_threshold` (environments/threshold.py) and `full_reward`, the reward that counts as 1. Raises
    ConfigError for a package that is refused, is for another kind of machine, or has other rows here than the lock
    says, ScoringUnavailable where it cannot be installed or loaded."""

    def __init__(self, path: Path, content: str, params: dict[str, Any]) -> None:
        own = dict(params)
        self._threshold, self._full = take_threshold(own), _full(own)
        self._lock = read_lock(path, content)
        self._process = shared_process(self._lock, installed(self._lock, path.parent))
        self._digests = bytes.fromhex(str(self._process.load()["rows"]))
        found = hashlib.sha256(self._digests).hexdigest()
        if found != self._lock.data:
            raise ConfigError(
                f"{self._lock.package} makes {len(self._digests) // _DIGEST} rows here, other ones than the "
                f"{self._lock.rows} that its lock names",
                "it draws them by chance or by the machine: choose a package that does not",
            )
        licence = self._lock.licence
        self.declared = Declaration("verifiers", self._lock.library, content, licence, MAX_ANSWER_CHARS, SCORE_SECONDS)

    @property
    def rows(self) -> int:
        return self._lock.rows

    def problem(self, seed: int) -> Problem:
        """System's text and user's texts as one question, a blank line between them."""
        if not 0 <= seed < self.rows:
            raise ValueError(f"row {seed} of {self.rows}")
        text = str(self._process.row(seed))
        digest = hashlib.sha256(text.encode()).digest()[:_DIGEST]
        if digest != self._digests[_DIGEST * seed : _DIGEST * (seed + 1)]:
            raise ScoringUnavailable(f"{self._lock.package} gave another row {seed} than before", "leave it alone")
        row = parse_json(text)
        return Problem("\n\n".join(said for _, said in row["messages"]), row["answer"], {"row": seed})

    def score(self, problem: Problem, answer_text: str) -> float:
        if len(answer_text) > MAX_ANSWER_CHARS:
            return 0.0
        said = self._process.score(problem.metadata["row"], answer_text.encode(errors="replace").decode())
        if not isinstance(said, int | float):
            raise ScoringUnavailable(f"{self._lock.package} gave no number as a score", "leave it alone")
        return credited(float(said) / self._full, self._threshold)


def _full(params: dict[str, Any]) -> float:
    value = params.pop(FULL, 1.0)
    if params:
        raise ConfigError(
            f"verifiers has no such parameter: `{next(iter(params))}`",
            f"it has {THRESHOLD} and {FULL}; the package's own arguments stand in its lock",
        )
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ConfigError(f"`params.{FULL}` is {value!r}", "use the reward that counts as 1, a positive number")
    return float(value)


def shared_process(lock: PackageLock, site: Path) -> PackageProcess:
    """This process's own for a package."""
    key = (lock.content, site, os.getpid())
    with _GUARD:
        if key not in _PROCESSES:
            load = {"load": lock.load, "arguments": lock.arguments, "split": lock.split}
            _PROCESSES[key] = PackageProcess(lock.package, site, load)
            atexit.register(_PROCESSES[key].close)
        return _PROCESSES[key]
