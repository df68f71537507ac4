"""A model of 26 million parameters that our trainer trains on real tasks, for `python -m benchmarks codec`: policy step
after policy step, from a checkpoint on where there is one."""

from pathlib import Path

import numpy as np
import torch

from benchmarks.codec_tasks import Tasks, words
from benchmarks.trainer_mix import save_small_llama
from engines.loading import set_threads
from protocol.files import drop_old, remove_leftovers
from protocol.models import save_byte_tokenizer
from protocol.training import AdamWConfig, MuonConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from trainer.checkpoint import checkpoint_path, checkpoints
from trainer.config import MemoryConfig
from trainer.learner import Learner
from trainer.model.sharding import Placement

VOCABULARY, PROBLEMS = 4096, 2
"""Tokens of the model; problems of a step, each with four answers."""
SHAPE = {"heads": 8, "kv_heads": 4, "intermediate": 1408}
"""25.7 million parameters."""
_OWN_TOKENS = 258
Weights = dict[str, np.ndarray]
"""Tensors by name; bf16 as uint16."""


class TrainedSteps:
    """The run of one optimizer (`adamw`, `muon`) at one peak learning rate in `folder`: constant after three updates of
    warm-up, gradients clipped, bf16 matrix products over fp32 weights, all as pools' defaults have it. One thread, so
    that a run which is killed and resumed gives the bits of one that was not."""

    def __init__(self, folder: Path, method: str, rate: float) -> None:
        set_threads(1)
        self._folder = folder / "checkpoints"
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self._folder)
        model = folder / "model"
        if not (model / "tokenizer.json").exists():
            save_small_llama(model, VOCABULARY, **SHAPE)
            save_byte_tokenizer(model, words(VOCABULARY - _OWN_TOKENS))
        chosen = (MuonConfig if method == "muon" else AdamWConfig)(learning_rate=rate)
        config = TrainConfig(optimizer=OptimizerConfig(method=chosen, schedule=ScheduleConfig(decay_share=0.0)))
        memory = MemoryConfig(row_tokens=512, head_chunk_mib=16)
        self._learner = Learner(model, config, 1.0, "bfloat16", Placement(memory=memory))
        self._tasks = Tasks(model)
        if found := checkpoints(self._folder):
            self._learner.load_checkpoint(found[-1])

    @property
    def step(self) -> int:
        """Steps taken."""
        return self._learner.step

    def advance(self) -> int:
        """Take a step; returns how many tokens it was trained on."""
        groups = self._tasks.groups(self.step, PROBLEMS)
        self._learner.train_step(groups)
        return sum(rollout.length for group in groups for rollout in group)

    def weights(self) -> Weights:
        """The bf16 cast of the master weights, each storage once."""
        named = dict(self._learner.policy.model.named_parameters())
        return {name: one.detach().to(torch.bfloat16).view(torch.uint16).numpy().copy() for name, one in named.items()}

    def keep(self) -> None:
        """Write a checkpoint of this step, and remove the one before."""
        self._learner.start_checkpoint(checkpoint_path(self._folder, self.step)).wait()
        drop_old(checkpoints(self._folder), 1)
