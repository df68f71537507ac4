"""One model in two processes (tensor parallelism), as a worker's configuration asks for it; on GPUs it is the same."""

from pathlib import Path

import pytest

from engines.hf import TransformersEngine
from engines.torch_process import vllm_installed
from runtime.engine_process import EngineProcesses
from runtime.process import EngineConfig
from tests.engines.models import errors, save_tiny
from tests.engines.test_hf import SAMPLING, requests


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.skipif(not vllm_installed(), reason="vLLM is not installed")
@pytest.mark.timeout(600)
def test_a_workers_engine_is_divided_over_two_processes(tmp_path: Path) -> None:
    config = EngineConfig.model_validate_json('{"name": "vllm", "batch": 16, "tensor_parallel": 2}')
    first, second = save_tiny(tmp_path / "first"), save_tiny(tmp_path / "second", seed=5)
    judge, made, asked = TransformersEngine(), EngineProcesses(config, tmp_path), requests(8)
    try:
        assert "tp=2" in made.info.device
        for weights in (first, second):
            made.load(weights)
            judge.load(weights)
            got = made.generate(asked, SAMPLING)
            assert [one.tokens for one in got] == [one.tokens for one in judge.generate(asked, SAMPLING)]
            assert errors(judge, asked, got)["mismatches"] == 0
    finally:
        made.close()
