"""What tests of the trainer share."""

from collections.abc import Iterator

import pytest

from tests.trainer.crew import dismiss_all


@pytest.fixture(scope="module", autouse=True)
def crews() -> Iterator[None]:
    """Ranks that a file's tests started end with it."""
    yield
    dismiss_all()
