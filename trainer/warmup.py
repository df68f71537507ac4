"""The demo's base model: a tiny Qwen2 that learned from nothing to imitate worked sums, in about forty CPU-seconds.

No pretrained weights are needed. The first phase teaches to work a sum out; the second, mostly blurted answers, makes
working it out a habit that the model shows only sometimes: what reinforcement learning then finds and strengthens. Both
are supervised fine-tuning like any other (`trainer/sft/`), on conversations made from a seed.
"""

import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import logging as transformers_logging

from engines.loading import set_threads
from environments.base import Environment
from protocol.models.tokenizer import load_tokenizer, save_byte_tokenizer
from protocol.training import AdamWConfig, MuonConfig, OptimizerConfig, ScheduleConfig
from trainer.model.policy import Policy
from trainer.sft.examples import ConversationEncoder, Example
from trainer.sft.learner import ImitationLearner
from trainer.tiny_model import PHRASES, tiny_qwen2
from trainer.warmup_data import conversation

log = logging.getLogger("muster.trainer")
Progress = Callable[[str], None]
PROGRESS_SECONDS = 3.0
_UNCLIPPED = 1e9


@dataclass(frozen=True)
class Recipe:
    """Steps, batch and learning rates of the warm-up; part of the cache key."""

    worked_steps: int = 360
    mixed_steps: int = 50
    worked_share: float = 0.3
    batch: int = 64
    worked_lr: float = 4e-3
    mixed_lr: float = 3e-4

    @property
    def steps(self) -> int:
        return self.worked_steps + self.mixed_steps


@dataclass(frozen=True)
class Phase:
    """Steps first … last−1 with a fraction of worked examples; the learning rate is constant, then falls to zero."""

    first: int
    last: int
    worked_share: float
    optimizer: OptimizerConfig


def warm_up(
    folder: Path,
    task: Environment,
    seed: int,
    recipe: Recipe,
    progress: Progress = log.info,
    fresh: Callable[[Path, int], Path] | None = None,
) -> None:
    """Train the tiny model, or what `fresh` makes in a folder, from `seed` and write a Hugging Face folder (fp32) to
    `folder`."""
    set_threads(1)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="muster-warmup-") as temporary:
        untaught = (fresh or fresh_model)(Path(temporary), seed)
        policy = Policy(untaught)
        encoder = ConversationEncoder(load_tokenizer(untaught), chat_template=False)
        _train(policy, encoder, task, seed, recipe, progress)
        policy.export(folder)


def fresh_model(folder: Path, seed: int) -> Path:
    """A tiny model that knows nothing, with its tokenizer."""
    save_byte_tokenizer(folder, PHRASES)
    tokenizer: Any = load_tokenizer(folder)
    config = tiny_qwen2(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        make: Any = transformers.Qwen2ForCausalLM
        model = make(config)
    settings: Any = transformers.GenerationConfig
    model.generation_config = settings(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(str(folder))
    return folder


def _train(
    policy: Policy, encoder: ConversationEncoder, task: Environment, seed: int, recipe: Recipe, progress: Progress
) -> None:
    said = 0.0
    for phase in _phases(recipe):
        learner = ImitationLearner(policy, phase.optimizer, phase.last - phase.first)
        for step in range(phase.first, phase.last):
            metrics = learner.update(list(_batch(encoder, task, seed, step, phase, recipe)))
            if step + 1 == recipe.steps or time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                progress(f"warming up the base model: step {step + 1} of {recipe.steps}, loss {metrics.loss:.3f}")


def _batch(
    encoder: ConversationEncoder, task: Environment, seed: int, step: int, phase: Phase, recipe: Recipe
) -> Iterator[Example]:
    for number in range(step * recipe.batch, (step + 1) * recipe.batch):
        yield encoder.encode(conversation(task, seed, number, phase.worked_share))


def _phases(recipe: Recipe) -> Iterator[Phase]:
    """First only worked examples, quickly; then gently towards the wanted share of thoughts, without momentum from
    before: the swing from always to sometimes would otherwise overshoot to never."""
    quick = MuonConfig(learning_rate=recipe.worked_lr, weight_decay=0.0, beta2=0.999)
    gentle = AdamWConfig(learning_rate=recipe.mixed_lr, weight_decay=0.0)
    yield Phase(0, recipe.worked_steps, 1.0, _rates(quick, 0.4))
    yield Phase(recipe.worked_steps, recipe.steps, recipe.worked_share, _rates(gentle, 0.5))


def _rates(method: AdamWConfig | MuonConfig, decay_share: float) -> OptimizerConfig:
    schedule = ScheduleConfig(warmup_updates=0, decay_share=decay_share, final_share=0.0)
    return OptimizerConfig(method=method, schedule=schedule, grad_clip=_UNCLIPPED)
