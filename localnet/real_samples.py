"""What a model says to held-out problems before and after training, with the same sampling noise.

`python -m localnet.real_samples POOL.json BEFORE AFTER OUT.json`, BEFORE and AFTER being model folders.
"""

import sys
from pathlib import Path

from pydantic import TypeAdapter

from engines.base import Engine, Request, Sampling
from engines.factory import make_engine
from environments.pool import PoolEnvironments
from environments.prompts import completion_text
from localnet.services.process import run_service
from protocol.config import PoolConfig
from protocol.documents import Document
from protocol.files import write_atomic
from protocol.models import load_tokenizer
from protocol.seeds import heldout_noise_key, heldout_problem

COUNT = 12


class CompletionSample(Document):
    """A held-out question, its answer, what the model said and whether that was right, both times."""

    question: str
    answer: str
    before: str
    right_before: bool
    after: str
    right_after: bool


_SAMPLES = TypeAdapter(list[CompletionSample])


def samples(config: PoolConfig, before: Path, after: Path, engine: Engine) -> list[CompletionSample]:
    """The first held-out problems with the weights of both folders. Raises IntegrityError if one is no model."""
    environment, tokenizer = PoolEnvironments.of(config, before), load_tokenizer(before)
    seeds = [heldout_problem(config.digest, 0, index) for index in range(COUNT)]
    said = [_completions(config, environment, seeds, folder, engine) for folder in (before, after)]
    return [
        CompletionSample(
            question=environment.problem(seed).question,
            answer=environment.problem(seed).answer,
            before=completion_text(tokenizer, old, environment.eos_ids),
            right_before=environment.score(seed, 0, old).task_reward == 1.0,
            after=completion_text(tokenizer, new, environment.eos_ids),
            right_after=environment.score(seed, 0, new).task_reward == 1.0,
        )
        for seed, old, new in zip(seeds, *said, strict=True)
    ]


def _completions(
    config: PoolConfig, environment: PoolEnvironments, seeds: list[int], folder: Path, engine: Engine
) -> list[tuple[int, ...]]:
    engine.load(folder)
    requests = [
        Request(
            environment.prompt(seed, 0), heldout_noise_key(config.digest, 0, 0, index, 0), config.work.max_new_tokens
        )
        for index, seed in enumerate(seeds)
    ]
    sampling = Sampling(config.work.temperature, environment.eos_ids)
    return [done.tokens for done in engine.generate(requests, sampling)]


def main() -> int:
    config, before, after, out = (Path(argument) for argument in sys.argv[1:5])
    pool = PoolConfig.load(config)
    made = samples(pool, before, after, make_engine("transformers", pool.model.dtype))
    write_atomic(out, _SAMPLES.dump_json(made, indent=1))
    return 0


if __name__ == "__main__":
    run_service(main)
