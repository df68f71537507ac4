"""The world in which a validator's whole process is tested."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Deployed
from tests.validator.daemon_world import ValidatorWorld, validator_world


@pytest.fixture
def world(deployed: Deployed, tmp_path: Path) -> Iterator[ValidatorWorld]:
    with validator_world(deployed, tmp_path) as made:
        yield made
