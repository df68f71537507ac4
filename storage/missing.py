"""Errors that the bucket's owner and strangers share."""

from protocol.errors import MusterError


class MissingObjectError(MusterError):
    """No such object (yet)."""
