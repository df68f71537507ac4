"""Cheating on a fraction of a file only, to test the random audit."""

from collections.abc import Sequence

from attacks.base import Cheat, attack
from attacks.fabricate import Gibberish
from engines.base import Completion
from protocol.seeds import Work
from worker.produce import Planned


@attack("partial", "writes gibberish for a share of the rollouts; strength: the share", 0.25)
class Partial(Cheat):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        liar = Gibberish(self.config, self.engine, 0.0)
        liar._environment = self._environment
        honest, lies = super().complete(work, plan), liar.complete(work, plan)
        cheated = round(self.strength * len(plan))
        return lies[:cheated] + honest[cheated:]
