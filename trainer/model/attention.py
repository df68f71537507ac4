"""Attention inside each sequence of a packed row, in any Hugging Face model that calls attention by its interface: one
variable-length kernel on a GPU in half precision, elsewhere a call of scaled_dot_product_attention for sequences of
equal length. No product between two sequences is computed."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from trainer.data.batch import PackedLayout
from trainer.model.context import SharedLayout

NAME = "muster_packed"
_KINDS = frozenset({"full_attention", "sliding_attention"})


def install_attention(model: Any) -> bool:
    """Let a model see several sequences in one row, if it can; returns whether it does. Recurrent layers, sinks, chunks
    and capped scores would let packed sequences see one another: such a model gets one sequence at a time."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or _KINDS)
    able = getattr(model, "_supports_attention_backend", False) and getattr(model, "_supports_sdpa", False)
    odd = getattr(model, "_is_stateful", False) or getattr(config, "attn_logit_softcapping", None)
    if not able or odd or not kinds <= _KINDS:
        return False
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, lambda *_, **__: None)
    model.set_attn_implementation(NAME)
    return True


@torch.compiler.disable  # type: ignore[untyped-decorator]
def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    packed: PackedLayout | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention behind transformers' interface. query: [1, H, L, D]; key, value: [1, K, L, D] with H a
    multiple of K; returns [1, L, H, D]. Without `packed`, rows [B, H, L, D] are one sequence each; of a shared row, L
    counts this rank's tokens. `sliding_window` counts the token itself. No dropout: log-probabilities must be those of
    the policy that generated."""
    if packed is None:
        return _causal(query, key, value, scaling, sliding_window).transpose(1, 2).contiguous(), None
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    if query.is_meta:
        return _Sized.apply(q, k, v).unsqueeze(0), None  # type: ignore[no-untyped-call]
    if isinstance(packed, SharedLayout):
        q, k, v = packed.context.by_heads(q, k, v)
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        out = _variable_length(q, k, v, packed, scaling, sliding_window)
    else:
        out = _by_length(q, k, v, packed.runs, scaling, sliding_window)
    if isinstance(packed, SharedLayout):
        out = packed.context.by_tokens(out)
    return out.unsqueeze(0), None


class _Sized(torch.autograd.Function):
    """What fused kernels keep and return, by its size: for tensors without contents."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, norms = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, norms)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(kept) for kept in ctx.saved_tensors[:3])


def _by_length(
    q: Tensor, k: Tensor, v: Tensor, runs: list[tuple[int, int]], scaling: float | None, window: int | None
) -> Tensor:
    """[L, heads, D] each → [L, H, D], a call for each run of sequences of equal length."""
    sizes, done = [count * length for count, length in runs], []
    parts = (torch.split(tensor, sizes) for tensor in (q, k, v))
    for run, *part in zip(runs, *parts, strict=True):
        own_q, own_k, own_v = (tensor.view(*run, *tensor.shape[1:]).transpose(1, 2) for tensor in part)
        done.append(_causal(own_q, own_k, own_v, scaling, window).transpose(1, 2).flatten(0, 1))
    return torch.cat(done)


def _causal(q: Tensor, k: Tensor, v: Tensor, scaling: float | None, window: int | None) -> Tensor:
    """[B, H, T, D] and [B, K, T, D] → [B, H, T, D]."""
    length, mask = q.shape[2], None
    if window is not None and window < length:
        positions = torch.arange(length, device=q.device)
        back = positions[:, None] - positions[None, :]
        mask = (back >= 0) & (back < window)
    return scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=q.shape[1] != k.shape[1]
    )


def _variable_length(
    q: Tensor, k: Tensor, v: Tensor, packed: PackedLayout, scaling: float | None, window: int | None
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = (tensor.contiguous() for tensor in (q, k, v))
    bounds, longest = packed.bounds, packed.longest
    out = varlen_attn(
        q, k, v, bounds, bounds, longest, longest,
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    assert isinstance(out, Tensor)
    return out
