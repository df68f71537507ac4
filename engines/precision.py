"""Full precision where a pool's dtype is float32: set in torch, then measured before any work is done.

No honest file of a machine that multiplies float32 in TF32 or bfloat16 passes a float32 pool's checks, so it must not
begin. Torch and Triton have switches; some variables of the environment overrule them. Attention is measured apart:
its kernels choose a precision of their own.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from protocol.errors import ConfigError, MusterError, first_line

# x [n, k] and w [m, k] → x · wᵀ [n, m]
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
# In lengths of the two factors. Float32 stays below 2^-23 in any order of summation, TF32 errs by 2^-16 and more.
MOST_ERROR = 2.0**-20
_ROWS, _DEPTH, _COLUMNS = 64, 512, 48
_BITS = 24
# What Triton's kernels multiply float32 in unless they say otherwise, as those of vLLM's attention do not: else TF32.
_TRITON = "TRITON_F32_DEFAULT"
# Variable → the value, besides none, that leaves float32 alone. Libraries read them before torch's switches can be set.
_OVERRULING = {
    "NVIDIA_TF32_OVERRIDE": "0",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "0",
    "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
    "DNNL_DEFAULT_FPMATH_MODE": "STRICT",
    "VLLM_FLOAT32_MATMUL_PRECISION": "highest",
    _TRITON: "ieee",
}


def require_full_precision(dtype: str, device: str) -> None:
    """Check the precision of float32, once in every process that computes, before its first model. Raises ConfigError
    for a variable that lowers it or a device that torch cannot use, MusterError where products are otherwise wrong."""
    if dtype != "float32":
        return
    check_environment(dtype)
    _set_torch()
    for called, product in products(device).items():
        try:
            error = product_error(product, device)
        except (AssertionError, RuntimeError) as failure:  # torch's, for a device that it lacks or that fails
            what = f"torch cannot compute on {device}: {first_line(failure)}"
            raise ConfigError(what, "check `device`, and whether torch is built for it") from None
        if not error <= MOST_ERROR:
            raise MusterError(
                f"{called} on {device} errs by {error:.1e} in float32, where at most {MOST_ERROR:.1e} is right",
                "this machine multiplies in TF32 or less: look for settings of the driver and of torch that allow it, "
                "or work in bfloat16 pools",
            )


def check_environment(dtype: str) -> None:
    """Set what Triton reads. Raises ConfigError for a variable of the environment that lowers the precision of
    float32."""
    for name, harmless in _OVERRULING.items():
        if dtype == "float32" and (value := os.environ.get(name, "")) not in ("", harmless):
            raise ConfigError(
                f"{name}={value} lowers the precision of float32, for which an honest node would be slashed",
                f"unset {name} and start again",
            )
    if dtype == "float32":
        os.environ[_TRITON] = "ieee"


def product_error(product: Product, device: str) -> float:
    """Return the largest difference from the exact product, in lengths of the two factors; NaN where the device gives
    NaN. The factors are multiples of 2^-24 that use all bits of a float32, so the exact product is one of integers."""
    left, right = _integers(_ROWS, 1), _integers(_COLUMNS, 2)
    x, w = (part.to(torch.float32).ldexp(torch.tensor(-_BITS)).to(device) for part in (left, right))
    got = product(x, w).to("cpu", torch.float64)
    exact = (left @ right.T).to(torch.float64).ldexp(torch.tensor(-2 * _BITS))
    length_x, length_w = (part.cpu().double().norm(dim=1) for part in (x, w))
    return float(((got - exact).abs() / torch.outer(length_x, length_w)).max())


def _integers(rows: int, seed: int) -> torch.Tensor:
    """Return [rows, k] odd numbers of at most 24 bits, negative ones too: 512 products add up in 64 bits."""
    source, half = torch.Generator().manual_seed(seed), 1 << (_BITS - 1)
    return 2 * torch.randint(-half, half, (rows, _DEPTH), generator=source) + 1


def _batched(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Multiply as attention does: several small products at once."""
    return torch.bmm(x[None].expand(2, -1, -1).contiguous(), w.T[None].expand(2, -1, -1).contiguous())[1]


def _attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Recover products from what attention makes of them. Values are the rows of an identity, so that it returns its
    probabilities; a last key of zeros gives what they are relative to. Factors are cut to heads of 128."""
    keys, size = len(w) + 1, 128
    q, k = (
        part.reshape(len(part), -1, size).transpose(0, 1)[None]
        for part in (x, torch.cat([w, w.new_zeros(1, len(w[0]))]))
    )
    values = torch.eye(keys, size, device=x.device).expand(1, q.shape[1], -1, -1)
    shares = torch.nn.functional.scaled_dot_product_attention(q, k, values, scale=0.5).double()[..., :keys].log()
    return (shares[..., :-1] - shares[..., -1:]).sum(dim=(0, 1)) / 0.5


PRODUCTS: Mapping[str, Product] = {
    "a linear layer": torch.nn.functional.linear,
    "a batched product": _batched,
    "attention": _attention,
}


def products(device: str) -> Mapping[str, Product]:
    """Return what is measured on a device, by its name."""
    if device == "cpu" or importlib.util.find_spec("triton") is None:
        return PRODUCTS
    from engines.precision_triton import dot

    return {**PRODUCTS, "a product in Triton": dot}


def _set_torch() -> None:
    # The older switches last: they set the newer too, alone of which libraries that ask the older get an error.
    backends: Any = torch.backends
    backends.fp32_precision = "ieee"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
