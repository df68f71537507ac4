"""The demo's base model: a tiny Qwen2 warmed up from nothing on worked sums, in about forty CPU-seconds.

No pretrained weights are needed. The first phase teaches to work a sum out; the second, mostly blurted answers, makes
working it out a habit that the model shows only sometimes: what reinforcement learning then finds and strengthens.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from engines.loading import set_threads
from protocol.config import ModelConfig
from protocol.models.tokenizer import save_byte_tokenizer
from protocol.tasks import Task
from protocol.tasks.prompts import prompt_tokens
from trainer.tiny_model import END_OF_THOUGHT, PHRASES, tiny_model_config, tiny_qwen2
from trainer.warmup_data import Example, example

log = logging.getLogger("muster.trainer")
Progress = Callable[[str], None]
PROGRESS_SECONDS = 3.0


@dataclass(frozen=True)
class Recipe:
    """Steps, batch and learning rates of the warm-up; part of the cache key."""

    worked_steps: int = 360
    mixed_steps: int = 50
    worked_share: float = 0.3
    batch: int = 64
    matrix_lr: float = 1e-2
    other_lr: float = 2e-3
    mixed_lr: float = 3e-4

    @property
    def steps(self) -> int:
        return self.worked_steps + self.mixed_steps


@dataclass(frozen=True)
class Phase:
    """Steps first … last−1 with a fraction of worked examples; each optimizer with its learning rate, constant and
    then linear to zero over the last `decay_share`."""

    first: int
    last: int
    worked_share: float
    decay_share: float
    optimizers: list[tuple[torch.optim.Optimizer, float]]

    def set_rates(self, step: int) -> None:
        scale = min(1.0, (self.last - step) / ((self.last - self.first) * self.decay_share))
        for optimizer, lr in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * scale


def warm_up(folder: Path, task: Task, seed: int, recipe: Recipe, progress: Progress = log.info) -> None:
    """Train the tiny model from `seed` and write a Hugging Face folder (fp32) into `folder`, which exists."""
    set_threads(1)
    save_byte_tokenizer(folder, PHRASES)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    config = tiny_qwen2(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        make: Any = transformers.Qwen2ForCausalLM
        model = make(config)
    _train(model, tokenizer, task, seed, recipe, progress)
    settings: Any = transformers.GenerationConfig
    model.generation_config = settings(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(str(folder))


def _train(model: Any, tokenizer: Any, task: Task, seed: int, recipe: Recipe, progress: Progress) -> None:
    said = 0.0
    for phase in _phases(model, recipe):
        for step in range(phase.first, phase.last):
            numbers = range(step * recipe.batch, (step + 1) * recipe.batch)
            examples = [example(task, seed, number, phase.worked_share) for number in numbers]
            phase.set_rates(step)
            loss, thinking = _imitate(model, tokenizer, examples, [optimizer for optimizer, _ in phase.optimizers])
            if step + 1 == recipe.steps or time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                where = f"step {step + 1} of {recipe.steps}"
                progress(f"warming up the base model: {where}, loss {loss:.3f}, works out {thinking:.0%}")


def _phases(model: Any, recipe: Recipe) -> Iterator[Phase]:
    """First only worked examples, quickly; then gently towards the wanted share of thoughts, without momentum from
    before: the swing from always to sometimes would otherwise overshoot to never."""
    yield Phase(0, recipe.worked_steps, 1.0, 0.4, _optimizers(model, recipe))
    gentle = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.0)
    yield Phase(recipe.worked_steps, recipe.steps, recipe.worked_share, 0.5, [(gentle, recipe.mixed_lr)])


def _imitate(
    model: Any, tokenizer: Any, examples: list[Example], optimizers: list[torch.optim.Optimizer]
) -> tuple[float, float]:
    """One step; returns the loss and the mean probability of starting with a thought, both before the step."""
    tokens, labels = imitation_batch(tokenizer, tiny_model_config(), examples)
    result = model(input_ids=tokens, attention_mask=(tokens != tokenizer.pad_token_id).long(), labels=labels)
    result.loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    before_output = (labels != -100).int().argmax(-1) - 1
    first = torch.softmax(result.logits.detach()[torch.arange(len(tokens)), before_output], -1)
    blurting = first[:, tokenizer.convert_tokens_to_ids(END_OF_THOUGHT)].mean()
    return float(result.loss.detach()), 1.0 - float(blurting)


def _optimizers(model: Any, recipe: Recipe) -> list[tuple[torch.optim.Optimizer, float]]:
    """Muon (orthogonalised momentum) for the layers' matrices, AdamW for embeddings, biases and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [
        (torch.optim.Muon(matrices, lr=recipe.matrix_lr, weight_decay=0.0), recipe.matrix_lr),
        (torch.optim.AdamW(others, lr=recipe.other_lr, weight_decay=0.0), recipe.other_lr),
    ]


def imitation_batch(
    tokenizer: Any, model_config: ModelConfig, examples: list[Example]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(tokens, labels), both [B, L] int64, right-padded; labels are −100 on prompts, padding and blurted answers.

    A blurted example teaches only the decision not to think: learning guessed digits by heart would cost the
    arithmetic that the worked examples have just taught.
    """
    tokens, labels = [], []
    for item in examples:
        prompt = prompt_tokens(tokenizer, model_config, item.problem, 0)
        output = [*tokenizer.encode(item.completion), tokenizer.eos_token_id]
        tokens.append(torch.tensor([*prompt, *output]))
        labels.append(torch.full_like(tokens[-1], -100))
        learned = slice(len(prompt), None if item.worked else len(prompt) + 1)
        labels[-1][learned] = tokens[-1][learned]
    padded = partial(pad_sequence, batch_first=True)
    return padded(tokens, padding_value=tokenizer.pad_token_id), padded(labels, padding_value=-100)
