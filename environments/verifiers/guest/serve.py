"""Answers questions about one package, a line of JSON each, until standard input ends.

The package is loaded once. Every reply and score is made by a fork of that moment, so nothing that one leaves behind
reaches the next, and a fork that breaks takes only itself along. What the package prints goes nowhere.
"""

import hashlib
import importlib.metadata
import json
import math
import os
import sys
from typing import Any

from . import NoScore, Refused
from .confinement import (
    carry_nothing,
    hold_still,
    same_luck,
    shut_in,
    shut_in_fork,
    writable_nothing,
)

_MAX_SAID = 1 << 20
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request", "http.client.connect")
_PROGRAMS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system")
_APIS = {"0.2": "classic", "0.4": "taskset"}


class Serving:
    """`package` and `texts` are there once it is loaded. `asked_for`: what of the outside the package tried to use."""

    def __init__(self, out: int) -> None:
        self._out, self._answer = out, -1
        self.package: Any = None
        self.texts: list[str] = []
        self.asked_for: list[str] = []
        sys.addaudithook(self._see)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"value": getattr(self, f"_{question['do']}")(**question["with"])}
        except Refused as error:
            return {"refused": error.what, "hint": error.hint}
        except NoScore as error:
            return {"failed": str(error)}
        except Exception as error:
            told = f"; it asked for {self.asked_for[0]}, which there is not" if self.asked_for else ""
            return {"failed": f"{type(error).__name__}: {str(error)[:300]}{told}"}

    def _load(self, load: str, arguments: dict[str, Any], split: str) -> dict[str, Any]:
        version = importlib.metadata.version("verifiers")
        api = _APIS.get(".".join(version.split(".")[:2]))
        if api is None:
            raise Refused(f"it needs verifiers {version}", "choose a package for verifiers 0.2 or 0.4")
        same_luck()
        self.package = _package(api)(load, arguments, split)
        self.texts = self.package.texts
        if not self.texts:
            raise Refused("it has no rows", "choose another split, or other arguments")
        digests = [hashlib.sha256(one.encode()).digest()[:16] for one in self.texts]
        about = {"library": version, "api": api, "rows": b"".join(digests).hex()}
        return about | {"turns": self.package.turns, "tools": list(self.package.tools)}

    def _row(self, row: int) -> str:
        return self.texts[row]

    def _score(self, **about: Any) -> float:
        """By a fork. Raises NoScore where that ends without one."""
        found = self._forked("score", **about)
        if not isinstance(found, float):
            raise NoScore("its scorer gave no number")
        return found

    def _reply(self, **about: Any) -> str | None:
        """By a fork. Raises NoScore where that ends without saying."""
        found = self._forked("reply", **about)
        if found is not None and not isinstance(found, str):
            raise NoScore("its reply is no text")
        return found

    def _forked(self, do: str, row: int, turns: list[dict[str, Any]], memory: int, seconds: int) -> Any:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.close(self._out)
            self._answer = writing
            self._do_here(do, row, turns, memory, seconds)
        os.close(writing)
        said = b""
        while len(said) <= _MAX_SAID and (part := os.read(reading, _MAX_SAID)):
            said += part
        os.close(reading)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        try:
            found = json.loads(said)
        except ValueError:
            raise NoScore(_ended(status)) from None
        if not isinstance(found, dict) or "value" not in found:
            raise NoScore(str(found.get("failed"))[:400] if isinstance(found, dict) else _ended(status))
        return found["value"]

    def _do_here(self, do: str, row: int, turns: list[dict[str, Any]], memory: int, seconds: int) -> None:
        """In the fork; never returns."""
        said: dict[str, Any] = {"failed": "it ended"}
        try:
            carry_nothing(self._answer)
            shut_in_fork(memory, seconds)
            same_luck()
            value = getattr(self.package, do)(row, turns)
            said = {"value": _finite(float(value)) if do == "score" else value}
        except BaseException as error:
            said = {"failed": str(error) if isinstance(error, NoScore) else f"{type(error).__name__}: {error}"[:300]}
        self._end(said)

    def _end(self, said: dict[str, Any]) -> None:
        data = json.dumps(said).encode()
        while data:
            data = data[os.write(self._answer, data) :]
        os._exit(0)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _NETWORK or event in _PROGRAMS:
            what = "the network" if event in _NETWORK else "other programs"
            self.asked_for.append(f"{what} ({event})")
            if self._answer >= 0:
                self._end({"failed": f"it asked for {what} ({event})"})


def _finite(reward: float) -> float:
    """What an answer made of a formula (`nan`) is worth nothing, and no failure."""
    return reward if math.isfinite(reward) else 0.0


def _package(api: str) -> Any:
    from .classic import ClassicPackage
    from .taskset import TasksetPackage

    return {"classic": ClassicPackage, "taskset": TasksetPackage}[api]


def _ended(status: int) -> str:
    names = {-9: "it was killed", -24: "it used up its time", -31: "it asked for the network or another process"}
    return f"it gave no answer: {names.get(status, f'it ended with {status}')}"


def main(site: str) -> None:
    """Serve until the other end is closed."""
    source, out = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.set_inheritable(out, False)

    def say(document: dict[str, Any]) -> None:
        data = json.dumps(document).encode() + b"\n"
        while data:
            data = data[os.write(out, data) :]

    try:
        shut_in()
    except OSError as error:
        say({"id": 0, "refused": f"no filter of system calls: {error}", "hint": "apt-get install libseccomp2"})
        return
    hold_still()
    writable_nothing(nothing)
    sys.path.append(site)
    serving = Serving(out)
    say({"id": 0, "value": "ready"})
    for line in source:
        question = json.loads(line)
        say({"id": question["id"]} | serving.answer(question))
    os._exit(0)  # what tidies up would need calls that are refused
