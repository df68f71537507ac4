"""An output head that answers with log-probabilities and entropies instead of logits, [N, vocabulary] in float32, which
would be the largest tensor of a step by far: only one chunk's exist at a time, computed again for the backward pass."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from protocol.errors import ConfigError

# Tokens of the vocabulary whose gradients are computed at once.
_PRODUCT = 8192


@dataclass(frozen=True)
class HeadTask:
    """What the head is asked about the row it sees next. rows: [N] int64, which hidden states; targets: [N] int64, the
    token that each predicts; temperature divides the logits; gradient: whether the entropy is part of the loss."""

    rows: Tensor
    targets: Tensor
    temperature: float = 1.0
    gradient: bool = True


class ChunkedHead(nn.Linear):
    """In the place of a model's output projection, with its parameters under their names, tied or not.

    `task` must be set before each forward pass of the model, whose `logits` are then [1, N, 2] float32: ln p of the
    target, and the entropy (nats) of softmax(logits / temperature). Logits take about `chunk_bytes`, whatever N is."""

    task: HeadTask | None = None
    chunk_bytes: int = 64 << 20

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the answers to `task` for hidden: [1, L, d]."""
        if self.task is None or hidden.shape[0] != 1:
            raise RuntimeError("the output head needs its task and one packed row of hidden states")
        task = self.task
        rows = max(1, self.chunk_bytes // (4 * self.weight.shape[0]))
        chosen = hidden[0].index_select(0, task.rows)
        if not chosen.is_meta and torch.is_autocast_enabled(chosen.device.type):
            chosen = chosen.to(torch.get_autocast_dtype(chosen.device.type))
        scale = 1.0 / task.temperature
        chunked: Any = _Chunked.apply
        logp, entropy = chunked(chosen, self.weight, self.bias, task.targets, scale, rows)
        entropy = entropy if task.gradient else entropy.detach()
        return torch.stack([logp.unsqueeze(0), entropy.unsqueeze(0)], dim=-1)  # no view: FSDP's hooks hang on it


def install_head(model: Any, chunk_bytes: int = 64 << 20) -> ChunkedHead:
    """Replace a model's output projection. Raises ConfigError if it is none that we know."""
    old = model.get_output_embeddings()
    if not isinstance(old, nn.Linear):
        what = f"the model's output head is a {type(old).__name__}, not a linear projection"
        raise ConfigError(what, "train another model")
    head = ChunkedHead(old.in_features, old.out_features, bias=False, device="meta")
    head.weight, head.bias = old.weight, old.bias
    head.chunk_bytes = chunk_bytes
    head.train(old.training)
    model.set_output_embeddings(head)
    return head


class _Chunked(torch.autograd.Function):
    """(hidden [N, d], weight [V, d], bias [V] or None, targets [N]) → ln p [N], entropy [N]."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, scale: float, rows: int
    ) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(hidden.dtype, torch.float32)
        logp, entropy, total = (hidden.new_empty(hidden.shape[0], dtype=exact) for _ in range(3))
        for at, logs in _chunks(hidden, weight, bias, scale, rows):
            total[at] = torch.logsumexp(logs, dim=-1)
            logs.sub_(total[at].unsqueeze(-1))
            logp[at] = logs.gather(-1, targets[at].unsqueeze(-1)).squeeze(-1)
            entropy[at] = -torch.linalg.vecdot(torch.exp(logs), logs)
        ctx.save_for_backward(hidden, weight, bias, targets, total, entropy)
        ctx.scale, ctx.rows = scale, rows
        ctx.set_materialize_grads(False)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, grad_logp: Tensor | None, grad_entropy: Tensor | None) -> Any:
        hidden, weight, bias, targets, total, entropy = ctx.saved_tensors
        by_target = torch.zeros_like(total) if grad_logp is None else grad_logp
        narrow_weight = weight.to(hidden.dtype)
        grad_hidden = torch.zeros_like(hidden)
        # Where rows before this one have left a sum, theirs is the one buffer of the weight's size.
        sums = weight.grad if weight.is_leaf and weight.dtype == total.dtype else None
        grad_weight = sums
        if sums is None and ctx.needs_input_grad[1]:  # not the head of LoRA
            grad_weight = torch.zeros_like(weight, dtype=total.dtype)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=total.dtype)
        for at, logs in _chunks(hidden, narrow_weight, bias, ctx.scale, ctx.rows):
            logs.sub_(total[at].unsqueeze(-1))
            # By the scaled logits z: d ln p_y / dz = 1_y − p and dH / dz = −p (ln p + H).
            if grad_entropy is None:
                grad = logs.exp_().mul_(-by_target[at].unsqueeze(-1))
            else:
                probability = torch.exp(logs)
                constant = by_target[at] + grad_entropy[at] * entropy[at]
                grad = logs.mul_(-grad_entropy[at].unsqueeze(-1)).sub_(constant.unsqueeze(-1)).mul_(probability)
                del probability
            del logs
            grad.scatter_add_(-1, targets[at].unsqueeze(-1), by_target[at].unsqueeze(-1))
            grad.mul_(ctx.scale)
            if grad_bias is not None:
                grad_bias += grad.sum(0)
            narrow = grad.to(hidden.dtype)
            grad_hidden[at] = narrow @ narrow_weight
            if grad_weight is None:
                continue
            if narrow.dtype == grad_weight.dtype:
                grad_weight.addmm_(narrow.T, hidden[at])
            else:  # a part of the vocabulary at a time: their product has no room beside the sum
                for sum_part, part in zip(
                    torch.split(grad_weight, _PRODUCT), torch.split(narrow, _PRODUCT, dim=1), strict=True
                ):
                    sum_part += part.T @ hidden[at]
        by_bias = None if grad_bias is None else grad_bias.to(bias.dtype)
        by_weight = grad_weight.to(weight.dtype) if grad_weight is not None and sums is None else None
        return grad_hidden, by_weight, by_bias, None, None, None


def _chunks(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, scale: float, rows: int
) -> Iterator[tuple[slice, Tensor]]:
    """Yield (places, scaled logits in at least float32) of `rows` hidden states at a time; keeps no logits itself."""
    exact = torch.promote_types(hidden.dtype, torch.float32)
    weight, bias = weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
    for start in range(0, hidden.shape[0], rows):
        at = slice(start, start + rows)
        logits = nn.functional.linear(hidden[at], weight, bias).to(exact)
        yield at, logits if scale == 1.0 else logits.mul_(scale)
