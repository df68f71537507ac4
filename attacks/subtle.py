"""Cheats too small for the checks of a single file of a bf16 pool, for tests of the evidence of a node's history. Those
that change an engine's insides need the transformers engine."""

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from attacks.base import Attack, Cheat, attack
from attacks.text import Greedy, Temperature
from attacks.weights import Tensors, altered, int8, rounded
from engines.base import Completion, Engine
from protocol.config import PoolConfig
from protocol.seeds import Work
from worker.produce import Planned, Producer

SMALL_ATTACKS: dict[str, Attack] = {}


def small(name: str, help: str, default: float = 0.0) -> Callable[[type[Cheat]], type[Cheat]]:
    return attack(name, help, default, SMALL_ATTACKS)


@small("layer-int8", "computes with one layer's matrices rounded to 8 bits; strength: which layer")
class LayerInt8(Cheat):
    def load(self, weights: Path) -> None:
        layer = f".layers.{int(self.strength)}."

        def change(tensors: Tensors) -> Tensors:
            return tensors | int8({name: tensor for name, tensor in tensors.items() if layer in name})

        with altered(weights, change) as folder:
            super().load(folder)


@small("lora", "computes with a product of rank 4 added to each matrix; strength: share of its root mean square", 0.001)
class LowRank(Cheat):
    def load(self, weights: Path) -> None:
        source = torch.Generator().manual_seed(0)

        def change(tensors: Tensors) -> Tensors:
            return {
                name: self._moved(tensor, source) if tensor.ndim == 2 else tensor
                for name, tensor in sorted(tensors.items())
            }

        with altered(weights, change) as folder:
            super().load(folder)

    def _moved(self, matrix: torch.Tensor, source: torch.Generator) -> torch.Tensor:
        down, up = (torch.randn(size, generator=source) for size in ((4, matrix.shape[1]), (matrix.shape[0], 4)))
        size = self.strength * matrix.float().pow(2).mean().sqrt() / 2  # √rank
        return (matrix.float() + size * (up @ down)).to(matrix.dtype)


@small("kv-int8", "keeps keys and values rounded to 8 bits, each head's of each token by its own scale")
class KvInt8(Cheat):
    def __init__(self, config: PoolConfig, engine: Engine, strength: float) -> None:
        from transformers import DynamicCache

        class Int8Cache(DynamicCache):
            def update(
                self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *rest: Any, **more: Any
            ) -> tuple[torch.Tensor, torch.Tensor]:
                return super().update(rounded(key_states), rounded(value_states), layer_idx, *rest, **more)

        super().__init__(config, engine, strength)
        inside: Any = engine
        inside._cache = lambda: Int8Cache(config=inside.model.config)


@small("stale-prefill", "reads prompts with the policy step before and goes on with the current one")
class StalePrefill(Cheat):
    def __init__(self, config: PoolConfig, engine: Engine, strength: float) -> None:
        from engines.hf import TransformersEngine

        super().__init__(config, engine, strength)
        inside: Any = engine
        older: Any = TransformersEngine(inside.dtype, inside.device, max_batch=inside.max_batch)
        own = inside._forward

        def forward(ids: torch.Tensor, *rest: Any) -> Any:
            return (older._forward if ids.shape[1] > 1 else own)(ids, *rest)

        self._older, self._before = older, Path()
        inside._forward = forward

    def load(self, weights: Path) -> None:
        before, self._before = self._before, Path(mkdtemp(prefix="muster-attack-"))
        shutil.copytree(weights, self._before, dirs_exist_ok=True)
        self._older.load(before if before != Path() else weights)
        super().load(weights)


@small("top-p", "never takes a token outside the most probable ones, proven again; strength: their share", 0.999)
class TopP(Cheat):
    def __init__(self, config: PoolConfig, engine: Engine, strength: float) -> None:
        super().__init__(config, engine, strength)
        inside: Any = engine
        own, self._choosing = inside._head, False

        def head(hidden: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = own(hidden)
            if not self._choosing:
                return logits
            chances, order = (logits / config.work.temperature).softmax(-1).sort(descending=True)
            out = chances.cumsum(-1) - chances >= strength
            # Far below the rest, and finite.
            return logits.masked_fill(out.gather(-1, order.argsort(-1)), float(logits.min()) - 50.0)

        inside._head = head

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        self._choosing = True
        try:
            done = super().complete(work, plan)
        finally:
            self._choosing = False
        return self.proven(plan, done)


@small("temperature-proven", "samples at another temperature and proves the text again; strength: its factor", 0.98)
class TemperatureProven(Temperature):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        return self.proven(plan, super().complete(work, plan))


@small("greedy-rows", "takes the most probable tokens in some rows, proven again; strength: their share", 1 / 16)
class GreedyRows(Greedy):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        done = Producer.complete(self, work, plan)
        rows = random.Random(work.seed).sample(range(len(plan)), max(1, round(self.strength * len(plan))))
        greedy = super().complete(work, [plan[row] for row in rows])
        for row, completion in zip(rows, greedy, strict=True):
            done[row] = completion
        return done
