"""The base model's own process: its progress, its folder, its failure."""

from pathlib import Path

import pytest

from localnet.base_model import base_model_process, wait_for_folder
from protocol.errors import MusterError
from runtime.supervisor import Supervisor


def test_a_base_model_that_cannot_be_made_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    supervisor = Supervisor()
    process = supervisor.start(base_model_process(tmp_path / "missing.json", 7, tmp_path / "logs" / "base-model.log"))
    said: list[str] = []
    with pytest.raises(MusterError, match=r"(?s)base-model failed .*missing\.json.*base-model\.log"):
        wait_for_folder(process, supervisor.check, said.append)
    assert said
