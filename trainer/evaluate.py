"""Held-out evaluation: mean task reward on fresh problems that no worker is ever given."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engines.base import Engine, Request, Sampling
from protocol.config import PoolConfig
from protocol.encoding import tagged_hash, words
from protocol.models.tokenizer import eos_ids, load_tokenizer
from protocol.seeds import heldout_problem
from protocol.tasks import load_task
from protocol.tasks.prompts import completion_text, prompt_tokens
from protocol.tasks.rewards import task_reward

BATCH = 64


@dataclass(frozen=True)
class Evaluation:
    """Means over the held-out problems at one policy step; lengths in output tokens, EOS included."""

    step: int
    problems: int
    task_reward: float
    length_mean: float


def heldout_noise_key(config_hash: bytes, step: int, index: int) -> tuple[int, int, int]:
    """Noise key of held-out problem `index` at a policy step: the evaluation can be repeated by anyone."""
    k0, k1, k2 = words(tagged_hash("muster/heldout-noise/1", config_hash, step, index), 3)
    return k0, k1, k2


def target_of(targets: tuple[int, ...], index: int) -> int:
    """Held-out problems take the pool's target lengths in turn."""
    return targets[index % len(targets)] if targets else 0


def evaluate(engine: Engine, config: PoolConfig, folder: Path, step: int) -> Evaluation:
    """Complete `heldout_problems` problems once each at the pool's temperature with the weights in `folder`."""
    return list(evaluate_progressively(engine, config, folder, step))[-1]


def evaluate_progressively(engine: Engine, config: PoolConfig, folder: Path, step: int) -> Iterator[Evaluation]:
    """Like `evaluate`, yielding the means so far after every batch, so that a caller is never long without a turn."""
    task, tokenizer, ends = load_task(config.task), load_tokenizer(folder), eos_ids(folder)
    engine.load(folder)
    sampling = Sampling(config.work.temperature, ends)
    digest = config.digest
    rewards: list[float] = []
    lengths: list[int] = []
    for start in range(0, config.train.heldout_problems, BATCH):
        indices = range(start, min(start + BATCH, config.train.heldout_problems))
        problems = [task.problem(heldout_problem(digest, index)) for index in indices]
        requests = []
        for index, problem in zip(indices, problems, strict=True):
            target = target_of(config.work.targets, index)
            prompt = prompt_tokens(tokenizer, config.model, problem, target)
            requests.append(Request(prompt, heldout_noise_key(digest, step, index), config.work.max_new_tokens))
        for problem, completion in zip(problems, engine.generate(requests, sampling), strict=True):
            text = completion_text(tokenizer, completion.tokens, ends, config.model.answer_after)
            rewards.append(task_reward(task, problem, text))
            lengths.append(len(completion.tokens))
        yield Evaluation(step, len(rewards), sum(rewards) / len(rewards), sum(lengths) / len(lengths))
