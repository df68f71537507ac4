"""Tries at problems with given weights, scored: what evaluation and the offline filter count."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engines.base import Engine, Request, Sampling
from environments.pool import PoolEnvironments, Score


@dataclass(frozen=True)
class Attempt:
    """One try: a problem with a target length (0: none), and the words that key its sampling noise."""

    problem_seed: int
    target_length: int
    noise_key: tuple[int, int, int]


@dataclass(frozen=True)
class ScoredAttempt:
    """A scored try; `length` in output tokens, EOS included."""

    score: Score
    length: int


def score_attempts(
    engine: Engine,
    environment: PoolEnvironments,
    attempts: Sequence[Attempt],
    batch: int,
    temperature: float | None = None,
) -> Iterator[ScoredAttempt]:
    """The outcome of every try, in order, `batch` at a time, with the weights that the engine has loaded. The
    temperature is the pool's unless another is given."""
    work = environment.config.work
    sampling = Sampling(temperature or work.temperature, environment.eos_ids)
    for start in range(0, len(attempts), batch):
        part = attempts[start : start + batch]
        requests = [
            Request(environment.prompt(one.problem_seed, one.target_length), one.noise_key, work.max_new_tokens)
            for one in part
        ]
        for one, completion in zip(part, engine.generate(requests, sampling), strict=True):
            score = environment.score(one.problem_seed, one.target_length, completion.tokens)
            yield ScoredAttempt(score, len(completion.tokens))
