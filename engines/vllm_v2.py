"""vLLM's model runner V2, which needs Triton: the protocol's noise on the device, without waiting for it at any step.

`DeviceNoise` keeps keys, temperatures and places by vLLM's slots, and gives the chosen token an infinite logit, so that
vLLM's greedy sampler takes it. `capture` wraps `sample_tokens`, which runs outside the CUDA graphs, and copies the rows
of final-norm output that are about to be sampled from to the CPU. Asynchronous scheduling, CUDA graphs, chunked prefill
and prefix caching stay on.
"""

from typing import Any

import torch
from vllm.v1.worker.gpu.buffer_utils import UvaBackedTensor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor, LogitsProcRequestState

from engines.vllm_records import NoiseRequest, PrefillRequest, Records, Sampled, processor_of, request_of
from protocol.errors import MusterError
from protocol.sampling.cuda import race, signed_words


class DeviceNoise(LogitsProcessor):
    """`requests`: of each slot that is in use, ours. `chosen`: tokens and log-probabilities of the newest step."""

    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None:
        self._states = req_states
        slots = req_states.max_num_reqs
        self._keys = UvaBackedTensor((slots, 3), dtype=torch.int64)
        self._places = UvaBackedTensor(slots, dtype=torch.int64)
        self._temperatures = UvaBackedTensor(slots, dtype=torch.float64)
        self.requests: dict[int, NoiseRequest | PrefillRequest] = {}
        self.chosen: tuple[torch.Tensor, torch.Tensor] | None = None

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        self.requests.pop(req_idx, None)
        self._temperatures.np[req_idx] = 0.0
        if (request := request_of(sampling_params)) is None:
            return False
        self.requests[req_idx] = request
        if isinstance(request, PrefillRequest):
            return False
        self._keys.np[req_idx] = signed_words([request.key])[0]
        # The row at position P − 1 samples the first token.
        self._places.np[req_idx] = request.sampled + 1 - int(self._states.prompt_len.np[req_idx])
        self._temperatures.np[req_idx] = request.temperature
        return True

    def apply_staged_writes(self) -> None:
        for tensor in (self._keys, self._places, self._temperatures):
            tensor.copy_to_uva()

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """logits: [B, V] float32, one row per request of the batch."""
        slots = ctx.expanded_idx_mapping
        positions = ctx.pos + self._places.gpu[slots]
        # Gathered first: the tensors lie in the host's memory, and thousands of programs would read them there.
        self.chosen = race(logits, self._keys.gpu[slots], positions, self._temperatures.gpu[slots], force=True)
        return logits


def capture(runner: Any, records: Records | None, prefilled: dict[int, list[torch.Tensor]]) -> None:
    """Post what the runner samples to `records` from now on, if there are any, and keep the last rows of requests for
    prefill, ticket → parts [n, d] in the compute dtype on the device. Raises MusterError if this vLLM lacks what is
    needed."""
    noise = processor_of(runner, getattr(runner.sampler, "logits_processors", ()), DeviceNoise)
    inner = runner.sample_tokens

    def sample_tokens(*args: Any, **kwargs: Any) -> Any:
        state = runner.execute_model_state
        if state is None:
            return inner(*args, **kwargs)
        batch, hidden = state.input_batch, state.hidden_states
        if batch.num_draft_tokens:
            raise MusterError("vLLM speculates", "turn speculative decoding off: its tokens cannot be proven")
        _keep_prompts(noise, runner, batch, hidden, prefilled)
        where = _sampling(noise, runner, batch, records) if records is not None else []
        if records is None or not any(where):
            return inner(*args, **kwargs)
        rows, noise.chosen = hidden[batch.logits_indices].to(torch.bfloat16), None
        result = inner(*args, **kwargs)
        if noise.chosen is None:
            raise MusterError("vLLM sampled without the protocol's noise", "install the version in the lock file")
        rows, tokens, logprobs = (tensor.to("cpu", non_blocking=True) for tensor in (rows, *noise.chosen))
        arrived = torch.cuda.Event(blocking=True)
        arrived.record()
        records.post(Sampled(where, rows, tokens, logprobs, arrived))
        return result

    runner.sample_tokens = sample_tokens


def _sampling(noise: DeviceNoise, runner: Any, batch: Any, records: Records) -> list[tuple[int, int] | None]:
    """Return (ticket, place) of each of our requests in the batch that gets a token in this step."""
    ends = batch.seq_lens_cpu_upper_bound.numpy()  # exact, for nothing is speculated
    out: list[tuple[int, int] | None] = []
    for number, slot in enumerate(batch.idx_mapping_np.tolist()):
        request, end = noise.requests.get(slot), int(ends[number])
        if isinstance(request, NoiseRequest) and end >= runner.req_states.prefill_len.np[slot]:
            records.begin(request)
            out.append((request.ticket, end - int(runner.req_states.prompt_len.np[slot])))
        else:
            out.append(None)
    return out


def _keep_prompts(
    noise: DeviceNoise, runner: Any, batch: Any, hidden: torch.Tensor, prefilled: dict[int, list[torch.Tensor]]
) -> None:
    """Keep the wanted rows of this step's parts of prompts."""
    for number, slot in enumerate(batch.idx_mapping_np.tolist()):
        request = noise.requests.get(slot)
        if not isinstance(request, PrefillRequest):
            continue
        start, count = int(batch.num_computed_tokens_np[number]), int(batch.num_scheduled_tokens[number])
        if start == 0:  # or preempted, and begun again
            prefilled[request.ticket] = []
        prompt = int(runner.req_states.prompt_len.np[slot])
        first, last = max(prompt - request.wanted, start), min(start + count, prompt)
        if first < last:
            offset = int(batch.query_start_loc_np[number]) - start
            prefilled[request.ticket].append(hidden[offset + first : offset + last].clone())
