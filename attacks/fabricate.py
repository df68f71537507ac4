"""Text by other means, proven by prefilling it with the true model: TOPLOC sees nothing, the noise does."""

import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attacks.base import Cheat, attack, reprove
from attacks.weights import altered_copy, int8, smaller_copy
from engines.base import FINISH_LENGTH, Completion, Request
from protocol.seeds import Work
from worker.produce import Planned


@attack("fabricate", "writes honest-looking text of its own, then prefills it with the true model")
class Fabricate(Cheat):
    """Texts are the model's own for other luck: as honest-looking as can be, and still not what the noise picks."""

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        rng = random.Random(work.seed)
        keys = [(rng.getrandbits(64), rng.getrandbits(64), rng.getrandbits(64)) for _ in plan]
        lucky = [replace(p, noise_key=key) for p, key in zip(plan, keys, strict=True)]
        return self.reproved(plan, super().complete(work, lucky))


class _Ghostwritten(Cheat, ABC):
    """Lets a cheaper model write the text, with the right noise, and proves it by prefilling the true model."""

    @abstractmethod
    def cheaper(self, weights: Path) -> Path:
        """A temporary folder with the weights of the model that writes."""

    def load(self, weights: Path) -> None:
        from engines.hf import TransformersEngine

        super().load(weights)
        self.writer = TransformersEngine(dtype=self.engine.info.dtype)
        folder = self.cheaper(weights)
        try:
            self.writer.load(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        limit = self.config.work.max_new_tokens
        texts = self.writer.generate([Request(p.prompt, p.noise_key, limit) for p in plan], self.sampling)
        return self.reproved(plan, texts)


@attack("ghostwriter", "lets a model without its last layer write, then prefills the text with the true model")
class Ghostwriter(_Ghostwritten):
    def cheaper(self, weights: Path) -> Path:
        return smaller_copy(weights)


@attack("ghostwriter-int8", "lets the model write with 8-bit weights, then prefills the text with the true weights")
class GhostwriterInt8(_Ghostwritten):
    def cheaper(self, weights: Path) -> Path:
        return altered_copy(weights, int8)


@attack("gibberish", "writes random tokens up to the limit, then prefills them with the true model")
class Gibberish(Cheat):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        rng = random.Random(work.seed)
        allowed = [t for t in range(self.environment.vocabulary) if t not in self.environment.eos_ids]
        limit = self.config.work.max_new_tokens
        pairs = [(p.prompt, tuple(rng.choice(allowed) for _ in range(limit))) for p in plan]
        return reprove(self.engine, pairs, [FINISH_LENGTH] * len(plan), self.config.work.temperature)
