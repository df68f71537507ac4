"""Failures of what scores an answer, as opposed to wrong answers."""

from protocol.errors import MusterError


class ScoringUnavailable(MusterError):
    """This machine could not score an answer: a sandbox did not start, or a process of its own ended or hung.

    A failure of infrastructure, never a score of zero: whoever meets it tries again or leaves the file alone.
    """
