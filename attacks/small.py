"""Cheats too small for the checks of any single file of a bf16 pool, for tests of the evidence of a node's history.

They are not in the registry, which holds what the checks of a single file refuse. Those that change an engine's insides
need the transformers engine.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch

from attacks.base import Attack, Cheat, attack
from attacks.text import Greedy, Temperature
from attacks.weights import Tensors, altered, int8
from engines.base import FINISH_EOS, FINISH_LENGTH, Completion, Engine
from protocol.config import PoolConfig
from protocol.sampling.noise import U32, Floats, Floats32, NoiseKey, fill, verify_rows
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
            chosen = {name: tensor for name, tensor in tensors.items() if layer in name}
            return tensors | int8(chosen)

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
                return super().update(_rounded(key_states), _rounded(value_states), layer_idx, *rest, **more)

        super().__init__(config, engine, strength)
        inside: Any = engine
        inside._cache = lambda: Int8Cache(config=inside.model.config)


def _rounded(states: torch.Tensor) -> torch.Tensor:
    scale = states.float().abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / 127
    return ((states.float() / scale).round() * scale).to(states.dtype)


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


@dataclass(frozen=True)
class _Swap:
    """A text with one token swapped, and the reward that it earns."""

    tokens: Text
    reward: float


class Steer(Cheat):
    """`strength` is the largest score gap it dares, in nats. Of a completion that did not earn the most, it swaps one
    token for one within that gap that earns more, if the rest of the text stays within the gap after it; proofs and
    log-probabilities are honest ones of the swapped text."""

    most = 1.0
    """No completion earns more."""

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        done = super().complete(work, plan)
        prefills = self.engine.prefill([(p.prompt, c.tokens) for p, c in zip(plan, done, strict=True)])
        wanted: dict[int, list[_Swap]] = {}
        for row, (planned, made, own) in enumerate(zip(plan, done, prefills, strict=True)):
            if found := self._swaps(planned, made, own.logits.numpy()):
                wanted[row] = found
        tries = self._within_gaps(plan, [(row, swap) for row, swaps in wanted.items() for swap in swaps])
        proven = self.prove([self._text(plan[row], swap.tokens) for row, swap in tries])
        for (row, swap), made in zip(tries, proven, strict=True):
            if self._reward(plan[row], done[row].tokens) < swap.reward:
                done[row] = made
        return done

    def _reward(self, planned: Planned, tokens: Text) -> float:
        problem = planned.assignment
        return float(self.environment.score(problem.problem_seed, problem.target_length, tokens).reward)

    def _swaps(self, planned: Planned, made: Completion, logits: Floats32) -> list[_Swap]:
        """The best rewarded swaps, at most three, best first."""
        before = self._reward(planned, made.tokens)
        if before >= self.most:
            return []
        texts = {text for text in self._within(planned, made.tokens, logits) if self._ends(text)}
        swaps = [_Swap(text, self._reward(planned, text)) for text in sorted(texts)]
        better = sorted((swap for swap in swaps if swap.reward > before), key=lambda swap: -swap.reward)
        return better[:3]

    def _within(self, planned: Planned, tokens: Text, logits: Floats32) -> Iterator[Text]:
        """The text with one token swapped for another whose score is near enough; it ends at an EOS."""
        raw = np.empty(logits.shape, dtype=np.uint32)
        keys = np.array([planned.noise_key] * len(tokens), dtype=np.uint64)
        fill(keys, np.arange(len(tokens), dtype=np.uint64), raw)
        scores = logits / self.config.work.temperature - np.log(-np.log1p(-(raw + 0.5) * U32 * (1 - 2.0**-24)))
        for place, token in zip(*np.nonzero(scores >= scores.max(axis=1, keepdims=True) - self.strength), strict=True):
            if int(token) != tokens[place]:
                rest = () if int(token) in self.environment.eos_ids else tokens[place + 1 :]
                yield (*tokens[:place], int(token), *rest)

    def _ends(self, text: Text) -> bool:
        return text[-1] in self.environment.eos_ids or len(text) == self.config.work.max_new_tokens

    def _text(self, planned: Planned, tokens: Text) -> tuple[Text, Text, int]:
        return planned.prompt, tokens, FINISH_EOS if tokens[-1] in self.environment.eos_ids else FINISH_LENGTH

    def _within_gaps(self, plan: Sequence[Planned], tries: Sequence[tuple[int, _Swap]]) -> list[tuple[int, _Swap]]:
        """Those whose every token is within the gap when the swapped text is read from its start."""
        temperature = self.config.work.temperature
        prefills = self.engine.prefill([(plan[row].prompt, swap.tokens) for row, swap in tries])
        gaps = [
            _gaps(own.logits.numpy(), swap.tokens, plan[row].noise_key, temperature).max()
            for (row, swap), own in zip(tries, prefills, strict=True)
        ]
        return [one for one, gap in zip(tries, gaps, strict=True) if gap <= self.strength]


def _gaps(logits: Floats32, tokens: Text, key: NoiseKey, temperature: float) -> Floats:
    """Return the score gap of every token of one completion."""
    return verify_rows(logits, tokens, [key] * len(tokens), range(len(tokens)), temperature).gaps
