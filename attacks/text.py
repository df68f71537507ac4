"""Other tokens than the seeded noise picks: greedy, another temperature, re-rolled luck, edits, another model's."""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from random import SystemRandom

from attacks.base import Cheat, alters, attack, reseeded
from attacks.weights import altered, int8, smaller
from engines.base import FINISH_EOS, FINISH_LENGTH, Completion, Request, Sampling
from protocol.seeds import Work
from worker.produce import Planned


@attack("greedy", "always takes the most probable token; proofs and log-probabilities are honest")
class Greedy(Cheat):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        requests = [Request(p.prompt, p.noise_key, self.config.work.max_new_tokens) for p in plan]
        return self.proven(plan, self.engine.generate(requests, Sampling(1e-4, self.environment.eos_ids)))


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
        done = super().complete(work, [planned for planned in plan if planned.sample == 0])
        return [done[planned.assignment.slot] for planned in plan]


@alters("plan", "seed", "draws its noise from a seed of its own")
def own_seed(cheat: Cheat, plan: list[Planned], work: Work) -> list[Planned]:
    return reseeded(plan, SystemRandom())


# Text changed after it was generated

Edit = Callable[[Cheat, Completion, random.Random], Completion]


def _edits(name: str, help: str, single: bool = False) -> Callable[[Edit], Edit]:
    """Register an attack that edits completions, or one of them; with strength 1 the true model proves the result."""

    def register(edit: Edit) -> Edit:
        @alters("complete", name, help)
        def edited(
            cheat: Cheat, completions: list[Completion], work: Work, plan: Sequence[Planned]
        ) -> list[Completion]:
            rng = random.Random(work.seed)
            victims = {rng.randrange(len(completions))} if single else range(len(completions))
            completions = [edit(cheat, c, rng) if number in victims else c for number, c in enumerate(completions)]
            return completions if cheat.strength < 1 else cheat.proven(plan, completions)

        return edit

    return register


def fitted(completion: Completion, tokens: tuple[int, ...], finish: int) -> Completion:
    """Return the completion with other tokens, its proofs and log-probabilities cut or repeated to fit."""
    chunks = -(-len(tokens) // 32)
    proofs = (completion.proofs * chunks)[:chunks]
    logprobs = (completion.logprobs * len(tokens))[: len(tokens)]
    return replace(completion, tokens=tokens, finish=finish, proofs=proofs, logprobs=logprobs)


@_edits("token-swap", "replaces one token of one completion; strength 1: proves the result again", single=True)
def token_swap(cheat: Cheat, completion: Completion, rng: random.Random) -> Completion:
    # A swapped last token leaves no trace in activations: an EOS is missed, or log-probability and noise show it.
    tokens, position = list(completion.tokens), rng.randrange(len(completion.tokens))
    tokens[position] = cheat.another(tokens[position], rng)
    return replace(completion, tokens=tuple(tokens))


@_edits("early-eos", "cuts completions short with an EOS; strength 1: proves the result again")
def early_eos(cheat: Cheat, completion: Completion, rng: random.Random) -> Completion:
    half = max(1, len(completion.tokens) // 2)
    return fitted(completion, (*completion.tokens[: half - 1], cheat.environment.eos_ids[0]), FINISH_EOS)


@_edits("padding", "goes on after the end up to the length limit, which is paid; strength 1: proves the result again")
def padding(cheat: Cheat, completion: Completion, rng: random.Random) -> Completion:
    body = completion.tokens[:-1] if completion.finish == FINISH_EOS else completion.tokens
    limit = cheat.config.work.max_new_tokens
    return fitted(completion, ((*body, *body, 65) * limit)[:limit], FINISH_LENGTH)


@_edits("truncated", "drops the second half of completions")
def truncated(cheat: Cheat, completion: Completion, rng: random.Random) -> Completion:
    return fitted(completion, completion.tokens[: max(1, len(completion.tokens) // 2)], FINISH_LENGTH)


# Text by other means, proven by prefilling it with the true model: TOPLOC sees nothing, the noise does


@attack("fabricate", "writes honest-looking text of its own, then prefills it with the true model")
class Fabricate(Cheat):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        return self.proven(plan, super().complete(work, reseeded(plan, random.Random(work.seed))))


def _ghostwritten(name: str, help: str, cheaper: Callable[[Path], AbstractContextManager[Path]]) -> None:
    """Register an attack that lets the model that `cheaper` makes write the text, with the right noise, and proves
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
            requests = [Request(p.prompt, p.noise_key, self.config.work.max_new_tokens) for p in plan]
            return self.proven(plan, self.writer.generate(requests, self.sampling))


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
