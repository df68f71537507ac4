"""A tiny model and an engine that has loaded it."""

from pathlib import Path

import pytest

from engines.hf import TransformersEngine
from tests.engines.models import save_tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> TransformersEngine:
    loaded = TransformersEngine()
    loaded.load(folder)
    return loaded
