# mypy: ignore-errors
"""A product in Triton, at the precision that its kernels have unless they say otherwise: vLLM's attention is one."""

import torch
import triton
import triton.language as tl


@triton.jit
def _dot(x, w, out, columns, DEPTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, DEPTH, STEP):
        lanes = start + tl.arange(0, STEP)
        left = tl.load(x + row[:, None] * DEPTH + lanes[None])
        right = tl.load(w + column[None] * DEPTH + lanes[:, None], mask=column[None] < columns, other=0.0)
        total += tl.dot(left, right)
    tl.store(out + row[:, None] * columns + column[None], total, mask=column[None] < columns)


def dot(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return x · wᵀ [n, m] of contiguous x [n, k] and w [m, k]; n is a power of two and k a multiple of 64."""
    out = torch.empty(len(x), len(w), device=x.device)
    sizes = {"ROWS": len(x), "COLUMNS": triton.next_power_of_2(len(w)), "STEP": 64}
    _dot[(1,)](x, w, out, len(w), x.shape[1], **sizes)
    return out
