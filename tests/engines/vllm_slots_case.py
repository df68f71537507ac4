"""The V2 adapter alone, on CPU tensors and without Triton, as a program: prints a JSON object as its last line.

vLLM's own loader makes the processor. A made-up runner gives requests slots and takes them away, orders each batch
anew, splits prompts, preempts requests, and computes one token too many of a request that ended.
"""

import json
import random
import sys
import types
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.engines.interpreted import race

WIDTH, VOCABULARY, SLOTS = 128, 50, 4


def state_of(history: list[int]) -> torch.Tensor:
    """What the made-up model's last position holds after these tokens."""
    generator = torch.Generator().manual_seed(hash(tuple(history)) % (1 << 31))
    return torch.randn(WIDTH, generator=generator)


class Runner:
    """As much of vLLM's runner as the adapter sees."""

    def __init__(self) -> None:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, build_custom_logits_processors
        from vllm.v1.worker.gpu.states import RequestState

        self.context: Any = LogitsContext
        self.req_states = RequestState(SLOTS, 256, 64, 0, VOCABULARY, torch.device("cpu"))
        names = ["engines.vllm_v2:DeviceNoise"]
        made = build_custom_logits_processors(None, self.req_states, False, names)  # type: ignore[arg-type]
        self.sampler = SimpleNamespace(logits_processors=made)
        self.execute_model_state: Any = None
        self.head = torch.randn(WIDTH, VOCABULARY, generator=torch.Generator().manual_seed(1)) / 4

    def join(self, name: str, prompt: int, tokens: list[int], params: Any) -> None:
        self.req_states.add_request(name, prompt, tokens, 0, 100)
        self.sampler.logits_processors[0].add_request(self.req_states.req_id_to_index[name], params)

    def step(self, work: list[tuple[str, list[int], int, int]]) -> list[int]:
        """Compute tokens start … start + count of each (request, all its tokens, start, count); return the choices."""
        self.sampler.logits_processors[0].apply_staged_writes()
        slots = np.array([self.req_states.req_id_to_index[name] for name, *_ in work])
        counts = np.array([count for *_, count in work])
        ends = np.array([start + count for _, _, start, count in work], dtype=np.int32)
        begin = np.concatenate([[0], np.cumsum(counts)])
        rows = [state_of(tokens[: at + 1]) for _, tokens, start, count in work for at in range(start, start + count)]
        batch = SimpleNamespace(
            num_draft_tokens=0,
            idx_mapping_np=slots,
            logits_indices=torch.from_numpy(begin[1:] - 1),
            num_computed_tokens_np=ends - counts,
            num_scheduled_tokens=counts,
            query_start_loc_np=begin,
            seq_lens_cpu_upper_bound=torch.from_numpy(ends),
        )
        self.execute_model_state = SimpleNamespace(input_batch=batch, hidden_states=torch.stack(rows))
        return self.sample_tokens()

    def sample_tokens(self) -> list[int]:
        batch, hidden = self.execute_model_state.input_batch, self.execute_model_state.hidden_states
        logits = hidden[batch.logits_indices] @ self.head
        slots = torch.from_numpy(batch.idx_mapping_np)
        pos = batch.seq_lens_cpu_upper_bound.long() - 1
        given = (slots, slots, batch.idx_mapping_np, torch.zeros_like(slots), slots, pos, pos.numpy())
        out: list[int] = self.sampler.logits_processors[0].apply(logits, self.context(*given)).argmax(1).tolist()
        return out


def main(seed: int) -> dict[str, Any]:
    kernels: Any = types.ModuleType("protocol.sampling.cuda")  # the true one needs Triton
    kernels.race = race
    kernels.signed_words = lambda words: torch.from_numpy(np.array(words, dtype=np.uint64).view(np.int64))
    sys.modules["protocol.sampling.cuda"] = kernels
    import vllm.v1.worker.cpu.shm  # noqa: F401

    import engines.vllm_v2 as second
    from engines.decoding import to_bytes
    from engines.vllm_records import NoiseRequest, PrefillRequest, Records
    from protocol.sampling.noise import choose
    from protocol.toploc.proofs import build

    second.race = race  # type: ignore[attr-defined]
    source, runner, records = random.Random(seed), Runner(), Records()
    prefilled: dict[int, list[torch.Tensor]] = {}
    runner.req_states.all_token_ids.stage_write = lambda *_: None  # type: ignore[method-assign]
    second.capture(runner, records, prefilled)
    asked, waiting = {}, list(range(24))
    for ticket in waiting:
        prompt, sampled = [source.randrange(VOCABULARY) for _ in range(source.randint(1, 30))], source.randint(0, 70)
        tail = torch.randn(sampled % 32, WIDTH).bfloat16()
        noise = NoiseRequest(ticket, (ticket, 5, 6), 0.5 + ticket % 3, sampled, to_bytes(tail))
        whole = PrefillRequest(ticket, source.randint(1, len(prompt)))
        request = whole if ticket % 6 == 5 else noise
        asked[ticket] = (prompt, request, tail, 1 if request is whole else source.choice([1, 20, 32, 33, 70]))
    tokens = {ticket: list(asked[ticket][0]) for ticket in waiting}
    computed, over, out = dict.fromkeys(waiting, 0), set[int](), {"same": 0, "proofs": 0, "prompts": 0, "kept": 0}
    running: list[int] = []
    while waiting or running:
        while waiting and len(running) < SLOTS:
            running.append(ticket := waiting.pop(0))
            params = SimpleNamespace(extra_args=asked[ticket][1].extra())
            runner.join(str(ticket), len(asked[ticket][0]), tokens[ticket], params)
        source.shuffle(running)
        work = [(str(one), tokens[one], computed[one], 0) for one in running]
        work = [(a, t, start, min(len(t) - start, source.choice([1, 9, 40]))) for a, t, start, _ in work]
        for ticket, (_, known, start, new), token in zip(list(running), work, runner.step(work), strict=True):
            computed[ticket] = start + new
            if computed[ticket] == len(known) and ticket not in over:
                tokens[ticket].append(token)
            ended = len(tokens[ticket]) - len(asked[ticket][0]) >= asked[ticket][3]
            if ended and ticket not in over and computed[ticket] < len(tokens[ticket]):
                over.add(ticket)  # one more step is under way
            elif ticket in over or source.random() < 0.05:
                running.remove(ticket)
                runner.req_states.remove_request(str(ticket))
                if ticket not in over:
                    computed[ticket] = 0
                    waiting.append(ticket)
    for ticket, (prompt, request, tail, count) in asked.items():
        if isinstance(request, PrefillRequest):
            rows = torch.stack([state_of(prompt[: at + 1]) for at in range(len(prompt))])[-request.wanted :]
            out["prompts"] += torch.equal(torch.cat(prefilled.pop(ticket)), rows)
            continue
        done = records.collect([(ticket, count, True)])[0]
        states = torch.stack([state_of(tokens[ticket][: len(prompt) + place]) for place in range(count)])
        positions = [request.sampled + place for place in range(count)]
        right = choose((states @ runner.head), [request.key] * count, positions, request.temperature)
        emitted = tokens[ticket][len(prompt) : len(prompt) + count]
        out["same"] += done.tokens == right.tokens.tolist() == emitted
        out["same"] -= bool(np.abs(np.array(done.logprobs) - right.logprobs).max() > 1e-4)
        out["proofs"] += done.proofs == build(torch.cat([tail, states.bfloat16()]))
    out["kept"] = len(records) + len(prefilled)
    return out


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
