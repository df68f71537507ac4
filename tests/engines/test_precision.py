"""Engines that would multiply float32 in less than float32."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import linear

from engines import precision
from engines.hf import TransformersEngine
from engines.precision import MOST_ERROR, PRODUCTS, product_error, require_full_precision
from protocol.errors import ConfigError, MusterError
from tests.engines.models import save_tiny


def rounded(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """To so many bits of the mantissa, to the nearest, as tensor cores take their factors."""
    dropped = 23 - bits
    whole = numbers.contiguous().view(torch.int32) + (1 << (dropped - 1))
    return (whole & -(1 << dropped)).view(torch.float32)


@pytest.mark.parametrize("called", PRODUCTS)
def test_float32_is_far_below_the_limit_whatever_the_order_of_its_sums(called: str) -> None:
    assert product_error(PRODUCTS[called], "cpu") < MOST_ERROR / 8
    assert product_error(lambda x, w: PRODUCTS[called](x.flip(1), w.flip(1)), "cpu") < MOST_ERROR / 8
    one_after_the_other = lambda x, w: (x[:, None, :] * w[None]).cumsum(2)[..., -1]  # noqa: E731
    assert product_error(one_after_the_other, "cpu") < MOST_ERROR / 8


@pytest.mark.parametrize("bits", [7, 10])
@pytest.mark.parametrize("both", [True, False])
def test_factors_of_fewer_bits_are_seen(bits: int, both: bool) -> None:
    lower = product_error(lambda x, w: linear(rounded(x, bits), rounded(w, bits) if both else w), "cpu")
    assert lower > 4 * MOST_ERROR


@pytest.mark.parametrize("bits", [7, 10])
def test_attention_of_fewer_bits_is_seen(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    """As kernels do that choose their own precision, whatever the switches of products say."""
    whole = torch.nn.functional.scaled_dot_product_attention
    for which in ((1, 1, 0), (0, 0, 1)):

        def lower(*given: torch.Tensor, scale: float, which: tuple[int, ...] = which) -> torch.Tensor:
            q, k, v = (rounded(one, bits) if fewer else one for one, fewer in zip(given, which, strict=True))
            out = whole(q, k, v, scale=scale)
            return rounded(out, bits) if which[2] else out

        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lower)
        assert product_error(PRODUCTS["attention"], "cpu") > 4 * MOST_ERROR
        with pytest.raises(MusterError, match="attention on cpu errs by"):
            require_full_precision("float32", "cpu")


TRITON = """
import torch
from engines.precision import MOST_ERROR, product_error
from engines.precision_triton import dot
assert product_error(dot, "cpu") < MOST_ERROR / 8
"""


COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from engines.precision import check_environment
from engines.precision_triton import _dot
signature = {"x": "*fp32", "w": "*fp32", "out": "*fp32", "columns": "i32"}
sizes = {"DEPTH": 512, "ROWS": 64, "COLUMNS": 64, "STEP": 64}
source = ASTSource(_dot, signature | dict.fromkeys(sizes, "constexpr"), constexprs=sizes)
for capability in (80, 89, 90):
    assert "tf32" in triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
check_environment("float32")
for capability in (80, 89, 90):
    assert "tf32" not in triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize(("program", "interpret"), [(TRITON, "1"), (COMPILED, "0")])
def test_triton_multiplies_float32_as_such_once_it_is_told(program: str, interpret: str, tmp_path: Path) -> None:
    """Compiled for cards that are not here: the second program reads the instructions."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_F32_DEFAULT"}
    env |= {"TRITON_INTERPRET": interpret, "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_an_engine_does_not_start_on_a_device_that_rounds_or_answers_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"torch cannot compute on cuda:99: .*check `device`"):
        TransformersEngine(device="cuda:99")
    monkeypatch.setattr(precision, "PRODUCTS", {"a product": lambda x, w: linear(x, w) * float("nan")})
    with pytest.raises(MusterError, match="a product on cpu errs by nan"):
        require_full_precision("float32", "cpu")
    monkeypatch.setattr(precision, "PRODUCTS", {"a linear layer": lambda x, w: linear(rounded(x, 10), rounded(w, 10))})
    with pytest.raises(MusterError, match=r"a linear layer on cpu errs by .* TF32 or less.*bfloat16 pools"):
        TransformersEngine("float32")
    TransformersEngine("bfloat16")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NVIDIA_TF32_OVERRIDE", "1"),
        ("TRITON_F32_DEFAULT", "tf32"),
        ("ONEDNN_DEFAULT_FPMATH_MODE", "ANY"),
        ("VLLM_FLOAT32_MATMUL_PRECISION", "high"),
    ],
)
def test_a_variable_that_overrules_torch_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(MusterError, match=f"{name}={value} lowers .*; unset {name}"):
        TransformersEngine("float32")
    TransformersEngine("bfloat16")


def test_torch_is_told_and_can_still_be_asked_in_either_way() -> None:
    program = """
import json, torch
torch.set_float32_matmul_precision("medium")
torch.backends.cudnn.conv.fp32_precision = "tf32"
from engines.hf import TransformersEngine
TransformersEngine("float32")
backends = torch.backends
print(json.dumps([torch.get_float32_matmul_precision(), backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32,
                  backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision,
                  backends.mkldnn.matmul.fp32_precision]))
"""
    order = [sys.executable, "-c", program]
    said = subprocess.run(order, capture_output=True, text=True, check=True, timeout=240, cwd=Path(__file__).parents[2])
    assert json.loads(said.stdout.splitlines()[-1]) == ["highest", False, False, "ieee", "ieee", "ieee"]


def test_doctor_names_the_variable_and_ends_with_one() -> None:
    order = [sys.executable, "-m", "cli.main", "doctor", "--json"]
    root = Path(__file__).parents[2]
    for value, state in (("0", "ok"), ("1", "failed")):
        env = os.environ | {"NVIDIA_TF32_OVERRIDE": value, "PYTHONPATH": str(root)}
        said = subprocess.run(order, env=env, capture_output=True, text=True, timeout=240, cwd=root, check=False)
        found = {check["check"]: check for check in json.loads(said.stdout)}["precision"]
        assert found["state"] == state, said.stdout + said.stderr
        assert state == "ok" or (said.returncode == 1 and "unset NVIDIA_TF32_OVERRIDE" in str(found))


@pytest.mark.gpu
def test_a_gpu_that_was_allowed_tf32_is_told_otherwise(tmp_path: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    assert product_error(linear, "cuda") > MOST_ERROR
    save_tiny(tmp_path)
    TransformersEngine("float32", "cuda").load(tmp_path)
    assert product_error(linear, "cuda") < MOST_ERROR / 8
