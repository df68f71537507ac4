"""Text changed after it was generated: a swapped token, an early EOS, padding to the limit."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from attacks.base import Cheat, attack
from engines.base import FINISH_EOS, FINISH_LENGTH, Completion
from protocol.seeds import Work
from worker.produce import Planned


class _Edited(Cheat, ABC):
    """Edits completions; with `strength` ≥ 1 the edited text is proven anew with the true model."""

    @abstractmethod
    def edit(self, completion: Completion, rng: random.Random) -> Completion:
        """The completion as it is handed in."""

    def victims(self, completions: Sequence[Completion], rng: random.Random) -> set[int]:
        return set(range(len(completions)))

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        done = super().complete(work, plan)
        rng = random.Random(work.seed)
        chosen = self.victims(done, rng)
        done = [self.edit(c, rng) if n in chosen else c for n, c in enumerate(done)]
        if self.strength < 1:
            return done
        return self.prove([(p.prompt, c.tokens, c.finish) for p, c in zip(plan, done, strict=True)])


def fitted(completion: Completion, tokens: tuple[int, ...], finish: int) -> Completion:
    """The completion with other tokens, its proofs and log-probabilities cut or repeated to fit."""
    chunks = -(-len(tokens) // 32)
    proofs = (completion.proofs * chunks)[:chunks]
    logprobs = (completion.logprobs * len(tokens))[: len(tokens)]
    return replace(completion, tokens=tokens, finish=finish, proofs=proofs, logprobs=logprobs)


@attack("token-swap", "replaces one token of one completion, wherever; strength 1: proves the result anew")
class TokenSwap(_Edited):
    def victims(self, completions: Sequence[Completion], rng: random.Random) -> set[int]:
        return {rng.randrange(len(completions))}

    def edit(self, completion: Completion, rng: random.Random) -> Completion:
        # A swapped last token leaves no trace in activations: an EOS is missed, or log-probability and noise show it.
        place = rng.randrange(len(completion.tokens))
        swapped = self.another(completion.tokens[place], rng)
        return replace(completion, tokens=(*completion.tokens[:place], swapped, *completion.tokens[place + 1 :]))


@attack("early-eos", "cuts completions short with an EOS; strength 1: proves the result anew")
class EarlyEos(_Edited):
    def edit(self, completion: Completion, rng: random.Random) -> Completion:
        half = max(1, len(completion.tokens) // 2)
        return fitted(completion, (*completion.tokens[: half - 1], self.environment.eos_ids[0]), FINISH_EOS)


@attack("padding", "goes on after the end up to the length limit, which is paid; strength 1: proves the result anew")
class Padding(_Edited):
    def edit(self, completion: Completion, rng: random.Random) -> Completion:
        body = completion.tokens[:-1] if completion.finish == FINISH_EOS else completion.tokens
        limit = self.config.work.max_new_tokens
        tokens = ((*body, *body, 65) * limit)[:limit]
        return fitted(completion, tokens, FINISH_LENGTH)


@attack("truncated", "drops the second half of completions")
class Truncated(_Edited):
    def edit(self, completion: Completion, rng: random.Random) -> Completion:
        half = max(1, len(completion.tokens) // 2)
        return fitted(completion, completion.tokens[:half], FINISH_LENGTH)
