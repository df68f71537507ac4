"""Rollouts without a pool: made-up ones for the file format, and completions of a bare engine as checks see them."""

import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from engines.base import Completion, Request
from protocol.config import PoolConfig
from protocol.models import save_byte_tokenizer
from protocol.rollout_file.rows import Limits, Rollout, Transcript
from protocol.seeds import Work
from validator.judging.checks import CheckContext

if TYPE_CHECKING:
    import torch
    from transformers import Qwen2Config

LIMITS = Limits(problems=4, samples=2, max_prompt_tokens=32, max_new_tokens=64)


def made_up_rollouts(limits: Limits = LIMITS, seed: int = 0) -> list[Rollout]:
    """Every row of a file that the reader accepts; no model made its tokens."""
    rng = random.Random(seed)
    return [_made_up(slot, sample, rng, limits) for slot in range(limits.problems) for sample in range(limits.samples)]


def _made_up(slot: int, sample: int, rng: random.Random, limits: Limits) -> Rollout:
    output = rng.randint(1, limits.max_new_tokens)
    return Rollout(
        slot=slot,
        sample=sample,
        problem_seed=rng.getrandbits(64),
        target_length=rng.choice((0, 16, 32)),
        prompt_tokens=tuple(rng.randrange(265) for _ in range(rng.randint(1, limits.max_prompt_tokens))),
        output_tokens=tuple(rng.randrange(265) for _ in range(output)),
        finish=int(output == limits.max_new_tokens),
        logprobs=tuple(-rng.randrange(4096) / 256 for _ in range(output)),
        task_reward=1.0,
        length_penalty=0.25,
        reward=0.75,
        proofs=tuple(rng.randbytes(258) for _ in range(-(-output // 32))),
    )


def unscored(slot: int, sample: int, request: Request, done: Completion) -> Rollout:
    """Return a completion as a row, of no problem and without a reward."""
    return Rollout(
        slot, sample, 0, 0, request.prompt, done.tokens, done.finish, done.logprobs, 0.0, 0.0, 0.0, done.proofs
    )


def save_random(config: "Qwen2Config", folder: Path, dtype: "torch.dtype", seed: int = 0) -> None:
    """Save random weights, the same for the same seed."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    library: Any = AutoModelForCausalLM
    library.from_config(config, dtype=dtype).save_pretrained(folder)


def save_random_demo(folder: Path, phrases: Sequence[str], seed: int) -> Path:
    """Save the demo's model with random weights, its tokenizer with these phrases."""
    import torch

    from trainer.model.tiny_model import tiny_qwen2

    folder.mkdir(parents=True)
    size = save_byte_tokenizer(folder, phrases)
    save_random(tiny_qwen2(size, size - 2, size - 1), folder, torch.float32, seed)
    return folder


class BareContext(CheckContext):
    """Rollouts without a chain's facts or a file's bytes: enough to be measured. Every rollout is audited."""

    @classmethod
    def of(cls, work: Work, config: PoolConfig, eos: int, rollouts: Sequence[Rollout]) -> "BareContext":
        facts = SimpleNamespace(work=work)
        environment = SimpleNamespace(eos_ids=(eos,), transcript=lambda seed, tokens: Transcript((tokens,)))
        none = cast(Any, None)
        return cls(cast(Any, facts), config, cast(Any, environment), b"", none, tuple(rollouts))

    @property
    def audited(self) -> list[int]:
        return list(range(len(self.rollouts)))
