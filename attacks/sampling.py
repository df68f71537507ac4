"""Other tokens than the seeded noise picks: greedy, another temperature, re-rolled luck."""

from collections.abc import Sequence
from random import SystemRandom

from attacks.base import Cheat, attack, reseeded
from engines.base import Completion, Request, Sampling
from protocol.seeds import Work
from worker.produce import Planned


@attack("greedy", "always takes the most probable token; proofs and log-probabilities are honest")
class Greedy(Cheat):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        requests = [Request(p.prompt, p.noise_key, self.config.work.max_new_tokens) for p in plan]
        done = self.engine.generate(requests, Sampling(1e-4, self.environment.eos_ids))
        return self.prove([(p.prompt, c.tokens, c.finish) for p, c in zip(plan, done, strict=True)])


@attack("temperature", "samples at another temperature; strength: its factor", 0.7)
class Temperature(Cheat):
    @property
    def sampling(self) -> Sampling:
        return Sampling(self.config.work.temperature * self.strength, self.environment.eos_ids)


@attack("reroll", "draws each completion several times and keeps the best rewarded; strength: draws", 4)
class Reroll(Cheat):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        draws = [super().complete(work, plan)]
        for _ in range(int(self.strength) - 1):
            draws.append(super().complete(work, reseeded(plan, SystemRandom())))
        best = []
        for planned, tries in zip(plan, zip(*draws, strict=True), strict=True):
            seed, target = planned.assignment.problem_seed, planned.assignment.target_length
            best.append(max(tries, key=lambda c: self.environment.score(seed, target, c.tokens).reward))
        return best


@attack("copied-samples", "generates one completion per problem and hands it in for its other samples too")
class CopiedSamples(Cheat):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        firsts = [planned for planned in plan if planned.sample == 0]
        done = super().complete(work, firsts)
        made = {planned.assignment.slot: completion for planned, completion in zip(firsts, done, strict=True)}
        return [made[planned.assignment.slot] for planned in plan]


@attack("seed", "draws its noise from a seed of its own")
class OwnSeed(Cheat):
    def plan(self, work: Work) -> list[Planned]:
        return reseeded(super().plan(work), SystemRandom())
