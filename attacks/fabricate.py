"""Text by other means, proven by prefilling it with the true model: TOPLOC sees nothing, the noise does."""

import random
from collections.abc import Sequence

from attacks.base import Cheat, attack, reprove
from protocol.engines.base import FINISH_EOS, FINISH_LENGTH, Completion
from worker.produce import Order, Planned


@attack("fabricate", "writes honest-looking text of its own, then prefills it with the true model")
class Fabricate(Cheat):
    """Texts are the model's own for other luck: as honest-looking as can be, and still not what the noise picks."""

    def complete(self, order: Order, plan: Sequence[Planned]) -> list[Completion]:
        rng = random.Random(order.work.seed)
        keys = [(rng.getrandbits(64), rng.getrandbits(64), rng.getrandbits(64)) for _ in plan]
        texts = [
            c.tokens
            for c in super().complete(
                order, [Planned(p.assignment, p.sample, p.prompt, key) for p, key in zip(plan, keys, strict=True)]
            )
        ]
        finish = [FINISH_EOS if t[-1] in self.workbook.eos_ids else FINISH_LENGTH for t in texts]
        pairs = [(p.prompt, text) for p, text in zip(plan, texts, strict=True)]
        return reprove(self.engine, pairs, finish, self.config.work.temperature)


@attack("gibberish", "writes random tokens up to the limit, then prefills them with the true model")
class Gibberish(Cheat):
    def complete(self, order: Order, plan: Sequence[Planned]) -> list[Completion]:
        rng = random.Random(order.work.seed)
        allowed = [t for t in range(self.workbook.vocabulary) if t not in self.workbook.eos_ids]
        limit = self.config.work.max_new_tokens
        pairs = [(p.prompt, tuple(rng.choice(allowed) for _ in range(limit))) for p in plan]
        return reprove(self.engine, pairs, [FINISH_LENGTH] * len(plan), self.config.work.temperature)
