"""Other work than the assigned one: chosen problems, repeated problems, targets, prompts."""

import random
from collections.abc import Sequence
from dataclasses import replace

from attacks.base import Cheat, attack
from engines.base import Completion
from protocol.length_tiers import all_targets
from protocol.rollout_file.rows import Rollout
from protocol.seeds import Work
from worker.produce import Planned


class _Reassigned(Cheat):
    """Cheats in the plan; a changed assignment brings the prompt that belongs to it."""

    def relabelled(self, rows: Sequence[Rollout]) -> list[Rollout]:
        """The rows with the prompts that they should have."""
        prompt = self.environment.prompt
        return [replace(row, prompt_tokens=prompt(row.problem_seed, row.target_length)) for row in rows]

    def with_problem(self, planned: Planned, seed: int, target: int) -> Planned:
        assignment = replace(planned.assignment, problem_seed=seed, target_length=target)
        return replace(planned, assignment=assignment, prompt=self.environment.prompt(seed, target))


@attack("chosen-problems", "works on problems of its own choice")
class ChosenProblems(_Reassigned):
    def plan(self, work: Work) -> list[Planned]:
        return [self.with_problem(p, 1000 + p.assignment.slot, p.assignment.target_length) for p in super().plan(work)]


@attack("repeated-problem", "works on its first problem again and again")
class RepeatedProblem(_Reassigned):
    def plan(self, work: Work) -> list[Planned]:
        plan = super().plan(work)
        return [self.with_problem(p, plan[0].assignment.problem_seed, p.assignment.target_length) for p in plan]


@attack("wrong-target", "takes the shortest target length everywhere, of whatever class")
class WrongTarget(_Reassigned):
    def plan(self, work: Work) -> list[Planned]:
        targets = all_targets(self.config.work) or (1, 2)

        def other(target: int) -> int:
            return min(targets) if target != min(targets) else max(targets)

        return [
            self.with_problem(p, p.assignment.problem_seed, other(p.assignment.target_length))
            for p in super().plan(work)
        ]


@attack("truncated-prompt", "leaves out the middle of every prompt")
class TruncatedPrompt(_Reassigned):
    def plan(self, work: Work) -> list[Planned]:
        return [replace(p, prompt=p.prompt[: len(p.prompt) // 2] + p.prompt[-2:]) for p in super().plan(work)]


@attack("altered-prompt", "changes one token of every prompt; strength 1: reports the right prompt all the same")
class AlteredPrompt(_Reassigned):
    def plan(self, work: Work) -> list[Planned]:
        rng = random.Random(work.seed)
        return [replace(planned, prompt=self._altered(planned.prompt, rng)) for planned in super().plan(work)]

    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
        rows = super().score(plan, completions)
        return rows if self.strength < 1 else self.relabelled(rows)

    def _altered(self, prompt: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
        place = rng.randrange(len(prompt))
        return (*prompt[:place], self.another(prompt[place], rng), *prompt[place + 1 :])


@attack("hidden-prompt", "computes on a shortened prompt and reports the right one")
class HiddenPrompt(TruncatedPrompt):
    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
        return self.relabelled(super().score(plan, completions))
