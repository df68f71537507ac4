"""Answers questions about one package, a line of JSON each, until standard input ends.

The package is loaded once. A fork of that moment makes every reply and score, so nothing reaches the next.
"""

import hashlib
import importlib
import importlib.metadata
import json
import math
import os
import sys
from typing import Any

from . import NoScore, Refused
from .confinement import carry_nothing, hold_still, same_luck, shut_in, shut_in_fork, writable_nothing

_MAX_ANSWER = 1 << 20
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request", "http.client.connect")
_PROGRAMS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system")
_APIS = {"0.2": "classic", "0.4": "taskset"}
_ENDINGS = {-9: "it was killed", -24: "it used up its time", -31: "it asked for the network or another process"}


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
            outside = f"; it asked for {self.asked_for[0]}, which there is not" if self.asked_for else ""
            return {"failed": f"{type(error).__name__}: {str(error)[:300]}{outside}"}

    def _load(self, load: str, arguments: dict[str, Any], split: str) -> dict[str, Any]:
        version = importlib.metadata.version("verifiers")
        api = _APIS.get(".".join(version.split(".")[:2]))
        if api is None:
            raise Refused(f"it needs verifiers {version}", "choose a package for verifiers 0.2 or 0.4")
        same_luck()
        self.package = importlib.import_module(f".{api}", __package__).Package(load, arguments, split)
        self.texts = self.package.texts
        if not self.texts:
            raise Refused("it has no rows", "choose another split, or other arguments")
        digests = [hashlib.sha256(text.encode()).digest()[:16] for text in self.texts]
        about = {"library": version, "api": api, "rows": b"".join(digests).hex()}
        return about | {"turns": self.package.turns, "tools": list(self.package.tools)}

    def _row(self, row: int) -> str:
        return self.texts[row]

    def _score(self, **about: Any) -> float:
        score = self._forked("score", **about)
        if not isinstance(score, float):
            raise NoScore("its scorer gave no number")
        return score

    def _reply(self, **about: Any) -> str | None:
        reply = self._forked("reply", **about)
        if reply is not None and not isinstance(reply, str):
            raise NoScore("its reply is no text")
        return reply

    def _forked(self, do: str, row: int, turns: list[dict[str, Any]], memory: int, seconds: int) -> Any:
        """Return what a fork answers. Raise NoScore where it ends without an answer."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.close(self._out)
            self._answer = writing
            self._do_here(do, row, turns, memory, seconds)
        os.close(writing)
        data = b""
        while len(data) <= _MAX_ANSWER and (part := os.read(reading, _MAX_ANSWER)):
            data += part
        os.close(reading)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        try:
            answer = json.loads(data)
            return answer["value"]
        except (ValueError, TypeError):
            raise NoScore(f"it gave no answer: {_ENDINGS.get(status, f'it ended with {status}')}") from None
        except KeyError:
            raise NoScore(str(answer.get("failed"))[:400]) from None

    def _do_here(self, do: str, row: int, turns: list[dict[str, Any]], memory: int, seconds: int) -> None:
        """In the fork; never returns."""
        answer: dict[str, Any] = {"failed": "it ended"}
        try:
            carry_nothing(self._answer)
            shut_in_fork(memory, seconds)
            same_luck()
            value = getattr(self.package, do)(row, turns)
            if do == "score":  # what an answer made of a formula (`nan`) is worth nothing, and no failure
                value = float(value) if math.isfinite(float(value)) else 0.0
            answer = {"value": value}
        except BaseException as error:
            answer = {"failed": str(error) if isinstance(error, NoScore) else f"{type(error).__name__}: {error}"[:300]}
        self._end(answer)

    def _end(self, answer: dict[str, Any]) -> None:
        write(self._answer, json.dumps(answer).encode())
        os._exit(0)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _NETWORK or event in _PROGRAMS:
            what = "the network" if event in _NETWORK else "other programs"
            self.asked_for.append(f"{what} ({event})")
            if self._answer >= 0:
                self._end({"failed": f"it asked for {what} ({event})"})


def write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def main(site: str) -> None:
    source, out = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.set_inheritable(out, False)

    def say(document: dict[str, Any]) -> None:
        write(out, json.dumps(document).encode() + b"\n")

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
