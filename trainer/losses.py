"""Log-probabilities of chosen tokens from logits."""

import torch
from torch import Tensor


def token_logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """ln p(token) and the entropy (nats) of softmax(logits / temperature), in float32.

    logits: [N, V], tokens: [N] int64. Returns two tensors [N].
    """
    logs = torch.log_softmax(logits.float() / temperature, dim=-1)
    chosen = logs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return chosen, -(logs.exp() * logs).sum(-1)
