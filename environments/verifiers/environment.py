"""A locked package of the `verifiers` library as an environment: its rows are the problems, its rubric the scorer, and
what its own rollout asks next is the reply."""

import atexit
import hashlib
import importlib.metadata
import json
import math
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from environments.base import THRESHOLD, Declaration, KeptAnswers, Problem, Said, Turns, credited, take_threshold
from environments.turns import MOST_TOOLS, MOST_TURNS, PARAMETERS, TOOLS_CHARS, are_tools, take_turns, tool_call
from environments.verifiers.install import (
    LockedWheel,
    PackageLock,
    installed,
    read_lock,
    resolve,
    this_machine,
    this_python,
)
from environments.verifiers.process import SCORE_SECONDS, PackageProcess, Turn
from protocol.encoding import canonical_json, parse_json
from protocol.errors import ConfigError, ScoringUnavailable
from protocol.files import write_atomic

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

    `params`: `score_threshold` (environments/base.py), `full_reward`, the reward that counts as 1, and those of
    environments/turns.py. Raises ConfigError for a package that is refused, is for another kind of machine,
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
        """Return what the package says of these turns."""
        row, turns = problem.metadata["row"], [self._turn(text) for text in said]
        asked = self._process.score if what == "score" else self._process.reply
        return self._said.get([what, row, turns], lambda: asked(row, turns))

    def _turn(self, text: str) -> Turn:
        """Return a turn of the model's; where the package has tools, with the call in it."""
        text = _whole(text)
        call = tool_call(text) if self.declared.turns.tools else None
        if call is None:
            return Turn(text=text, call=None)
        return Turn(text=text, call=(_whole(call[0]), _whole(json.dumps(call[1], ensure_ascii=False))))


def _whole(text: str) -> str:
    """Without half characters, which JSON may spell and the library takes in no message."""
    return text.encode(errors="replace").decode()


def data_hash(loaded: Mapping[str, Any]) -> str:
    """Return what a package says when it is loaded (process.py), as a hash: its rows, and turns and tools if it has
    some."""
    digests = bytes.fromhex(str(loaded["rows"]))
    more = canonical_json([loaded["turns"], loaded["tools"]]) if loaded["turns"] != 1 or loaded["tools"] else b""
    return hashlib.sha256(digests + more).hexdigest()


def _turns(package: str, loaded: Mapping[str, Any]) -> Turns:
    """Of a package, unless a pool wants others. Raise ConfigError for tools that no template could be told of."""
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


# Locking, on the pool owner's machine


_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(\[[A-Za-z0-9,._-]+\])?==([A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_DIGEST_locking = 16
Split = Literal["train", "eval"]


@dataclass(frozen=True)
class AskedPackage:
    """`requirement`: NAME==VERSION, extras allowed. `load`: a module or `module:callable`; empty for the package's own
    name. `wheels`: files that no index has. `build`: packages without a wheel are built here."""

    requirement: str
    load: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    split: Split = "train"
    wheels: Sequence[Path] = ()
    build: bool = False


def lock_package(asked: AskedPackage, keep: Path) -> PackageLock:
    """Puts the lock, and wheels that no index has, into `keep` by their hashes. Raise ConfigError for a package that
    cannot be resolved or is refused, ScoringUnavailable where it cannot be installed or loaded."""
    name = pinned_name(asked.requirement)
    wheels = resolve(asked.requirement, asked.wheels, asked.build, keep)
    if not any(one.name == "verifiers" for one in wheels):
        raise ConfigError(f"{asked.requirement} does not need verifiers", "name a package of the verifiers library")
    draft = _draft(asked, name, wheels)
    site = installed(draft, keep)
    process = PackageProcess(
        asked.requirement, site, {"load": draft.load, "arguments": draft.arguments, "split": draft.split}
    )
    try:
        loaded = process.load()
        rows = len(bytes.fromhex(str(loaded["rows"]))) // _DIGEST_locking
        for row in sorted({0, rows - 1}):  # does it ask what a worker can sample an answer to
            process.reply(row, [])
    finally:
        process.close()
    found = {
        "library": str(loaded["library"]),
        "licence": _licence(name, site),
        "rows": rows,
        "data": data_hash(loaded),
    }
    lock = PackageLock.model_validate(draft.model_dump() | found)
    write_atomic(keep / lock.content, lock.document)
    return lock


def pinned_name(requirement: str) -> str:
    """NAME of NAME==VERSION. Raise ConfigError for anything else."""
    match = _PINNED.fullmatch(requirement)
    if match is None:
        raise ConfigError(f"`{requirement[:80]}` is not NAME==VERSION", "name the version, e.g. reverse-text==0.1.0")
    return match[1]


def _draft(asked: AskedPackage, name: str, wheels: tuple[LockedWheel, ...]) -> PackageLock:
    """Without what only the loaded package can say."""
    return PackageLock(
        package=asked.requirement,
        load=asked.load or re.sub(r"[-.]", "_", name),
        arguments=asked.arguments,
        split=asked.split,
        library="0",
        python=this_python(),
        machine=this_machine(),
        wheels=tuple(sorted(wheels, key=lambda one: one.name.lower())),
        rows=1,
        data="0" * 64,
    )


def _licence(name: str, site: Path) -> str:
    """As the package says; `unknown` if it does not."""
    for found in importlib.metadata.distributions(name=name, path=[str(site)]):
        about = found.metadata
        said = next((about[one] for one in ("License-Expression", "License") if one in about), "")
        line = str(said).strip().splitlines()[:1]
        return line[0][:100] if line else "unknown"
    return "unknown"
