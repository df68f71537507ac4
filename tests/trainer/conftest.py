"""What tests of the trainer share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.loading import set_threads
from tests.trainer.crew import dismiss_all
from tests.trainer.helpers import small_model


@pytest.fixture(scope="module", autouse=True)
def crews() -> Iterator[None]:
    """Ranks that a file's tests started end with it."""
    yield
    dismiss_all()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder."""
    set_threads(1)
    return small_model(tmp_path_factory.mktemp("model") / "base")
