"""The signer's clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from unittest import mock


@contextmanager
def signed_at(now: datetime) -> Iterator[None]:
    """URLs signed inside carry this time."""
    with mock.patch("botocore.auth.get_current_datetime", return_value=now):
        yield
