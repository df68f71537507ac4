"""Rollouts of several turns with any engine: sample a turn, ask the environment, go on with its reply.

The first turn of every rollout is generated together, then the second of those that have one, and so on. A later turn
is a request whose prompt is everything before it, so that the engine needs to know nothing of turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engines.base import FINISH_EOS, Completion, Generator, Request, Sampling
from protocol.rollout_file.rows import Transcript, context_of
from protocol.toploc.codec import CHUNK


@dataclass(frozen=True)
class RolloutTask:
    """A rollout to be sampled: its problem, the prompt, and the words that key its noise."""

    problem_seed: int
    prompt: tuple[int, ...]
    noise_key: tuple[int, int, int]


class Replies(Protocol):
    """Who says how many turns there are and what stands between them: environments.pool.PoolEnvironments."""

    def turns(self, problem_seed: int) -> int: ...
    def transcript(self, problem_seed: int, output: tuple[int, ...]) -> Transcript: ...


def converse(
    engine: Generator, environment: Replies, tasks: Sequence[RolloutTask], sampling: Sampling, limit: int
) -> list[Completion]:
    """Return what is sampled of every task, all its turns together, in order: `limit` tokens at most, in as many turns
    as the environment gives. Raises MusterError on a prompt that the model cannot take, ScoringUnavailable where this
    machine cannot say what a reply is."""
    several = [environment.turns(task.problem_seed) > 1 for task in tasks]
    first = [
        Request(task.prompt, task.noise_key, limit, goes_on=more) for task, more in zip(tasks, several, strict=True)
    ]
    completions = engine.generate(first, sampling)
    going = [index for index, more in enumerate(several) if more]
    while going:
        requests = {index: _next(environment, tasks[index], completions[index], limit) for index in going}
        due = {index: request for index, request in requests.items() if request is not None}
        for index, turn in zip(due, engine.generate(list(due.values()), sampling), strict=True):
            completions[index] = joined(completions[index], turn)
        going = list(due)
    return completions


def _next(environment: Replies, task: RolloutTask, done: Completion, limit: int) -> Request | None:
    """Return the next turn of a rollout, None where it is over."""
    if done.finish != FINISH_EOS or len(done.tokens) >= limit:
        return None
    transcript = environment.transcript(task.problem_seed, done.tokens)
    if transcript.due is None:
        return None
    left = limit - len(done.tokens)
    prompt = tuple(context_of(task.prompt, transcript))
    return Request(prompt, task.noise_key, left, len(done.tokens), done.tail, goes_on=True)


def joined(before: Completion, turn: Completion) -> Completion:
    """Return a rollout with one more turn: the short last chunk is proven again with what the turn added to it."""
    full = before.proofs[: len(before.tokens) // CHUNK]
    tokens, logprobs = before.tokens + turn.tokens, before.logprobs + turn.logprobs
    return replace(turn, tokens=tokens, logprobs=logprobs, proofs=full + turn.proofs)
