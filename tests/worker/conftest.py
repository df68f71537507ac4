"""The world in which a worker's whole process is tested."""

from pathlib import Path

import pytest

from tests.chain.game import begin
from tests.conftest import Deployed
from tests.worker.world import WorkerWorld


@pytest.fixture
def world(deployed: Deployed, tmp_path: Path) -> WorkerWorld:
    return WorkerWorld(begin(deployed, tmp_path), tmp_path)
