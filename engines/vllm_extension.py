"""What runs inside vLLM's worker process: the noise, the capture of hidden states, the proofs.

`NoiseProcessor` is a logits processor: it makes the protocol's choice and leaves only that token to vLLM's greedy
sampler. `MusterWorker` is mixed into vLLM's worker class: it wraps the model runner's `sample_tokens` and keeps, for
every token that is sampled, the row of final-norm output that produced it. vLLM hands out exactly one such row per
sampled token, also after joins, leaves and preemption. Of a request for prefill alone the last rows are kept.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from engines.decoding import from_bytes, to_bytes
from engines.precision import require_full_precision
from engines.vllm import NOISE, PREFILL
from protocol.errors import MusterError
from protocol.sampling.noise import NoiseKey, choose
from protocol.toploc.codec import CHUNK
from protocol.toploc.proofs import build_many


@dataclass
class _Record:
    """One completion. `rows`: states of the chunk that is not full. `before`: how many of the first chunk's are an
    earlier turn's; None until the first token is about to be sampled."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    rows: list[torch.Tensor] = field(default_factory=list)
    proofs: list[bytes] = field(default_factory=list)
    before: int | None = None

    def begin(self, sampled: int, tail: bytes) -> None:
        """Go on from the tail of the turn before, once."""
        if self.before is None:
            self.rows = list(from_bytes(tail, sampled))
            self.before = len(self.rows)

    @property
    def states(self) -> int:
        """How many of its own tokens have a state."""
        return len(self.proofs) * CHUNK + len(self.rows) - (self.before or 0)


# The processor and the extension live in one process but are built apart by vLLM; tickets tie their records together.
_RECORDS: dict[int, _Record] = {}
# Rows [n, d] of requests for prefill, in the compute dtype, on the CPU.
_PREFILLED: dict[int, torch.Tensor] = {}


class _NoiseRequest(NamedTuple):
    """What the choice of a request's next token needs; `output` is vLLM's own growing list of its tokens."""

    ticket: int
    key: NoiseKey
    temperature: float
    sampled: int
    output: list[int]


def _noise_request(params: SamplingParams, _prompt: list[int] | None, output: list[int]) -> _NoiseRequest | None:
    extra = params.extra_args or {}
    if NOISE not in extra:
        return None
    ticket, (k0, k1, k2), temperature, sampled, _ = extra[NOISE]
    return _NoiseRequest(ticket, (k0, k1, k2), temperature, sampled, output)


