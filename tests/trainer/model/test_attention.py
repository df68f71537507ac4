"""Packed rows against each sequence alone, by the model's own attention, over architectures."""

import random

import pytest
import torch
from torch import Tensor

from tests.trainer.model.architectures import PACKED, UNPACKED, VOCABULARY, architecture
from trainer.data.batch import PackedLayout
from trainer.model.attention import install_attention

LENGTHS = (40, 33, 31, 9, 8, 8, 3, 1)


def some_sequences() -> list[Tensor]:
    dice = random.Random(5)
    return [torch.tensor([dice.randrange(2, VOCABULARY) for _ in range(length)]) for length in LENGTHS]


@pytest.mark.parametrize("kind", PACKED)
def test_packed_log_probabilities_and_gradients_equal_those_of_each_sequence_alone(kind: str) -> None:
    sequences = some_sequences()
    plain, packed = architecture(kind), architecture(kind)
    plain.set_attn_implementation("eager")
    alone = torch.cat([plain(input_ids=one[None], use_cache=False).logits[0] for one in sequences]).log_softmax(-1)
    assert install_attention(packed)
    layout = PackedLayout([len(one) for one in sequences])
    row = torch.cat(sequences)
    result = packed(input_ids=row[None], position_ids=layout.positions, use_cache=False, packed=layout)
    together = result.logits[0].log_softmax(-1)
    assert float((together - alone).detach().abs().max()) < 1e-5
    for logs in (alone, together):
        logs.gather(-1, row.roll(-1)[:, None]).mean().backward()
    for (name, one), other in zip(plain.named_parameters(), packed.parameters(), strict=True):
        if one.grad is not None:
            assert torch.allclose(one.grad, other.grad, atol=1e-5), name


@pytest.mark.parametrize("kind", UNPACKED)
def test_models_that_would_mix_packed_sequences_are_known(kind: str) -> None:
    model = architecture(kind)
    before = model.config._attn_implementation
    assert not install_attention(model)
    assert model.config._attn_implementation == before


def test_checkpointed_layers_see_the_same_sequences_apart() -> None:
    sequences = some_sequences()
    layout = PackedLayout([len(one) for one in sequences])
    gradients = []
    for checkpointed in (False, True):
        model = architecture("gemma3 windows")
        install_attention(model)
        if checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        row = torch.cat(sequences)[None]
        result = model(input_ids=row, position_ids=layout.positions, use_cache=False, packed=layout)
        result.logits.square().mean().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert torch.equal(*gradients)
