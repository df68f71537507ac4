"""The Triton kernel against NumPy: in the interpreter where triton is installed, and on a GPU where one is."""

import importlib.util
import os
import subprocess
import sys

import pytest

CASE = """
import sys
import numpy as np, torch
from protocol.sampling import cuda, cuda_verify, noise
device = sys.argv[1]
source = np.random.default_rng(0)
for vocabulary in (2, 7, 265, 3000):
    logits = (source.standard_normal((6, vocabulary)) * 2).astype(np.float32)
    keys = [tuple(int(word) for word in source.integers(0, 2**64, 3, dtype=np.uint64)) for _ in range(6)]
    positions = [0, 1, 2, 3, 2**40, 5]
    expected = noise.choose(logits, keys, positions, 0.7)
    tokens, logprobs = cuda.choose(torch.from_numpy(logits).to(device), keys, positions, 0.7)
    assert tokens.tolist() == expected.tokens.tolist(), vocabulary
    assert np.abs(logprobs - expected.logprobs).max() < 1e-5
    logits[5, vocabulary // 2] = -np.inf
    mine = np.append(expected.tokens[:3], source.integers(0, vocabulary, 2))
    mine = np.append(mine, vocabulary // 2)
    given = mine, keys, positions, 0.7
    expected = noise.verify_rows(logits, *given)
    found = noise.Gaps(*cuda_verify.verify(torch.from_numpy(logits).to(device), *given))
    assert found.best.tolist() == expected.best.tolist()
    assert not found.gaps[:3].any()
    for name, values in vars(expected).items():
        np.testing.assert_allclose(getattr(found, name), values, rtol=1e-5, atol=1e-5, err_msg=name)
"""


def compare_on(device: str, **environment: str) -> None:
    command, env = [sys.executable, "-c", CASE, device], os.environ | environment
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_in_the_interpreter() -> None:
    compare_on("cpu", TRITON_INTERPRET="1")


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    compare_on("cuda")
