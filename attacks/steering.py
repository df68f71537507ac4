"""Tokens swapped for reward, only where the allowed score gap hides it: every file alone passes, by design.

Not in the registry, which holds what a single file's checks refuse: this one is for the evidence of a node's files
together (docs/evidence.md).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attacks.base import Cheat
from engines.base import FINISH_EOS, FINISH_LENGTH, Completion
from protocol.sampling.noise import U32, Floats32, fill, verify_choices
from protocol.seeds import Work
from worker.produce import Planned

Text = tuple[int, ...]


@dataclass(frozen=True)
class _Swap:
    """A text with one token swapped, and the reward that it earns."""

    tokens: Text
    reward: float


class Steer(Cheat):
    """`strength` is the largest score gap it dares, in nats. Of a completion that did not earn the most, it swaps one
    token for one within that gap that earns more, if the rest of the text stays within the gap after it; proofs and
    log-probabilities are honest ones of the swapped text."""

    most = 1.0
    """No completion earns more."""

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        done = super().complete(work, plan)
        prefills = self.engine.prefill([(p.prompt, c.tokens) for p, c in zip(plan, done, strict=True)])
        wanted: dict[int, list[_Swap]] = {}
        for row, (planned, made, own) in enumerate(zip(plan, done, prefills, strict=True)):
            if found := self._swaps(planned, made, own.logits.numpy()):
                wanted[row] = found
        tries = self._within_gaps(plan, [(row, swap) for row, swaps in wanted.items() for swap in swaps])
        proven = self.prove([self._text(plan[row], swap.tokens) for row, swap in tries])
        for (row, swap), made in zip(tries, proven, strict=True):
            if self._reward(plan[row], done[row].tokens) < swap.reward:
                done[row] = made
        return done

    def _reward(self, planned: Planned, tokens: Text) -> float:
        problem = planned.assignment
        return float(self.environment.score(problem.problem_seed, problem.target_length, tokens).reward)

    def _swaps(self, planned: Planned, made: Completion, logits: Floats32) -> list[_Swap]:
        """The best rewarded swaps, at most three, best first."""
        before = self._reward(planned, made.tokens)
        if before >= self.most:
            return []
        texts = {text for text in self._within(planned, made.tokens, logits) if self._ends(text)}
        swaps = [_Swap(text, self._reward(planned, text)) for text in sorted(texts)]
        better = sorted((swap for swap in swaps if swap.reward > before), key=lambda swap: -swap.reward)
        return better[:3]

    def _within(self, planned: Planned, tokens: Text, logits: Floats32) -> Iterator[Text]:
        """The text with one token swapped for another whose score is near enough; it ends at an EOS."""
        raw = np.empty(logits.shape, dtype=np.uint32)
        keys = np.array([planned.noise_key] * len(tokens), dtype=np.uint64)
        fill(keys, np.arange(len(tokens), dtype=np.uint64), raw)
        scores = logits / self.config.work.temperature - np.log(-np.log1p(-(raw + 0.5) * U32 * (1 - 2.0**-24)))
        for place, token in zip(*np.nonzero(scores >= scores.max(axis=1, keepdims=True) - self.strength), strict=True):
            if int(token) != tokens[place]:
                rest = () if int(token) in self.environment.eos_ids else tokens[place + 1 :]
                yield (*tokens[:place], int(token), *rest)

    def _ends(self, text: Text) -> bool:
        return text[-1] in self.environment.eos_ids or len(text) == self.config.work.max_new_tokens

    def _text(self, planned: Planned, tokens: Text) -> tuple[Text, Text, int]:
        return planned.prompt, tokens, FINISH_EOS if tokens[-1] in self.environment.eos_ids else FINISH_LENGTH

    def _within_gaps(self, plan: Sequence[Planned], tries: Sequence[tuple[int, _Swap]]) -> list[tuple[int, _Swap]]:
        """Those whose every token is within the gap when the swapped text is read from its start."""
        temperature = self.config.work.temperature
        prefills = self.engine.prefill([(plan[row].prompt, swap.tokens) for row, swap in tries])
        gaps = [
            verify_choices(own.logits.numpy(), swap.tokens, plan[row].noise_key, temperature).gaps.max()
            for (row, swap), own in zip(tries, prefills, strict=True)
        ]
        return [one for one, gap in zip(tries, gaps, strict=True) if gap <= self.strength]


class Shorten(Steer):
    """Steers for short texts, whatever they earn: they are cheaper to make."""

    most = 0.0

    def _reward(self, planned: Planned, tokens: Text) -> float:
        return -float(len(tokens))
