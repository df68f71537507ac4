"""The base model's own process: its progress, its folder, its failure."""

from pathlib import Path

import pytest

from demo.base_model import BaseModelProcess
from protocol.errors import MusterError


def test_a_base_model_that_cannot_be_made_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "base-model.log"
    process = BaseModelProcess(tmp_path / "missing.json", 7, log)
    said: list[str] = []
    with pytest.raises(MusterError, match=r"no base model: .*missing\.json.*base-model\.log"):
        process.wait(lambda: None, said.append)
    assert said


def test_a_run_that_is_stopped_does_not_wait_for_its_base_model(tmp_path: Path) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    process = BaseModelProcess(tmp_path / "missing.json", 7, tmp_path / "log")
    with pytest.raises(KeyboardInterrupt):
        process.wait(stopped, lambda _: None)
    process.stop()
