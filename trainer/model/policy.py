"""A model in training: loading it, its log-probabilities over micro-batches, and exporting it for the next step."""

import contextlib
import shutil
from pathlib import Path

import torch
from torch import Tensor, nn

from engines.loading import load_model, torch_dtype
from protocol.folders import write_folder
from protocol.models.tokenizer import TOKENIZER_FILES
from trainer.batch import MicroBatch
from trainer.losses import token_logprobs
from trainer.model.sharding import Placement, whole

EXTRA_FILES = (*TOKENIZER_FILES, "chat_template.jinja", "generation_config.json", "vocab.json", "merges.txt")


class Policy:
    """fp32 master weights of a Hugging Face folder, held as `placement` says; computes in `dtype`, exports in `dtype`.

    `frozen`: a reference that is never trained. Raises IntegrityError if the folder holds no usable causal language
    model.
    """

    def __init__(
        self, folder: Path, dtype: str = "float32", placement: Placement | None = None, frozen: bool = False
    ) -> None:
        self.folder, self.dtype, self.placement = folder, torch_dtype(dtype), placement or Placement()
        self.device = torch.device(self.placement.device)
        memory = self.placement.memory
        model = load_model(folder, "float32")
        _without_dropout(model)
        model.requires_grad_(not frozen).train(not frozen)
        offload = memory.offload_reference if frozen else memory.offload_optimizer
        self.model = self.placement.place(model, self.dtype, offload)

    def logprobs(self, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
        """ln p and entropy of a micro-batch's output tokens, [N] float32 each, at the sampling temperature."""
        with self._precision():
            logits = self.model(input_ids=batch.tokens, use_cache=False).logits
        return token_logprobs(logits[batch.rows, batch.columns], batch.targets, temperature)

    def export(self, folder: Path) -> Path:
        """Write a complete Hugging Face folder (weights in `dtype`, config, tokenizer) atomically to `folder`: rank 0
        does, the others send it their shards."""
        first = self.placement.ranks.rank == 0
        weights = {}
        for name, value in self.model.state_dict().items():
            full = whole(value.detach())
            if first:
                weights[name] = full.to("cpu", self.dtype)
        if first:
            write_folder(folder, lambda aside: self._fill(aside, weights))
        return folder

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        """Mixed precision; sharding brings its own."""
        if self.placement.mesh is not None or self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def _fill(self, folder: Path, weights: dict[str, Tensor]) -> None:
        config_dtype, self.model.config.dtype = self.model.config.dtype, self.dtype
        try:
            self.model.save_pretrained(str(folder), state_dict=weights)
        finally:
            self.model.config.dtype = config_dtype
        for name in EXTRA_FILES:
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, folder / name)


def _without_dropout(model: nn.Module) -> None:
    """Log-probabilities must be those of the policy that generated, and the same whenever they are computed."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 (a module's attributes have no such type)
