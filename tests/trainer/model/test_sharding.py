"""Sharded models: the same gradients, updates and weights as one process, whatever the layout."""

from pathlib import Path
from typing import Any

import pytest
import torch

from protocol.errors import ConfigError
from tests.trainer.crew import on_ranks
from tests.trainer.helpers import small_model
from trainer.config import MemoryConfig, ParallelConfig
from trainer.model.policy import Policy
from trainer.model.sharding import Placement, make_placement, model_blocks, whole
from trainer.ranks import Ranks


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")
