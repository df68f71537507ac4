"""The bucket as a judge of an outer step reads it.

Whoever holds the run's access key may put anything in the place of what was published, or take it away. That costs
nobody a stake: only what the keeper and the sites signed, or what has the hash that they signed, is held against them.
"""

from protocol.errors import IntegrityError
from protocol.sites.log import LogEntry
from storage.keys import MissingObjectError
from trainer.sites.exchange import SiteExchange


class JudgedExchange(SiteExchange):
    """Of the run and bucket of `exchange`. What is not there any more as it was published is gone: a
    MissingObjectError, in the place of an IntegrityError or of None."""

    def __init__(self, exchange: SiteExchange) -> None:
        super().__init__(exchange._bucket, exchange.run)

    def _fetch(self, digest: str, limit: int) -> bytes:
        try:
            return super()._fetch(digest, limit)
        except IntegrityError as error:
            raise MissingObjectError(f"something else lies where {digest[:16]}… was: {error.what}") from None

    def entry(self, number: int, previous: str | None) -> tuple[LogEntry, str] | None:
        try:
            found = super().entry(number, previous)
        except IntegrityError as error:
            raise MissingObjectError(f"entry {number} of the log cannot be had: {error.what}") from None
        return _there(found, number)

    def next_entry(self, number: int, previous: str) -> tuple[LogEntry, str] | None:
        try:
            found = super().next_entry(number, previous)
        except IntegrityError as error:
            raise MissingObjectError(f"the log has a gap at entry {number}: {error.what}") from None
        return _there(found, number)


def _there(found: tuple[LogEntry, str] | None, number: int) -> tuple[LogEntry, str]:
    if found is None:
        raise MissingObjectError(f"entry {number} of the log is gone")
    return found
