"""A model in training: loading it, its log-probabilities over micro-batches, and exporting it for the next step."""

import contextlib
import shutil
from pathlib import Path

import torch
from torch import Tensor

from engines.loading import load_model, torch_dtype
from protocol.folders import write_folder
from protocol.models.tokenizer import TOKENIZER_FILES
from trainer.batch import MicroBatch
from trainer.losses import token_logprobs

EXTRA_FILES = (*TOKENIZER_FILES, "chat_template.jinja", "generation_config.json", "vocab.json", "merges.txt")


class Policy:
    """fp32 master weights of a Hugging Face folder; computes in `dtype`, exports in `dtype`.

    Raises IntegrityError if the folder holds no usable causal language model.
    """

    def __init__(self, folder: Path, dtype: str = "float32", device: str = "cpu") -> None:
        self.folder, self.dtype, self.device = folder, torch_dtype(dtype), torch.device(device)
        self.model = load_model(folder, "float32", device).requires_grad_(True).train()

    def logprobs(self, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
        """ln p and entropy of a micro-batch's output tokens, [N] float32 each, at the sampling temperature."""
        mixed = self.dtype != torch.float32
        with torch.autocast(self.device.type, self.dtype) if mixed else contextlib.nullcontext():
            logits = self.model(input_ids=batch.tokens, use_cache=False).logits
        return token_logprobs(logits[batch.rows, batch.columns], batch.targets, temperature)

    def export(self, folder: Path) -> Path:
        """Write a complete Hugging Face folder (weights in `dtype`, config, tokenizer) atomically to `folder`."""
        return write_folder(folder, self._fill)

    def _fill(self, folder: Path) -> None:
        weights = {name: value.detach().to("cpu", self.dtype) for name, value in self.model.state_dict().items()}
        config_dtype, self.model.config.dtype = self.model.config.dtype, self.dtype
        try:
            self.model.save_pretrained(str(folder), state_dict=weights)
        finally:
            self.model.config.dtype = config_dtype
        for name in EXTRA_FILES:
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, folder / name)
