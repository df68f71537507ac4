"""vLLM's model runner V2 on a CPU, as a GPU would run it: Triton interprets its kernels."""

from typing import Any

import torch

from protocol.sampling.noise import choose


def interpret_triton() -> None:
    """Let vLLM's CPU build use Triton, where TRITON_INTERPRET is set, and schedule asynchronously."""
    import triton
    import triton.language as tl
    import triton.language.extra.libdevice as tldevice
    import vllm.triton_utils as utils
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.language.core import _aggregate as aggregate

    importing: Any = utils.importing
    utils.HAS_TRITON = importing.HAS_TRITON = True
    for name, value in {"triton": triton, "tl": tl, "tldevice": tldevice, "gluon": gluon, "gl": gl}.items():
        setattr(utils, name, value)
    utils.aggregate = aggregate

    from vllm.platforms.cpu import CpuPlatform

    inner = CpuPlatform.check_and_update_config.__func__  # type: ignore[attr-defined]

    def check(cls: type, config: Any) -> None:
        inner(cls, config)
        config.scheduler_config.async_scheduling = True
        config.scheduler_config.max_num_batched_tokens = 48  # prompts are split

    CpuPlatform.check_and_update_config = classmethod(check)  # type: ignore[method-assign, assignment]

    import engines.vllm_v2 as second

    second.race = race  # type: ignore[attr-defined]


def race(
    logits: torch.Tensor, keys: torch.Tensor, positions: torch.Tensor, temperatures: torch.Tensor, force: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """What protocol.sampling.cuda.race does (test_noise_cuda.py), in NumPy: interpreted it takes seconds a step."""
    tokens, logprobs = torch.full((len(logits),), -1), torch.zeros(len(logits), dtype=torch.float64)
    for row in (temperatures > 0).nonzero()[:, 0].tolist():
        k0, k1, k2 = (word % (1 << 64) for word in keys[row].tolist())
        place = [int(positions[row]) % (1 << 64)]
        made = choose(logits[row : row + 1].clone(), [(k0, k1, k2)], place, float(temperatures[row]))
        tokens[row], logprobs[row] = int(made.tokens[0]), float(made.logprobs[0])
        if force:
            logits[row, tokens[row]] = float("inf")
    return tokens, logprobs
