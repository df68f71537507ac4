"""Ranks that share a row: what one rank computes, over architectures, and which models they refuse."""

import re
from pathlib import Path

import pytest
import torch

from protocol.config import AlgorithmConfig, GspoConfig
from protocol.errors import ConfigError
from tests.trainer.crew import on_ranks
from tests.trainer.model.architectures import VOCABULARY, architecture
from trainer.config import MemoryConfig, ParallelConfig
from trainer.data.batch import TrainRollout, micro_batch
from trainer.distributed import Ranks
from trainer.loss import TokenBatch, make_loss
from trainer.model.policy import Policy
from trainer.model.sharding import make_placement, whole

# One sequence spans all ranks of four; 59 tokens are not divisible by them.
LENGTHS = (30, 12, 9, 5, 3)
# Every token of a sequence has part in the gradient of every other.
LOSS = make_loss(AlgorithmConfig(loss=GspoConfig(epsilon_low=0.9, epsilon_high=9), normaliser="sequences"))


def trained(ranks: Ranks, folder: Path, context: int, checkpoint: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Log-probabilities and entropies of a row's tokens, and the gradient of a loss over them."""
    memory = MemoryConfig(checkpoint_activations=checkpoint)
    policy = Policy(folder, placement=make_placement(ParallelConfig(context=context), memory, "cpu", ranks))
    generator = torch.Generator().manual_seed(5)
    samples = []
    for length in LENGTHS:
        tokens = torch.randint(2, VOCABULARY, (length,), generator=generator).tolist()
        samples.append(TrainRollout(tuple(tokens[:2]), tuple(tokens[2:]), 1.0, advantage=1.0 + 0.1 * length))
    row = micro_batch(samples, range(len(samples)), policy.device)
    logp, entropy = policy.logprobs(row, 0.9, entropy_gradient=True)
    batch = TokenBatch(logp, logp.detach() - 0.1, None, row.advantages, entropy, None, row.sequence)
    policy.backward((LOSS(batch).loss + 0.1 * entropy.square()).sum(), last=True)
    gradients = {name: whole(one.grad) for name, one in policy.model.named_parameters() if one.grad is not None}
    return torch.stack([logp, entropy]).detach(), gradients


@pytest.mark.parametrize("kind", ["qwen2 tied", "llama untied", "gemma3 windows", "mistral window", "qwen3 mixture"])
def test_a_shared_row_has_the_log_probabilities_and_gradients_of_a_whole_one(tmp_path: Path, kind: str) -> None:
    """Where four ranks share two heads of keys, too."""
    architecture(kind).save_pretrained(tmp_path)
    logs, gradients = trained(Ranks(), tmp_path, 1, False)
    assert min(float(one.abs().max()) for one in gradients.values()) > 1e-3
    for size in (2, 4):
        for found, shared in on_ranks(size, trained, tmp_path, size, size == 4):
            assert float((found - logs).abs().max()) < 1e-5
            for name, one in gradients.items():
                assert float((shared[name] - one).abs().max()) < 1e-5 * max(1.0, float(one.abs().max())), name


def refused(ranks: Ranks, folder: Path, context: int) -> str:
    with pytest.raises(ConfigError) as caught:
        trained(ranks, folder, context, False)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "world", "context", "why"),
    [
        ("qwen2 tied", 3, 3, "`parallel.context` 3 cannot divide .*: 4 heads of queries, 2 of keys"),
        ("llama4 chunks", 2, 2, "`parallel.context` 2 cannot divide .* does not take packed rows"),
        ("qwen2 tied", 3, 2, "`parallel.context` 2 does not divide 3 ranks"),
    ],
)
def test_attention_that_cannot_be_divided_is_refused(
    tmp_path: Path, kind: str, world: int, context: int, why: str
) -> None:
    architecture(kind).save_pretrained(tmp_path)
    for said in on_ranks(world, refused, tmp_path, context):
        assert re.match(why, said)
