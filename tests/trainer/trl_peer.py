"""TRL's own trainers, given log-probs and rewards instead of a model that computes and a sampler that generates.

Needs TRL on the path, as make test-all has it for the one test that uses this; hence the imports inside.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tests.trainer.helpers import small_model
from trainer.loss import TokenBatch


def trl_trainer(folder: Path, settings: dict[str, Any], rloo: bool = False) -> Any:
    """A GRPOTrainer or RLOOTrainer with `settings` whose batches are given by hand."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

    if not (folder / "config.json").is_file():
        small_model(folder)
    common = {
        "output_dir": str(folder / "out"),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
    }
    config = (RLOOConfig if rloo else GRPOConfig)(**common, **settings)
    return (RLOOTrainer if rloo else GRPOTrainer)(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=config,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_list([{"prompt": "?"}] * 8),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )


def padded(values: Tensor, sequence: Tensor) -> Tensor:
    """Flat values [N] as rows [S, T], padded on the right with zeros."""
    return pad_sequence(list(torch.split(values, torch.bincount(sequence).tolist())), batch_first=True)


def trl_loss(trainer: Any, batch: TokenBatch, truncated_at: float | None = None) -> Tensor:
    """TRL's loss of the batch, differentiable in `batch.logp`; with importance weights if `truncated_at`."""
    logp, entropy = padded(batch.logp, batch.sequence), padded(batch.entropy, batch.sequence)
    mask = padded(torch.ones_like(batch.old, dtype=torch.int64), batch.sequence)
    first = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(batch.sequence).cumsum(0)[:-1]])
    inputs = {
        "prompt_ids": torch.ones(len(mask), 1, dtype=torch.int64),
        "prompt_mask": torch.ones(len(mask), 1, dtype=torch.int64),
        "completion_ids": mask,
        "completion_mask": mask,
        "advantages": batch.advantage[first],
        "old_per_token_logps": padded(batch.old, batch.sequence),
        "num_items_in_batch": mask.sum(),
    }
    if batch.reference is not None:
        inputs["ref_per_token_logps"] = padded(batch.reference, batch.sequence)
    trainer.use_vllm = truncated_at is not None
    if truncated_at is not None and batch.sampled is not None:
        # What TRL computes where it generates, with vllm_importance_sampling_mode="token_truncate".
        ratio = torch.exp(batch.old - batch.sampled).clamp(max=truncated_at)
        inputs["importance_sampling_ratio"] = padded(ratio, batch.sequence)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (logp, entropy, None)
    trainer.current_gradient_accumulation_steps = 1
    loss: Tensor = trainer._compute_loss(trainer.model, inputs)
    return loss


def is_rloo(trainer: Any) -> bool:
    return type(trainer).__name__ == "RLOOTrainer"


def trl_advantages(trainer: Any, rewards: Sequence[float]) -> list[float]:
    """TRL's advantages of one group's rewards."""
    count = len(rewards)
    one_token = [[5]] * count
    texts = ["x"] * count
    rloo = (one_token, one_token, texts)
    trainer._generate = lambda _: rloo if is_rloo(trainer) else (*rloo[:2], None, texts, None, {}, None, None)
    trainer._calculate_rewards = lambda *_: torch.tensor(rewards, dtype=torch.float32).unsqueeze(1)
    made = trainer._generate_and_score_completions([{"prompt": "?"}] * count)
    return [float(value) for value in made["advantages"]]
