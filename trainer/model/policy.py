"""A model in training: loading it, its log-probabilities over micro-batches, and exporting it for the next step."""

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engines.loading import load_model, torch_dtype
from protocol.config import LoraConfig
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, first_line
from protocol.files import write_folder
from protocol.models import TEMPLATES, TOKENIZER_FILES, load_tokenizer, read_object
from trainer.data.batch import MicroBatch, Plan, WorkEstimate, plan_rows
from trainer.model.attention import install_attention
from trainer.model.head import HeadTask, install_head
from trainer.model.lora import install_lora, merged
from trainer.model.sharding import Placement

EXTRA_FILES = (*TOKENIZER_FILES, "chat_template.jinja", "generation_config.json", "vocab.json", "merges.txt")


class Policy:
    """fp32 master weights of a Hugging Face folder, held as `placement` says; computes and exports in `dtype`.

    `frozen`: a reference that is never trained; with `lora` only its additions are trained. `packs`: whether a row may
    hold several sequences. Raises IntegrityError if the folder holds no usable causal language model, ConfigError if
    its head or projections cannot be trained this way."""

    def __init__(
        self,
        folder: Path,
        dtype: str = "float32",
        placement: Placement | None = None,
        frozen: bool = False,
        lora: LoraConfig | None = None,
    ) -> None:
        self.folder, self.dtype, self.placement = folder, torch_dtype(dtype), placement or Placement()
        self.device = torch.device(self.placement.device)
        memory = self.placement.memory
        model = load_model(folder, "float32")
        _without_dropout(model)
        self.work = WorkEstimate.of(model)
        self.packs = install_attention(model)
        self.head = install_head(model, memory.head_chunk_mib << 20)
        model.requires_grad_(not frozen).train(not frozen)
        self._lora = lora
        if lora is not None:
            install_lora(model, lora)
        offload = memory.offload_reference if frozen else memory.offload_optimizer
        self.model = self.placement.place(model, self.dtype, offload)

    def logprobs(self, row: MicroBatch, temperature: float, entropy_gradient: bool = False) -> tuple[Tensor, Tensor]:
        """Return ln p and entropy of a packed row's output tokens, [N] float32 each, at the sampling temperature."""
        self.head.task = HeadTask(row.rows, row.targets, temperature, entropy_gradient)
        packing = {"position_ids": row.layout.positions, "packed": row.layout} if self.packs else {}
        mixed = self.placement.mesh is None and self.dtype != torch.float32  # sharding brings its own mixed precision
        with torch.autocast(self.device.type, self.dtype) if mixed else contextlib.nullcontext():
            logp, entropy = self.model(input_ids=row.tokens, use_cache=False, **packing).logits[0].unbind(-1)
        return logp, entropy

    def plan(self, lengths: Sequence[int]) -> Plan:
        """Return the rows in which all ranks train sequences of these lengths."""
        placement = self.placement
        return plan_rows(lengths, placement.memory.row_tokens, placement.ranks.world, self.work.of_sequence, self.packs)

    def export(self, folder: Path) -> Path:
        """Write a complete Hugging Face folder (weights in `dtype`, config, tokenizer) atomically to `folder`: rank 0
        does, the others send it their shards."""
        first = self.placement.ranks.rank == 0
        weights = {}
        for name, full in merged(self.model.state_dict(), self._lora):
            if first:
                weights[name] = full.to("cpu", self.dtype)
        if first:
            write_folder(folder, lambda aside: self._fill(aside, weights))
        return folder

    def _fill(self, folder: Path, weights: dict[str, Tensor]) -> None:
        config_dtype, self.model.config.dtype = self.model.config.dtype, self.dtype
        try:
            self.model.save_pretrained(str(folder), state_dict=weights)
        finally:
            self.model.config.dtype = config_dtype
        for name in EXTRA_FILES:
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, folder / name)
        tokenizer: Any = load_tokenizer(self.folder) if (self.folder / TEMPLATES).is_dir() else None
        if tokenizer and isinstance(templates := tokenizer.chat_template, dict):
            # Named chat templates go into tokenizer_config.json: a published step has no folders.
            path = folder / "tokenizer_config.json"
            config = read_object(path) if path.is_file() else {}
            config["chat_template"] = [{"name": name, "template": text} for name, text in sorted(templates.items())]
            path.write_bytes(canonical_json(config))
            (folder / "chat_template.jinja").unlink(missing_ok=True)


def _without_dropout(model: nn.Module) -> None:
    """Log-probabilities must be those of the policy that generated, and the same whenever they are computed."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 (a module's attributes have no such type)


def model_folder(source: str) -> Path:
    """Return a local folder as it is, or what a Hugging Face id fetches. Raises ConfigError."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    patterns = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.jinja"]
    try:
        return Path(snapshot_download(source, allow_patterns=patterns, etag_timeout=20))
    except Exception as error:  # the hub's client has many errors; each means the model cannot be had
        raise ConfigError(
            f"the model {source!r} is neither a folder nor a model that can be fetched: {first_line(error)}",
            "check the name, the network and the licence's terms, or name a local folder",
        ) from None
