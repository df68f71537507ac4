"""Packed rows of examples: what the policy computes log-probabilities over when it imitates."""

from collections.abc import Sequence

import torch

from trainer.batches.layout import PackedLayout
from trainer.batches.micro_batch import MicroBatch
from trainer.sft.examples import Example


def packed_row(examples: Sequence[Example], places: Sequence[int], device: torch.device) -> MicroBatch:
    """The row that holds the examples at these places, whose targets are their learned tokens; a dummy for no places.
    All advantages are 1: to imitate is to reinforce what was said."""
    chosen = [examples[place] for place in places]
    layout = PackedLayout([len(one.tokens) for one in chosen] or [1], device)
    tokens = [token for one in chosen for token in one.tokens] or [0]
    learned = [at for at, wanted in enumerate(mark for one in chosen for mark in one.learned) if wanted]
    sizes = torch.tensor([one.targets for one in chosen], dtype=torch.int64)
    at, ids = torch.tensor(learned, dtype=torch.int64), torch.tensor(tokens)
    return MicroBatch(
        places=tuple(places),
        layout=layout,
        tokens=ids.unsqueeze(0).to(device),
        rows=(at - 1).to(device),
        targets=ids[at].to(device),
        advantages=torch.ones(len(learned)).to(device),
        sampled=None,
        sequence=torch.arange(len(chosen)).repeat_interleave(sizes).to(device),
    )
