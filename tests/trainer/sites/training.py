"""Real pseudo-gradients: a small model that several sites train with AdamW, each on texts of its own kind."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.site_lines import TASKS as TASKS
from benchmarks.site_lines import text
from engines.loading import load_model
from protocol.sites.layout import F32
from tests.trainer.helpers import small_model


class SiteModel:
    """A model whose weights are set, trained for some steps, and read as float32 arrays by name."""

    def __init__(self, folder: Path) -> None:
        self.model: Any = load_model(small_model(folder), "float32")

    @property
    def weights(self) -> dict[str, F32]:
        return {name: one.detach().numpy().copy() for name, one in self.model.named_parameters()}

    def train(
        self, weights: dict[str, F32], tasks: Sequence[str], seed: int, steps: int, rate: float
    ) -> dict[str, F32]:
        """The weights after `steps` of AdamW on batches of 8 lines; the optimiser is new."""
        with torch.no_grad():
            for name, one in self.model.named_parameters():
                one.copy_(torch.tensor(weights[name]))
        self.model.train().requires_grad_(True)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate)
        dice = random.Random(seed)
        for _ in range(steps):
            lines = torch.tensor([list(text(dice.choice(tasks), dice)) for _ in range(8)])
            loss = self.model(input_ids=lines, labels=lines).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self.loss = float(loss.detach())
        return self.weights


def pseudo_gradient(outer: dict[str, F32], inner: dict[str, F32]) -> dict[str, F32]:
    return {name: outer[name] - inner[name] for name in outer}
