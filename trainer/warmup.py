"""The demo's base model: a tiny Qwen2 warmed up from nothing on worked sums, in about forty CPU-seconds.

No pretrained weights are needed. The first phase teaches to work a sum out; the second, mostly blurted answers, makes
working it out a habit that the model shows only sometimes: what reinforcement learning then finds and strengthens.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, GenerationConfig, Qwen2ForCausalLM

from protocol.config import ModelConfig
from protocol.models.tiny import save_tiny_tokenizer, tiny_model_config, tiny_qwen2
from protocol.tasks import Task
from protocol.tasks.prompts import prompt_tokens
from trainer.threads import quiet_threads
from trainer.warmup_data import Example, example

log = logging.getLogger("muster.trainer")
Progress = Callable[[str], None]
PROGRESS_SECONDS = 3.0


@dataclass(frozen=True)
class Recipe:
    """Steps, batch and learning rates of the warm-up; part of the cache key."""

    worked_steps: int = 240
    mixed_steps: int = 40
    worked_share: float = 0.3
    batch: int = 64
    matrix_lr: float = 1e-2
    other_lr: float = 2e-3
    decay_share: float = 0.4

    @property
    def steps(self) -> int:
        return self.worked_steps + self.mixed_steps

    def share(self, step: int) -> float:
        """Which fraction of a step's examples is worked out."""
        return 1.0 if step < self.worked_steps else self.worked_share

    def lr_scale(self, step: int) -> float:
        """Constant, then linear to zero over the last `decay_share` of the steps."""
        return min(1.0, (self.steps - step) / (self.steps * self.decay_share))


def warm_up(folder: Path, task: Task, seed: int, recipe: Recipe, progress: Progress = log.info) -> None:
    """Train the tiny model from `seed` and write a Hugging Face folder (fp32) into `folder`, which exists."""
    quiet_threads()
    save_tiny_tokenizer(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    config = tiny_qwen2(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = Qwen2ForCausalLM(config)
    _train(model, tokenizer, task, seed, recipe, progress)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(str(folder))


def _train(model: Any, tokenizer: Any, task: Task, seed: int, recipe: Recipe, progress: Progress) -> None:
    optimizers = _optimizers(model, recipe)
    model_config = tiny_model_config()
    said = 0.0
    for step in range(recipe.steps):
        examples = [example(task, seed, step * recipe.batch + i, recipe.share(step)) for i in range(recipe.batch)]
        tokens, labels = imitation_batch(tokenizer, model_config, examples)
        loss = model(input_ids=tokens, attention_mask=(tokens != tokenizer.pad_token_id).long(), labels=labels).loss
        loss.backward()
        for optimizer, lr in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * recipe.lr_scale(step)
            optimizer.step()
            optimizer.zero_grad()
        if time.monotonic() - said > PROGRESS_SECONDS or step == recipe.steps - 1:
            said = time.monotonic()
            progress(f"warming up the base model: step {step + 1} of {recipe.steps}, loss {loss.item():.3f}")


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
    """(tokens, labels), both [B, L] int64, right-padded; labels are −100 on prompts and padding."""
    rows = []
    for item in examples:
        prompt = list(prompt_tokens(tokenizer, model_config, item.problem, 0))
        output = [*tokenizer.encode(item.completion), tokenizer.eos_token_id]
        rows.append((prompt, output))
    width = max(len(prompt) + len(output) for prompt, output in rows)
    tokens = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels = torch.full((len(rows), width), -100)
    for index, (prompt, output) in enumerate(rows):
        end = len(prompt) + len(output)
        tokens[index, :end] = torch.tensor(prompt + output)
        labels[index, len(prompt) : end] = torch.tensor(output)
    return tokens, labels
