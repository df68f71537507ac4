"""A model in training: loading it, its log-probabilities over micro-batches, and exporting it for the next step."""

import contextlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from engines.loading import torch_dtype
from protocol.config import LoraConfig
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, IntegrityError, first_line
from protocol.files import write_folder
from protocol.models import REFETCH, TEMPLATES, TOKENIZER_FILES, load_tokenizer, read_object
from trainer.data.batch import MicroBatch, Plan, WorkEstimate, pack_row, plan_rows
from trainer.model.attention import install_attention
from trainer.model.head import ChunkedHead, HeadTask, install_head
from trainer.model.loading import empty_model, fill_model, return_freed_memory
from trainer.model.lora import install_lora, merged
from trainer.model.sharding import Placement, model_blocks

EXTRA_FILES = (*TOKENIZER_FILES, "chat_template.jinja", "generation_config.json", "vocab.json", "merges.txt")


class Policy:
    """The weights of a Hugging Face folder, held as `placement` says; computes and exports in `dtype`.

    What is trained is held in float32, and frozen matrices in `dtype`. `frozen`: a reference that is never trained;
    with `lora` only its additions are trained. `packs`: whether a row may hold several sequences. Raises IntegrityError
    if the folder holds no usable causal language model, ConfigError if its head or projections cannot be trained this
    way."""

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
        model = empty_model(folder)
        self.work, self._lora = WorkEstimate.of(model), lora
        chunk_mib = self.placement.memory.head_chunk_mib or (640 if self.device.type == "cuda" else 64)
        self.packs, self.head = prepare_model(model, self.dtype, chunk_mib, frozen, lora)
        if self.placement.context is not None:
            self.placement.context.check(model, self.packs)
        self.model = self.placement.place(model, self.dtype)
        fill_model(model, folder, self.device)
        self._check_head()
        return_freed_memory()
        self.sums_whole = self.placement.whole_gradients_fit(self.model)

    def logprobs(self, row: MicroBatch, temperature: float, entropy_gradient: bool = False) -> tuple[Tensor, Tensor]:
        """Return ln p and entropy of a packed row's output tokens, [N] float32 each, at the sampling temperature."""
        part, own = self._part(row)
        answers = self._answers(part, temperature, entropy_gradient)[0]
        if self.placement.context is not None:
            answers = self.placement.context.whole(answers, own, len(row.rows))
        logp, entropy = answers.unbind(-1)
        return logp, entropy

    def _part(self, row: MicroBatch) -> tuple[MicroBatch, Tensor]:
        """What this rank computes of a row, and which of its output tokens these are."""
        return (row, row.sequence) if self.placement.context is None else self.placement.context.part(row)

    def _answers(self, row: MicroBatch, temperature: float, entropy_gradient: bool) -> Tensor:
        self.head.task = HeadTask(row.rows, row.targets, temperature, entropy_gradient)
        packing = {"position_ids": row.layout.positions, "packed": row.layout} if self.packs else {}
        mixed = self.placement.mesh is None and self.dtype != torch.float32  # sharding brings its own mixed precision
        with torch.autocast(self.device.type, self.dtype) if mixed else contextlib.nullcontext():
            answers: Tensor = self.model(input_ids=row.tokens, use_cache=False, **packing).logits
        return answers

    @torch.no_grad()
    def _check_head(self) -> None:
        """Raise IntegrityError unless the head reads the decoder's last states, and nothing changes its answers."""
        states, heads = list[Tensor](), list[tuple[Tensor, Tensor]]()
        hooks = (
            self.model.get_decoder().register_forward_hook(lambda *call: states.append(call[2].last_hidden_state)),
            self.head.register_forward_hook(lambda _, given, answers: heads.append((given[0], answers))),
        )
        try:
            row, _ = self._part(pack_row([0], [(range(4), (1, 2, 3), 0.0)], None, self.device))
            answers = self._answers(row, 1.0, False)
        except (RuntimeError, IndexError) as error:  # what a hostile model's sizes make of four tokens
            raise IntegrityError(f"{self.folder}: the model cannot be run: {first_line(error)}", REFETCH) from None
        finally:
            for hook in hooks:
                hook.remove()
        if isinstance(self.model, FSDPModule):
            self.model.reshard()  # an optimizer must find shards
        if not torch.equal(answers, heads[0][1]) or not torch.equal(heads[0][0], states[0]):
            raise IntegrityError(
                f"{self.folder}: this family changes logits after its output projection, which verification does not "
                "support",
                "use another model",
            )

    def backward(self, loss: Tensor, last: bool) -> None:
        """Add up a row's gradient; the ranks exchange sums after the `last` row of an update. Where whole gradients
        find no room they exchange parts after each row, and only replicas wait for the last."""
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last or not self.sums_whole)
            self.model.set_requires_all_reduce(last)
        loss.backward()  # type: ignore[no-untyped-call]

    def plan(self, lengths: Sequence[int]) -> Plan:
        """Return the rows in which all ranks train sequences of these lengths, `placement.row` this rank's."""
        rows = self.placement.rows_at_once
        capacity = self.placement.memory.row_tokens * self.placement.ranks.world // rows
        return plan_rows(lengths, capacity, rows, self.work.of_sequence, self.packs)

    def export(self, folder: Path) -> Path:
        """Write a complete Hugging Face folder (weights in `dtype`, config, tokenizer) atomically to `folder`: rank 0
        does, the others send it their shards."""
        write = self.gather()
        if self.placement.ranks.rank == 0:
            write(folder)
        return folder

    def gather(self) -> Callable[[Path], Path]:
        """Return what exports the weights as they are now, for rank 0 to call later and on any thread: it holds a copy
        in host memory. Every rank must call this."""
        weights: dict[str, Tensor] = {}
        held = self.model.state_dict(keep_vars=True)
        copies: dict[int, Tensor] = {}  # tied weights stay one
        for name, full in merged(held, self._lora):
            if self.placement.ranks.rank == 0:
                if (same := id(held[name])) not in copies:
                    copies[same] = full.to("cpu", self.dtype, copy=True)
                weights[name] = copies[same]
        return lambda folder: write_folder(folder, lambda aside: self._fill(aside, weights))

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


def prepare_model(
    model: Any, dtype: torch.dtype, chunk_mib: int, frozen: bool, lora: LoraConfig | None
) -> tuple[bool, ChunkedHead]:
    """Give an empty model our attention, head and LoRA, without dropout, and the types that its parts are held in.
    Return whether it takes packed rows, and its head. Raises ConfigError."""
    _without_dropout(model)
    packs, head = install_attention(model), install_head(model, chunk_mib << 20)
    model.requires_grad_(not frozen).train(not frozen)
    if lora is not None:
        install_lora(model, lora)
    _narrow_frozen(model, dtype)
    return packs, head


def _narrow_frozen(model: Any, dtype: torch.dtype) -> None:
    """Hold matrices that only products read, and nothing trains, in the type that they are rounded to before each."""
    tied = model.get_input_embeddings().weight
    for part in (*model_blocks(model), model.get_output_embeddings()):
        for parameter in part.parameters():
            if parameter.ndim >= 2 and not parameter.requires_grad and parameter is not tied:
                parameter.data = parameter.data.to(dtype)


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
