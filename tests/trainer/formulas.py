"""The papers' formulas as slow sums over Python floats, and small batches to try them on."""

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from trainer.loss import TokenBatch

LOGS = st.floats(-9, 0)


@dataclass(frozen=True)
class OneToken:
    """One output token of a sequence: ln p under each policy, and its advantage."""

    logp: float
    old: float
    sampled: float
    reference: float
    advantage: float


Sequences = list[list[OneToken]]


SIGNED = st.floats(0.01, 3).flatmap(lambda size: st.sampled_from([size, -size]))
ANY = st.just(0.0) | SIGNED


@st.composite
def sequences(draw: st.DrawFn, advantages: st.SearchStrategy[float] = ANY) -> Sequences:
    """1 to 4 sequences of 1 to 5 tokens; one advantage for all tokens of a sequence."""
    made = []
    for _ in range(draw(st.integers(1, 4))):
        advantage = draw(advantages)
        token = st.builds(OneToken, LOGS, LOGS, LOGS, LOGS, st.just(advantage))
        made.append(draw(st.lists(token, min_size=1, max_size=5)))
    return made


def token_batch(made: Sequences, dtype: torch.dtype = torch.float64) -> TokenBatch:
    """The tokens as flat tensors; `logp` and `entropy` are leaves with gradients."""
    tokens = flat(made)
    columns = {
        name: torch.tensor([getattr(token, name) for token in tokens], dtype=dtype)
        for name in ("logp", "old", "sampled", "reference", "advantage")
    }
    columns["logp"].requires_grad_(True)
    entropy = torch.full((len(tokens),), 0.5, dtype=dtype, requires_grad=True)
    sequence = torch.tensor([number for number, one in enumerate(made) for _ in one], dtype=torch.int64)
    return TokenBatch(entropy=entropy, sequence=sequence, **columns)


def flat(made: Sequences) -> list[OneToken]:
    return [token for sequence in made for token in sequence]


def clip(value: float, low: float, high: float) -> float:
    return max(low, min(high, value))


def grpo(token: OneToken, low: float, high: float, delta: float | None) -> float:
    ratio = math.exp(token.logp - token.old)
    free = ratio if delta is None else min(ratio, delta)
    return -min(free * token.advantage, clip(ratio, 1 - low, 1 + high) * token.advantage)


def sequence_ratio(sequence: list[OneToken]) -> float:
    """(π(y) / π_old(y))^(1/|y|)."""
    new, old = math.fsum(token.logp for token in sequence), math.fsum(token.old for token in sequence)
    return math.exp((new - old) / len(sequence))


def gspo(sequence: list[OneToken], low: float, high: float) -> float:
    """One number for the sequence."""
    ratio, advantage = sequence_ratio(sequence), sequence[0].advantage
    return -min(ratio * advantage, clip(ratio, 1 - low, 1 + high) * advantage)


def cispo(token: OneToken, ratio_max: float) -> float:
    return -min(math.exp(token.logp - token.old), ratio_max) * token.advantage * token.logp


def dppo(token: OneToken, low: float, high: float, squared: float, cap: float) -> float:
    behaviour = max(token.sampled, token.old - math.log(cap))
    new, was = math.exp(token.logp), math.exp(behaviour)
    masked = (token.advantage > 0 and new - was > high) or (token.advantage < 0 and was - new > low)
    policy = 0.0 if masked else -token.advantage * new / was
    return policy + squared * (token.logp - behaviour) ** 2


def importance(token: OneToken, cap: float) -> float:
    return min(math.exp(token.old - token.sampled), cap)


def masked(by: str, low: float, high: float, token: OneToken, sequence: list[OneToken]) -> bool:
    """Whether one mask leaves a token of this sequence out."""
    ratios = [math.exp(one.old - one.sampled) for one in sequence]
    value = {
        "token": math.exp(token.old - token.sampled),
        "sequence": math.prod(ratios) ** (1 / len(ratios)),
        "rollout": math.fsum(max(ratio, 1 / ratio) for ratio in ratios) / len(ratios),
    }[by]
    return not low <= value <= high


def k3(token: OneToken) -> float:
    ratio = math.exp(token.reference - token.logp)
    return ratio - math.log(ratio) - 1