class NoiseProcessor(LogitsProcessor):
    """Sampling by the protocol's noise: every logit but the chosen token's becomes −inf."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.requests: dict[int, _NoiseRequest] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self.requests, batch_update, _noise_request)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """logits: [B, V] float32, one row per batch index."""
        by_temperature: dict[float, list[int]] = {}
        for row, request in self.requests.items():
            by_temperature.setdefault(request.temperature, []).append(row)
        for temperature, rows in by_temperature.items():
            requests = [self.requests[row] for row in rows]
            index = torch.tensor(rows, device=logits.device)
            chosen = choose(
                logits[index].float(),
                [request.key for request in requests],
                [request.sampled + len(request.output) for request in requests],
                temperature,
            )
            logits[index] = float("-inf")
            logits[index, torch.from_numpy(chosen.tokens).to(logits.device)] = 0.0
            for number, request in enumerate(requests):
                record = _RECORDS.setdefault(request.ticket, _Record())
                del record.tokens[len(request.output) :], record.logprobs[len(request.output) :]
                record.tokens.append(int(chosen.tokens[number]))
                record.logprobs.append(float(chosen.logprobs[number]))
        return logits


class MusterWorker:
    """Methods added to vLLM's worker; called through `collective_rpc`."""

    model_runner: Any
    rank: int

    def muster_install(self, dtype: str) -> None:
        """Capture hidden states from now on. Raises MusterError if vLLM or the device lacks what is needed."""
        runner = self.model_runner
        require_full_precision(dtype, str(runner.device))
        inner = getattr(runner, "sample_tokens", None)
        if inner is None or not hasattr(runner, "execute_model_state"):
            raise MusterError("this version of vLLM hides its hidden states", "install the version in the lock file")

        def sample_tokens(*args: Any, **kwargs: Any) -> Any:
            state = runner.execute_model_state
            if state is None:
                return inner(*args, **kwargs)
            kept = _rows_before_sampling(runner, state)
            _PREFILLED.update(_rows_of_prompts(runner, state))
            result = inner(*args, **kwargs)
            _keep(kept)
            return result

        runner.sample_tokens = sample_tokens

    def muster_reload(self, folder: str) -> None:
        """Swap weights in place."""
        runner = self.model_runner
        runner.reload_weights(weights_path=folder)
        if runner.device.type != "cpu":
            return
        # vLLM on a CPU multiplies with packed copies, and forgets to pack a tied output head and experts again.
        for module in runner.get_model().modules():
            if hasattr(module, "cpu_linear") and module.weight.numel():
                module.quant_method.process_weights_after_loading(module)
            elif kernel := getattr(getattr(module, "quant_method", None), "moe_kernel", None):
                kernel.fused_experts.process_weights_after_loading(module)

    def muster_collect(
        self, tickets: list[int], wanted: list[bool]
    ) -> list[tuple[list[int], list[float], list[bytes], bytes]]:
        """Return and forget tokens, log-probabilities, proofs and, where `wanted`, tails of finished completions."""
        records = [_RECORDS.pop(ticket) for ticket in tickets]
        tails = [record for record in records if record.rows]
        for record, proofs in zip(tails, build_many([torch.stack(record.rows) for record in tails]), strict=True):
            record.proofs += proofs
        return [
            (one.tokens, one.logprobs, one.proofs, to_bytes(torch.stack(one.rows)) if tail and one.rows else b"")
            for one, tail in zip(records, wanted, strict=True)
        ]

    def muster_states(self, tickets: list[int]) -> list[torch.Tensor]:
        """Return and forget the states [n, d] of prefilled requests, on the CPU, in the compute dtype."""
        return [_PREFILLED.pop(ticket) for ticket in tickets]

    @torch.inference_mode()
    def muster_project(self, states: torch.Tensor) -> torch.Tensor | None:
        """Return logits [n, V] float32 of states [n, d]. Every rank multiplies with its part of the vocabulary; the
        first one answers, on the CPU where it is another process."""
        runner = self.model_runner
        logits = runner.get_model().compute_logits(states.to(runner.device))
        if self.rank or logits is None:
            return None
        out: torch.Tensor = logits.float()
        return out if runner.vllm_config.parallel_config.world_size == 1 else out.cpu()

    def muster_forget(self, tickets: list[int]) -> None:
        """Drop what is kept of these requests, finished or not, and a step that failed half-way."""
        for ticket in tickets:
            _RECORDS.pop(ticket, None)
            _PREFILLED.pop(ticket, None)
        self.model_runner.execute_model_state = None


def _extra(runner: Any, request: str) -> dict[str, Any]:
    params = runner.requests[request].sampling_params
    return (params.extra_args or {}) if params else {}


def _rows_before_sampling(runner: Any, state: Any) -> list[tuple[int, int, torch.Tensor]]:
    """Return (ticket, output position, row bf16 [d]) of each request that is about to get a token."""
    ids = runner.input_batch.req_ids
    if state.sample_hidden_states.shape[0] < len(ids):
        raise MusterError("vLLM sampled fewer rows than requests", "turn chunked prefill and speculation off")
    states = state.sample_hidden_states[: len(ids)].to(torch.bfloat16).cpu()
    out = []
    for row, request in enumerate(ids):
        extra = _extra(runner, request)
        if NOISE in extra:
            ticket, _, _, sampled, tail = extra[NOISE]
            _RECORDS.setdefault(ticket, _Record()).begin(sampled, tail)
            out.append((ticket, len(runner.requests[request].output_token_ids), states[row]))
    return out


def _rows_of_prompts(runner: Any, state: Any) -> dict[int, torch.Tensor]:
    """Return ticket → wanted rows of each request for prefill in this batch, one after the other."""
    scheduled, start, out = state.scheduler_output.num_scheduled_tokens, 0, {}
    for request in runner.input_batch.req_ids:
        count, extra = scheduled.get(request, 0), _extra(runner, request)
        if PREFILL in extra:
            ticket, wanted = extra[PREFILL]
            if count != len(runner.requests[request].prompt_token_ids):
                raise MusterError("vLLM split a prompt or took it from a cache", "turn chunked prefill and caches off")
            out[ticket] = state.hidden_states[start + count - wanted : start + count].to("cpu", copy=True)
        start += count
    return out


def _keep(rows: list[tuple[int, int, torch.Tensor]]) -> None:
    """Append each row to its record, once per position; prove the chunks that are full, together."""
    full = []
    for ticket, position, row in rows:
        record = _RECORDS.setdefault(ticket, _Record())
        if record.states != position:
            continue
        # A copy of its own, or every row would hold its whole batch in memory.
        record.rows.append(row.clone())
        if len(record.rows) == CHUNK:
            full.append(record)
    for record, proofs in zip(full, build_many([torch.stack(record.rows) for record in full]), strict=True):
        record.proofs += proofs
        record.rows.clear()
