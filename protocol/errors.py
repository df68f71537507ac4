"""Errors meant for people: what was wrong, and how to fix it, in one line."""

from collections.abc import Mapping, Sequence
from typing import Any


class MusterError(Exception):
    """A failure a user can understand; the command line prints it without a traceback and exits non-zero."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.hint = hint


class ConfigError(MusterError):
    """A configuration value, file or option is wrong."""


class UnreachableError(MusterError):
    """A service that should answer does not (chain RPC, S3, orchestrator)."""


class IntegrityError(MusterError):
    """Bytes differ from what a hash, a signature or the chain says they are."""


def unwritten(error: OSError) -> str:
    """Describe an error of a file that could not be written or read, such as a full disk."""
    return f"cannot use {error.filename or 'a file'}: {error.strerror or error}; check its disk and permissions"


def printable(text: str, longest: int = 160) -> str:
    """Make a stranger's text fit for a terminal or a log: one line without control characters, not too long."""
    clean = "".join(c if c.isprintable() else "?" for c in text[: longest + 1])
    return clean if len(clean) <= longest else clean[:longest] + "…"


def first_problem(errors: Sequence[Mapping[str, Any]], whole: str = "the document") -> tuple[str, str]:
    """Return field and message of the first of pydantic's errors, printable; `whole` names what has no field."""
    where = ".".join(str(part) for part in errors[0]["loc"])
    return printable(where, 100) or whole, printable(str(errors[0]["msg"]), 200)


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, cut to 200 characters; its type's name if it is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


class ScoringUnavailable(MusterError):
    """This machine could not score an answer: a failure of infrastructure, to be tried again, never a score of zero."""
