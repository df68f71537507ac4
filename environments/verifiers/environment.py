"""A locked package of the `verifiers` library as an environment: its rows are the problems, its rubric the scorer, and
what its own rollout asks next is the reply."""

import atexit
import hashlib
import json
import math
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from environments.base import Declaration, Problem, Turns
from environments.errors import ScoringUnavailable
from environments.kept import KeptAnswers, Said
from environments.lookup.calls import tool_call
from environments.threshold import THRESHOLD, credited, take_threshold
from environments.turns.parameters import MOST_TOOLS, MOST_TURNS, PARAMETERS, TOOLS_CHARS, are_tools, take_turns
from environments.verifiers.install import installed
from environments.verifiers.lock import PackageLock, read_lock
from environments.verifiers.process import SCORE_SECONDS, PackageProcess, Turn
from protocol.encoding import canonical_json, parse_json
from protocol.errors import ConfigError

MAX_ANSWER_CHARS = 1 << 16
FULL = "full_reward"
UNNAMED_TURNS = 10
"""Of a rollout where a package names no most turns."""
_DIGEST = 16
_PROCESSES: dict[tuple[str, Path, int], PackageProcess] = {}
_GUARD = threading.Lock()


class VerifiersEnvironment:
    """The package whose lock lies at `path` and has the SHA-256 `content`; carried wheels lie beside it. Installs it
    where this machine lacks it.

    `params`: `score_threshold` (environments/threshold.py), `full_reward`, the reward that counts as 1, and those of
    environments/turns/parameters.py. Raises ConfigError for a package that is refused, is for another kind of machine,
    or has other rows here than the lock says, ScoringUnavailable where it cannot be installed or loaded."""

    def __init__(self, path: Path, content: str, params: dict[str, Any]) -> None:
        own = dict(params)
        self._threshold, self._full = take_threshold(own), _full(own)
        self._lock = read_lock(path, content)
        self._process = shared_process(self._lock, installed(self._lock, path.parent))
        loaded = self._process.load()
        self._digests = bytes.fromhex(str(loaded["rows"]))
        if data_hash(loaded) != self._lock.data:
            raise ConfigError(
                f"{self._lock.package} makes {len(self._digests) // _DIGEST} rows here, other ones than the "
                f"{self._lock.rows} that its lock names, or has other tools",
                "it draws them by chance or by the machine: choose a package that does not",
            )
        turns = take_turns(own, _turns(self._lock.package, loaded))
        if own:
            raise ConfigError(
                f"verifiers has no such parameter: `{next(iter(own))}`",
                f"it has {', '.join((THRESHOLD, FULL, *PARAMETERS))}; the package's own arguments stand in its lock",
            )
        about = self._lock.library, content, self._lock.licence
        self.declared = Declaration("verifiers", *about, MAX_ANSWER_CHARS, SCORE_SECONDS, turns)
        self._said = KeptAnswers()

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
        return self.score_turns(problem, [answer_text])

    def score_turns(self, problem: Problem, said: Sequence[str]) -> float:
        if sum(map(len, said)) > MAX_ANSWER_CHARS:
            return 0.0
        value = self._ask("score", problem, said)
        if not isinstance(value, int | float):
            raise ScoringUnavailable(f"{self._lock.package} gave no number as a score", "leave it alone")
        return credited(float(value) / self._full, self._threshold)

    def reply(self, problem: Problem, said: Sequence[str]) -> str | None:
        if sum(map(len, said)) > MAX_ANSWER_CHARS:
            return None
        value = self._ask("reply", problem, said)
        return value if isinstance(value, str) else None

    def _ask(self, what: str, problem: Problem, said: Sequence[str]) -> Said:
        """What the package says of these turns."""
        row, turns = problem.metadata["row"], [self._turn(text) for text in said]
        asked = self._process.score if what == "score" else self._process.reply
        return self._said.get([what, row, turns], lambda: asked(row, turns))

    def _turn(self, text: str) -> Turn:
        """A turn of the model's; where the package has tools, with the call in it."""
        text = _whole(text)
        call = tool_call(text) if self.declared.turns.tools else None
        if call is None:
            return Turn(text=text, call=None)
        return Turn(text=text, call=(_whole(call[0]), _whole(json.dumps(call[1], ensure_ascii=False))))


def _whole(text: str) -> str:
    """Without half characters, which JSON may spell and the library takes in no message."""
    return text.encode(errors="replace").decode()


def data_hash(loaded: Mapping[str, Any]) -> str:
    """What a package says when it is loaded (process.py), as a hash: its rows, and turns and tools if it has some."""
    digests = bytes.fromhex(str(loaded["rows"]))
    more = canonical_json([loaded["turns"], loaded["tools"]]) if loaded["turns"] != 1 or loaded["tools"] else b""
    return hashlib.sha256(digests + more).hexdigest()


def _turns(package: str, loaded: Mapping[str, Any]) -> Turns:
    """Of a package, unless a pool wants others. Raises ConfigError for tools that no template could be told of."""
    tools, most = loaded["tools"], loaded["turns"]
    if not are_tools(tools) or not isinstance(most, int):
        raise ConfigError(
            f"{package} has more than {MOST_TOOLS} tools or {TOOLS_CHARS} characters of their schemas",
            "limit them by an argument of the package",
        )
    return Turns(min(most, MOST_TURNS) or UNNAMED_TURNS, role="tool" if tools else "user", tools=tuple(tools))


def _full(params: dict[str, Any]) -> float:
    value = params.pop(FULL, 1.0)
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
