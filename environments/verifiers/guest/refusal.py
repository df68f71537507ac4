"""Why a package cannot be an environment here, and what keeps a score from being one."""


class Refused(Exception):
    """With what to do about it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


class NoScore(Exception):
    """Something of the machine or the package failed: there is no score, not even 0."""


MACHINES = (MemoryError, OSError, ImportError, TimeoutError)
"""Exceptions that say something of the machine and nothing of the answer."""
