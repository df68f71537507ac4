"""The transformers engine: own batched decoding, and the prefill that verifies (engines/base.py)."""

import importlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from engines.base import Completion, Engine, EngineInfo, Prefilled, Request, Sampling, check_sequence
from engines.decoding import Batch
from engines.loading import load_model, read_config, reload_weights, same_layout, set_threads, torch_dtype
from engines.precision import require_full_precision
from engines.prefill import HIDDEN_BYTES, Sequences, prefill_hidden, windows
from engines.torch_process import PACE, arithmetic_of
from protocol.errors import MusterError


class TransformersEngine(Engine):
    """One model on one device. dtype: compute type, "float32" or "bfloat16" (weights are cast to it). threads: torch's,
    for the whole process. max_batch: rows decoded or prefilled together."""

    def __init__(self, dtype: str = "float32", device: str = "cpu", threads: int = 1, max_batch: int = 64) -> None:
        torch_dtype(dtype)
        if max_batch < 1 or threads < 1:
            raise MusterError(f"threads {threads}, max_batch {max_batch}", "both are at least 1")
        # Imported here, before a caller starts threads: two of them importing transformers at once can break it.
        import transformers

        # What the first load would import, which takes seconds: a process that joins a pool is downloading meanwhile.
        importlib.import_module("transformers.models.auto.modeling_auto")
        set_threads(threads)
        require_full_precision(dtype, device)
        self.dtype, self.device, self.max_batch = dtype, device, max_batch
        self.info = EngineInfo("transformers", transformers.__version__, dtype, arithmetic_of(device))
        self._model: Any = None
        # Looked up at each call: attacks replace an engine's forward pass, head or cache.
        self._batch = Batch(
            lambda *inputs: self._forward(*inputs),
            lambda hidden: self._head(hidden),
            lambda: self._cache(),
            device,
            max_batch,
        )
        self._config: dict[str, Any] = {}

    def load(self, weights: Path) -> None:
        """Load a Hugging Face folder, or swap weights in place where its files have the layout of the loaded model (not
        those of mixtures of experts). Raises IntegrityError for an unusable model, and keeps the old weights."""
        config = read_config(weights)
        if self._model is not None and config == self._config and same_layout(self._model, weights):
            reload_weights(self._model, weights)
            return
        self._model, self._config = load_model(weights, self.dtype, self.device), config

    @property
    def model(self) -> Any:
        """Return the loaded transformers model. Raises MusterError before `load`."""
        if self._model is None:
            raise MusterError("the engine has no weights yet", "call load with a model folder first")
        return self._model

    def add(self, requests: Sequence[Request], sampling: Sampling) -> list[int]:
        for request in requests:
            self._check(request.prompt, request.max_new_tokens)
        tickets = self.new_tickets(len(requests))
        self._batch.add(tickets, requests, sampling)
        return tickets

    def step(self) -> list[tuple[int, Completion]]:
        return self._batch.step()

    def drop(self, tickets: Collection[int]) -> None:
        self._batch.drop(tickets)

    @torch.inference_mode()
    def prefill(self, sequences: Sequences) -> Iterator[Prefilled]:
        for prompt, output in sequences:
            self._check(prompt, len(output), output)
        width = self.model.config.get_text_config().hidden_size * (4 if self.dtype == "float32" else 2)
        for window in windows(sequences, HIDDEN_BYTES // width):
            with PACE.computing():
                states = prefill_hidden(sequences[window], self._forward, self._cache, self.device)
                if self.device != "cpu":
                    torch.cuda.synchronize(self.device)  # a device that hangs is noticed here, not by the caller
            for rows in states:
                yield Prefilled(rows, self._vocabulary, self._head)

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, cache: Any) -> Any:
        decoder = self.model.get_decoder()
        out = decoder(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=cache is not None,
        )
        PACE.step()
        return out.last_hidden_state

    @torch.inference_mode()
    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model.get_output_embeddings()(hidden)
        return logits.float()

    def _cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config)

    @property
    def _vocabulary(self) -> int:
        return int(self.model.get_output_embeddings().weight.shape[0])

    def _check(self, prompt: tuple[int, ...], tokens: int, output: tuple[int, ...] = ()) -> None:
        positions = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        check_sequence(prompt, tokens, positions, self._vocabulary, output)
