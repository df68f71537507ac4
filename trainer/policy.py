"""A model in training: loading it, its log-probabilities over micro-batches, and exporting it for the next step."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from protocol.errors import ConfigError, IntegrityError, first_line
from protocol.models.documents import check_documents
from protocol.models.tokenizer import TOKENIZER_FILES
from trainer.batch import MicroBatch
from trainer.folders import write_folder
from trainer.losses import token_logprobs

EXTRA_FILES = (*TOKENIZER_FILES, "chat_template.jinja", "generation_config.json", "vocab.json", "merges.txt")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Policy:
    """fp32 master weights of a Hugging Face folder; computes in `dtype`, exports in `dtype`.

    Raises IntegrityError if the folder holds no usable causal language model.
    """

    def __init__(self, folder: Path, dtype: str = "float32", device: str = "cpu") -> None:
        if dtype not in DTYPES:
            raise ConfigError(f"unknown dtype `{dtype}`", f"use one of {', '.join(DTYPES)}")
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self.folder = folder
        self.dtype = DTYPES[dtype]
        self.device = torch.device(device)
        self.model = load_model(folder).to(self.device)
        self.model.train()

    def logprobs(self, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
        """ln p and entropy of a micro-batch's output tokens, [N] float32 each, at the sampling temperature."""
        with self._compute():
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

    @contextlib.contextmanager
    def _compute(self) -> Iterator[None]:
        if self.dtype == torch.float32:
            yield
        else:
            with torch.autocast(self.device.type, self.dtype):
                yield


def load_model(folder: Path) -> Any:
    """A causal language model in fp32 from a local folder, without running code from it."""
    check_documents(folder)
    try:
        return AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=torch.float32, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # broken folders make the loaders raise anything
        raise IntegrityError(
            f"no usable model in {folder}: {first_line(error)}", "check the folder, or fetch it again"
        ) from None
