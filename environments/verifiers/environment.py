"""A locked package of `verifiers`: its rows are the problems, its rubric scores, its own rollout asks what is
replied."""

import atexit
import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from environments.base import MAX_ANSWER_CHARS, AnswerCache, Declaration, Problem, credited, read_params
from environments.turns import MOST_TOOLS, MOST_TURNS, TurnParams, checked_tools, tool_call
from environments.verifiers.install import PackageLock, installed, read_lock, resolve, this_machine, this_python
from environments.verifiers.process import SCORE_SECONDS, PackageProcess, Turn
from protocol.encoding import canonical_json, parse_document, parse_json
from protocol.errors import ConfigError, ScoringUnavailable
from protocol.files import write_atomic

UNNAMED_TURNS = 10  # of a rollout where a package names no most turns
_DIGEST = 16


class VerifiersParams(TurnParams):
    """`full_reward`: the reward that counts as 1. The package's own arguments are in its lock."""

    full_reward: float = Field(1.0, ge=1e-9, le=1e9)


class VerifiersEnvironment:
    """The package whose lock lies at `path`, with carried wheels beside it; installed where it is missing. It has as
    many turns as it names, unless `params` say otherwise. Raises ConfigError for a wrong parameter, and for a package
    that is refused, is for another kind of machine, or has other rows than its lock says, ScoringUnavailable."""

    def __init__(self, path: Path, content: str, params: dict[str, Any]) -> None:
        read_params(VerifiersParams, "verifiers", params)  # before minutes of installation
        self._lock = lock = read_lock(path, content)
        self._process = _shared_process(lock.document, installed(lock, path.parent), os.getpid())
        loaded = self._process.load()
        self._digests = bytes.fromhex(str(loaded["rows"]))
        if data_hash(loaded) != lock.data:
            raise ConfigError(
                f"{lock.package} makes {len(self._digests) // _DIGEST} rows here, other ones than the {lock.rows} that "
                "its lock names, or has other tools",
                "it draws them by chance or by the machine: choose a package that does not",
            )
        try:
            tools = checked_tools(loaded["tools"])
        except ValueError as error:
            what = f"{lock.package} has more than {MOST_TOOLS} tools, or too long ones: {error}"
            raise ConfigError(what, "limit them by an argument of the package") from None
        most = min(loaded["turns"], MOST_TURNS) or UNNAMED_TURNS
        named = {"turns": most, "reply_role": "tool" if tools else "user"}
        self._params = read_params(VerifiersParams, "verifiers", named | params)
        turns = self._params.with_tools(tools)
        self.declared = Declaration(lock.library, content, lock.licence, SCORE_SECONDS, turns)
        self.rows, self._answers = lock.rows, AnswerCache()

    def problem(self, seed: int) -> Problem:
        """System's text and user's texts as one question, a blank line between them."""
        if not 0 <= seed < self.rows:
            raise ValueError(f"row {seed} of {self.rows}")
        text = str(self._process.row(seed))
        digest = hashlib.sha256(text.encode()).digest()[:_DIGEST]
        if digest != self._digests[_DIGEST * seed : _DIGEST * (seed + 1)]:
            raise ScoringUnavailable(f"{self._lock.package} gave another row {seed} than before", "leave it alone")
        row = parse_json(text)
        return Problem("\n\n".join(content for _, content in row["messages"]), row["answer"], {"row": seed})

    def score(self, problem: Problem, answer_text: str) -> float:
        return self.score_turns(problem, [answer_text])

    def score_turns(self, problem: Problem, turns: Sequence[str]) -> float:
        if sum(map(len, turns)) > MAX_ANSWER_CHARS:
            return 0.0
        value = self._ask("score", problem, turns)
        if not isinstance(value, int | float):
            raise ScoringUnavailable(f"{self._lock.package} gave no number as a score", "leave it alone")
        return credited(float(value) / self._params.full_reward, self._params.score_threshold)

    def reply(self, problem: Problem, turns: Sequence[str]) -> str | None:
        if sum(map(len, turns)) > MAX_ANSWER_CHARS:
            return None
        value = self._ask("reply", problem, turns)
        return value if isinstance(value, str) else None

    def _ask(self, what: str, problem: Problem, texts: Sequence[str]) -> Any:
        row, turns = problem.metadata["row"], [self._turn(text) for text in texts]
        return self._answers.get([what, row, turns], lambda: self._process.replay(what, row, turns))

    def _turn(self, text: str) -> Turn:
        """Return a turn of the model's; where the package has tools, with the call in it."""
        text = _whole(text)
        call = tool_call(text) if self.declared.turns.tools else None
        if call is None:
            return Turn(text=text, call=None)
        return Turn(text=text, call=(_whole(call[0]), _whole(json.dumps(call[1], ensure_ascii=False))))


