"""What is mixed into vLLM's worker class, which runs the model; called through `collective_rpc`."""

from typing import Any

import torch

from engines.precision import require_full_precision
from engines.vllm_records import Record, Records


class MusterWorker:
    model_runner: Any
    rank: int
    muster_records: Records
    # Of requests for prefill, in the compute dtype where the model runs.
    muster_prefilled: dict[int, list[torch.Tensor]]

    def muster_install(self, dtype: str, second: bool) -> None:
        """Capture hidden states from now on; `second`: of model runner V2. Raises MusterError if vLLM or the device
        lacks what is needed."""
        require_full_precision(dtype, str(self.model_runner.device))
        if second:
            from engines.vllm_v2 import capture
        else:
            from engines.vllm_v1 import capture
        self.muster_records, self.muster_prefilled = Records(), {}
        # Every rank chooses the same tokens; the first one proves.
        capture(self.model_runner, None if self.rank else self.muster_records, self.muster_prefilled)

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

    def muster_collect(self, asked: list[tuple[int, int, bool]]) -> list[Record] | None:
        """Return and forget finished completions of (ticket, tokens, whether the tail is wanted)."""
        return None if self.rank else self.muster_records.collect(asked)

    def muster_states(self, tickets: list[int]) -> list[torch.Tensor] | None:
        """Return and forget the states [n, d] of prefilled requests, in the compute dtype; on the CPU where this is
        another process than the engine's."""
        states = [torch.cat(self.muster_prefilled.pop(ticket)) for ticket in tickets]
        if self.rank:
            return None
        return [state.cpu() for state in states] if self._apart else states

    @torch.inference_mode()
    def muster_project(self, states: torch.Tensor) -> torch.Tensor | None:
        """Return logits [n, V] float32 of states [n, d]. Every rank multiplies with its part of the vocabulary; the
        first one answers, on the CPU where it is another process."""
        runner = self.model_runner
        logits = runner.get_model().compute_logits(states.to(runner.device))
        if self.rank or logits is None:
            return None
        out: torch.Tensor = logits.float()
        return out.cpu() if self._apart else out

    @property
    def _apart(self) -> bool:
        return bool(self.model_runner.vllm_config.parallel_config.world_size > 1)

    def muster_forget(self, tickets: list[int]) -> None:
        """Drop what is kept of these requests, finished or not, and a step that failed half-way."""
        self.muster_records.forget(tickets)
        for ticket in tickets:
            self.muster_prefilled.pop(ticket, None)
        self.model_runner.execute_model_state = None
