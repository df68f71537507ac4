"""What one check found of one prerequisite."""

from collections.abc import Callable
from dataclasses import dataclass

from protocol.errors import MusterError


@dataclass(frozen=True)
class Prerequisite:
    """`state` is ok, failed, or note (worth knowing, nothing to do). `hint` says what to do about a failure."""

    check: str
    state: str
    detail: str
    hint: str = ""

    def line(self) -> str:
        mark = {"ok": "ok    ", "failed": "FAILED", "note": "note  "}[self.state]
        return f"{mark}  {self.check:<12} {self.detail}" + (f"; {self.hint}" if self.hint else "")


def ok(check: str, detail: str) -> Prerequisite:
    return Prerequisite(check, "ok", detail)


def failed(check: str, detail: str, hint: str) -> Prerequisite:
    return Prerequisite(check, "failed", detail, hint)


def note(check: str, detail: str) -> Prerequisite:
    return Prerequisite(check, "note", detail)


def judged(check: str, look: Callable[[], str]) -> Prerequisite:
    """`look` returns what it saw, or raises a MusterError, which becomes a failure."""
    try:
        return ok(check, look())
    except MusterError as error:
        return failed(check, error.what, error.hint)