def _whole(text: str) -> str:
    """Return a text without half characters, which JSON may spell and the library takes in no message."""
    return text.encode(errors="replace").decode()


def data_hash(loaded: Mapping[str, Any]) -> str:
    """Return the hash of what a package says when it is loaded: its rows, and turns and tools if it has some."""
    digests = bytes.fromhex(str(loaded["rows"]))
    more = canonical_json([loaded["turns"], loaded["tools"]]) if loaded["turns"] != 1 or loaded["tools"] else b""
    return hashlib.sha256(digests + more).hexdigest()


@cache
def _shared_process(document: bytes, site: Path, _process: int) -> PackageProcess:
    lock = parse_document(document, PackageLock, "a lock")
    process = PackageProcess(lock.package, site, {"load": lock.load, "arguments": lock.arguments, "split": lock.split})
    atexit.register(process.close)
    return process


# Locking, on the pool owner's machine

_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(\[[A-Za-z0-9,._-]+\])?==([A-Za-z0-9][A-Za-z0-9.!+_-]*)")


def lock_package(
    keep: Path,
    requirement: str,
    load: str = "",
    arguments: Mapping[str, Any] | None = None,
    split: Literal["train", "eval"] = "train",
    wheels: Sequence[Path] = (),
    build: bool = False,
) -> PackageLock:
    """Put the lock, and wheels that no index has, into `keep`. `requirement`: NAME==VERSION, extras allowed; `load`: a
    module or `module:callable` if not by that name; `wheels`: files that no index has; `build`: packages without a
    wheel are built here. Raise ConfigError, ScoringUnavailable."""
    name = pinned_name(requirement)
    locked = resolve(requirement, wheels, build, keep)
    if not any(wheel.name == "verifiers" for wheel in locked):
        raise ConfigError(f"{requirement} does not need verifiers", "name a package of the verifiers library")
    loading = {"load": load or re.sub(r"[-.]", "_", name), "arguments": dict(arguments or {}), "split": split}
    draft = PackageLock(  # what only the loaded package can say follows
        package=requirement,
        library="0",
        python=this_python(),
        machine=this_machine(),
        wheels=tuple(sorted(locked, key=lambda wheel: wheel.name.lower())),
        rows=1,
        data="0" * 64,
        **loading,
    )
    site = installed(draft, keep)
    process = PackageProcess(requirement, site, loading)
    try:
        loaded = process.load()
        rows = len(bytes.fromhex(str(loaded["rows"]))) // _DIGEST
        for row in sorted({0, rows - 1}):  # does it ask what a worker can sample an answer to
            process.reply(row, [])
    finally:
        process.close()
    known = {"library": str(loaded["library"]), "licence": _licence(name, site), "rows": rows}
    lock = PackageLock.model_validate(draft.model_dump() | known | {"data": data_hash(loaded)})
    write_atomic(keep / lock.content, lock.document)
    return lock


def pinned_name(requirement: str) -> str:
    """Return NAME of NAME==VERSION. Raise ConfigError for anything else."""
    match = _PINNED.fullmatch(requirement)
    if match is None:
        raise ConfigError(f"`{requirement[:80]}` is not NAME==VERSION", "name the version, e.g. reverse-text==0.1.0")
    return match[1]


def _licence(name: str, site: Path) -> str:
    for distribution in importlib.metadata.distributions(name=name, path=[str(site)]):
        about = distribution.metadata
        named = next((about[key] for key in ("License-Expression", "License") if key in about), "")
        line = str(named).strip().splitlines()[:1]
        return line[0][:100] if line else "unknown"
    return "unknown"
