"""Claims above what is due: rewards, paid units."""

from collections.abc import Sequence
from dataclasses import replace

from attacks.base import Cheat, attack
from engines.base import Completion
from protocol.rollout_file.rows import Rollout
from protocol.seeds import Work
from worker.produce import Planned, Produced


@attack("inflated-reward", "claims full reward for every completion")
class InflatedReward(Cheat):
    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
        # A row that earned everything anyway claims a smaller length penalty or a little more still.
        return [
            replace(row, task_reward=1.0, reward=1.0, length_penalty=0.0)
            if row.task_reward < 1.0 or row.length_penalty
            else replace(row, task_reward=1.5, reward=1.5)
            for row in super().score(plan, completions)
        ]


@attack("inflated-units", "claims more paid tokens than the file has; strength: factor", 1.5)
class InflatedUnits(Cheat):
    def seal(self, work: Work, rollouts: Sequence[Rollout]) -> Produced:
        honest = super().seal(work, rollouts)
        units = int(honest.commitment.units * max(1.0, self.strength)) + 1
        return replace(honest, commitment=replace(honest.commitment, units=units))


@attack("wrong-root", "commits to a Merkle root that is not the file's")
class WrongRoot(Cheat):
    def seal(self, work: Work, rollouts: Sequence[Rollout]) -> Produced:
        honest = super().seal(work, rollouts)
        return replace(honest, commitment=replace(honest.commitment, root=b"\x01" * 32))
