"""Tries at problems with given weights, scored: what evaluation and the offline filter count."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engines.base import Engine, Sampling
from environments.pool import PoolEnvironments, Score
from runtime.turns import RolloutTask, converse

AHEAD = 8
"""Batches that an engine is given at once: it puts prompts of one length together, which saves most of the padding."""


@dataclass(frozen=True)
class Attempt:
    """One try: a problem with a target length (0: none), and the words that key its sampling noise."""

    problem_seed: int
    target_length: int
    noise_key: tuple[int, int, int]


@dataclass(frozen=True)
class ScoredAttempt:
    """A scored try; `length` in sampled tokens of all turns, EOS included."""

    score: Score
    length: int


def score_attempts(
    engine: Engine,
    environment: PoolEnvironments,
    attempts: Sequence[Attempt],
    batch: int,
    temperature: float | None = None,
) -> Iterator[ScoredAttempt]:
    """The outcome of every try, in order, with the weights that the engine has loaded; `batch` is what it generates
    together. The temperature is the pool's unless another is given."""
    work = environment.config.work
    sampling = Sampling(temperature or work.temperature, environment.eos_ids)
    for start in range(0, len(attempts), AHEAD * batch):
        part = attempts[start : start + AHEAD * batch]
        tasks = [
            RolloutTask(one.problem_seed, environment.prompt(one.problem_seed, one.target_length), one.noise_key)
            for one in part
        ]
        done = converse(engine, environment, tasks, sampling, work.max_new_tokens)
        for one, completion in zip(part, done, strict=True):
            score = environment.score(one.problem_seed, one.target_length, completion.tokens)
            yield ScoredAttempt(score, len(completion.tokens))
