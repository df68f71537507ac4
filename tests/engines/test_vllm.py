"""The vLLM engine agrees with the transformers engine; each case is a process, for vLLM keeps global state."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.engines.runtime import torch_environment
from protocol.engines.vllm import vllm_installed

pytestmark = [pytest.mark.vllm, pytest.mark.skipif(not vllm_installed(), reason="vLLM is not installed")]


def run_case(name: str, folder: Path) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engines.vllm_case", name, str(folder)],
        env=os.environ | torch_environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_float32_agrees_token_for_token(tmp_path: Path) -> None:
    """Joins, leaves, one-token outputs, hot reload, refusals: see vllm_case.py."""
    found = run_case("float32", tmp_path)
    assert found["same"] == found["rollouts"]
    assert found["same_after_reload"] == found["rollouts"]
    assert found["changed_by_reload"] > found["rollouts"] // 2
    assert found["mismatches"] <= 1
    assert found["mantissa"] < 0.1
    assert found["gap"] < 1e-3
    assert found["logprob"] < 1e-3
    assert found["refused"] == ["positions", "vocabulary", "another kind", "empty prompt", "prefill"]


@pytest.mark.slow
def test_preemption_keeps_proofs_right(tmp_path: Path) -> None:
    """A KV cache too small for the batch: requests are preempted and recomputed."""
    found = run_case("preemption", tmp_path)
    assert found["same"] == found["rollouts"]
    assert found["preemptions"] > 0
    assert found["mismatches"] <= 1


@pytest.mark.slow
def test_bfloat16_stays_within_its_band(tmp_path: Path) -> None:
    found = run_case("bfloat16", tmp_path)
    assert found["mismatches"] <= 12
    assert found["mantissa"] < 10
    assert found["mismatches_after_reload"] <= 12
