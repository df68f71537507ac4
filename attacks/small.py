"""Cheats too small for the checks of a single file of a bf16 pool, for tests of the evidence of a node's history. Those
that change an engine's insides need the transformers engine."""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch

from attacks.base import Attack, Cheat, attack
from attacks.text import Greedy, Temperature
from attacks.weights import Tensors, altered, int8, rounded
from engines.base import FINISH_EOS, FINISH_LENGTH, Completion, Engine
from protocol.config import PoolConfig
from protocol.sampling.noise import U32, Floats32, fill, verify_rows
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


@small("top-p", "never takes a token outside the most probable ones, proven anew; strength: their share", 0.999)
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


@small("temperature-proven", "samples at another temperature and proves the text anew; strength: its factor", 0.98)
class TemperatureProven(Temperature):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        return self.proven(plan, super().complete(work, plan))


@small("greedy-rows", "takes the most probable tokens in some rows, proven anew; strength: their share", 1 / 16)
class GreedyRows(Greedy):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        done = Producer.complete(self, work, plan)
        rows = random.Random(work.seed).sample(range(len(plan)), max(1, round(self.strength * len(plan))))
        greedy = super().complete(work, [plan[row] for row in rows])
        for row, made in zip(rows, greedy, strict=True):
            done[row] = made
        return done


Text = tuple[int, ...]


class Steer(Cheat):
    """In a completion that did not earn the most, swaps one token for one that earns more and whose score is at most
    `strength` nats below the best, if the rest of the text stays so near too; then proves the text honestly."""

    most = 1.0  # No completion earns more
    tries = 3  # Of a completion, at most

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        done = super().complete(work, plan)
        prefills = self.engine.prefill([(p.prompt, c.tokens) for p, c in zip(plan, done, strict=True)])
        swaps = [
            (plan[row], row, text)
            for row, own in enumerate(prefills)
            for text in self._better(plan[row], done[row].tokens, own.logits.numpy())
        ]
        prefills = self.engine.prefill([(planned.prompt, text) for planned, _, text in swaps])
        near = [swap for swap, own in zip(swaps, prefills, strict=True) if self._is_near(*swap, own.logits.numpy())]
        eos = self.environment.eos_ids
        texts = [(p.prompt, text, FINISH_EOS if text[-1] in eos else FINISH_LENGTH) for p, _, text in near]
        for (planned, row, text), proven in zip(near, self.prove(texts), strict=True):
            if self._reward(planned, text) > self._reward(planned, done[row].tokens):
                done[row] = proven
        return done

    def _reward(self, planned: Planned, tokens: Text) -> float:
        problem = planned.assignment
        return float(self.environment.score(problem.problem_seed, problem.target_length, tokens).reward)

    def _better(self, planned: Planned, tokens: Text, logits: Floats32) -> list[Text]:
        """Return the best rewarded swaps, best first."""
        before = self._reward(planned, tokens)
        if before >= self.most:
            return []
        rewards = {text: self._reward(planned, text) for text in sorted({*self._swapped(planned, tokens, logits)})}
        better = [text for text, reward in rewards.items() if reward > before]
        return sorted(better, key=lambda text: -rewards[text])[: self.tries]

    def _swapped(self, planned: Planned, tokens: Text, logits: Floats32) -> Iterator[Text]:
        """Yield the text with one token swapped for another whose score is near enough; it ends at an EOS."""
        eos, limit = self.environment.eos_ids, self.config.work.max_new_tokens
        raw = np.empty(logits.shape, dtype=np.uint32)
        keys = np.array([planned.noise_key] * len(tokens), dtype=np.uint64)
        fill(keys, np.arange(len(tokens), dtype=np.uint64), raw)
        scores = logits / self.config.work.temperature - np.log(-np.log1p(-(raw + 0.5) * U32 * (1 - 2.0**-24)))
        for place, token in zip(*np.nonzero(scores >= scores.max(axis=1, keepdims=True) - self.strength), strict=True):
            text = (*tokens[:place], int(token), *(() if int(token) in eos else tokens[place + 1 :]))
            if int(token) != tokens[place] and (text[-1] in eos or len(text) == limit):
                yield text

    def _is_near(self, planned: Planned, row: int, text: Text, logits: Floats32) -> bool:
        """Return whether every token is within the gap when the swapped text is read from its start."""
        keys, temperature = [planned.noise_key] * len(text), self.config.work.temperature
        return bool(verify_rows(logits, text, keys, range(len(text)), temperature).gaps.max() <= self.strength)
