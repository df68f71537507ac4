"""Token losses of GRPO with two-sided clipping (INTELLECT-2), as pure functions over flat token tensors.

Every argument is a tensor [N] over the output tokens of a batch, unless said otherwise.
"""

import torch
from torch import Tensor


def token_logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """ln p(token) and the entropy (nats) of softmax(logits / temperature), in float32.

    logits: [N, V], tokens: [N] int64. Returns two tensors [N].
    """
    logs = torch.log_softmax(logits.float() / temperature, dim=-1)
    chosen = logs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return chosen, -(logs.exp() * logs).sum(-1)


def policy_loss(logp: Tensor, logp_old: Tensor, advantage: Tensor, epsilon: float, delta: float) -> Tensor:
    """−min(min(r, δ)·A, clip(r, 1−ε, 1+ε)·A) per token, r = exp(logp − logp_old).

    δ bounds the ratio where A < 0, which one-sided clipping leaves open: a token that became much likelier under a
    negative advantage would otherwise give an unbounded gradient.
    """
    ratio = torch.exp(logp - logp_old)
    bounded = torch.clamp(ratio, max=delta) * advantage
    clipped = torch.clamp(ratio, 1 - epsilon, 1 + epsilon) * advantage
    return -torch.minimum(bounded, clipped)


def importance_weights(logp_old: Tensor, logp_behaviour: Tensor, cap: float) -> Tensor:
    """min(π_old / π_behaviour, cap) per token: what a stale rollout is worth to the present policy.

    A token that the trainer's policy has meanwhile made unlikely weighs little; without this a delay of two steps at
    the demo's learning rate pushes such tokens down again and again and the run oscillates. The cap bounds what a
    wrong log-prob in a file can do.
    """
    return torch.nan_to_num(torch.exp(logp_old - logp_behaviour), nan=0.0).clamp(max=cap)


def clipped_tokens(logp: Tensor, logp_old: Tensor, advantage: Tensor, epsilon: float, delta: float) -> Tensor:
    """True where clipping removes the gradient: A > 0 and r > 1+ε, or A < 0 and (r < 1−ε or r > δ)."""
    ratio = torch.exp(logp - logp_old)
    up = (advantage > 0) & (ratio > 1 + epsilon)
    down = (advantage < 0) & ((ratio < 1 - epsilon) | (ratio > delta))
    return up | down


def kl_penalty(logp: Tensor, logp_reference: Tensor) -> Tensor:
    """Per-token estimate of KL(policy ‖ reference), e^d − d − 1 with d = logp_reference − logp (never negative)."""
    difference = logp_reference - logp
    return torch.exp(difference) - difference - 1
