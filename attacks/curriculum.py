"""Work by another curriculum mask than the policy step's: for pools that have a curriculum."""

from attacks.base import Attack, Cheat, attack
from protocol.seeds import Work, assignments
from worker.produce import Planned, Producer

CURRICULUM_ATTACKS: dict[str, Attack] = {}
"""Of pools with a curriculum; elsewhere they change nothing."""


@attack("resting-problems", "draws its problems as if none were masked", registry=CURRICULUM_ATTACKS)
class RestingProblems(Cheat):
    def plan(self, work: Work) -> list[Planned]:
        plain = assignments(work, self.config.without_curricula)
        plan = []
        for planned in Producer.plan(self, work):
            assignment = plain[planned.assignment.slot]
            prompt = self.environment.prompt(assignment.problem_seed, assignment.target_length)
            plan.append(Planned(assignment, planned.sample, prompt, planned.noise_key))
        return plan
