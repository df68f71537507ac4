"""Text by other means, proven by prefilling it with the true model: TOPLOC sees nothing, the noise does."""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from attacks.base import Cheat, attack, reseeded
from attacks.weights import altered, int8, smaller
from engines.base import FINISH_LENGTH, Completion, Request
from protocol.seeds import Work
from worker.produce import Planned


@attack("fabricate", "writes honest-looking text of its own, then prefills it with the true model")
class Fabricate(Cheat):
    """Texts are the model's own for other luck: as honest-looking as can be, and still not what the noise picks."""

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        done = super().complete(work, reseeded(plan, random.Random(work.seed)))
        return self.prove([(p.prompt, c.tokens, c.finish) for p, c in zip(plan, done, strict=True)])


def _ghostwritten(name: str, help: str, cheaper: Callable[[Path], AbstractContextManager[Path]]) -> None:
    """An attack that lets the model in the folder that `cheaper` makes write the text, with the right noise, and proves
    it by prefilling the true model."""

    @attack(name, help)
    class Ghostwritten(Cheat):
        def load(self, weights: Path) -> None:
            from engines.hf import TransformersEngine

            super().load(weights)
            self.writer = TransformersEngine(dtype=self.engine.info.dtype)
            with cheaper(weights) as folder:
                self.writer.load(folder)

        def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
            limit = self.config.work.max_new_tokens
            texts = self.writer.generate([Request(p.prompt, p.noise_key, limit) for p in plan], self.sampling)
            return self.prove([(p.prompt, text.tokens, text.finish) for p, text in zip(plan, texts, strict=True)])


_ghostwritten(
    "ghostwriter", "lets a model without its last layer write, then prefills the text with the true model", smaller
)
_ghostwritten(
    "ghostwriter-int8",
    "lets the model write with 8-bit weights, then prefills the text with the true weights",
    lambda weights: altered(weights, int8),
)


@attack("gibberish", "writes random tokens up to the limit, then prefills them with the true model")
class Gibberish(Cheat):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        rng = random.Random(work.seed)
        allowed = [t for t in range(self.environment.vocabulary) if t not in self.environment.eos_ids]
        limit = self.config.work.max_new_tokens
        return self.prove([(p.prompt, tuple(rng.choice(allowed) for _ in range(limit)), FINISH_LENGTH) for p in plan])


@attack("partial", "writes gibberish for a share of the rollouts, to test the audit; strength: the share", 0.25)
class Partial(Gibberish):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        cheated = round(self.strength * len(plan))
        honest, lies = Cheat.complete(self, work, plan), super().complete(work, plan)
        return lies[:cheated] + honest[cheated:]
