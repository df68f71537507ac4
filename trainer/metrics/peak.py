"""Floating-point operations per second that a device can do at most: what utilisation (MFU) is a share of."""

import torch

from trainer.model.sharding import Placement

_BF16_TERAFLOPS = {
    "B200": 2250.0,
    "H200": 989.4,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.4,
    "A100": 312.0,
    "L40S": 362.0,
    "A10G": 70.0,
    "A10": 125.0,
    "RTX 5090": 209.5,
    "RTX 4090": 165.2,
}
"""Dense bfloat16 with fp32 accumulation, by the makers' data sheets; the first entry whose words are all in the
device's name counts."""


def data_sheet_flops(device: torch.device) -> float | None:
    """Return the bfloat16 operations per second of a GPU by its data sheet; None for any other device."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    for known, teraflops in _BF16_TERAFLOPS.items():
        if all(word in name for word in known.split()):
            return teraflops * 1e12
    return None


def peak_flops(placement: Placement, tflops: float | None = None) -> float | None:
    """Return the operations per second of all ranks together: `tflops` (10^12) each, or by the data sheet of a known
    GPU; None where neither is known."""
    each = tflops * 1e12 if tflops is not None else data_sheet_flops(torch.device(placement.device))
    return each * placement.ranks.world if each is not None else None


def throughput(tokens: int, flops: float, seconds: float, peak: float | None) -> dict[str, float | None]:
    """For a step's record: tokens (prompts included) per second, and the share of `peak` that its `flops` were."""
    used = flops / seconds / peak if peak and seconds > 0 else None
    return {"tokens_per_second": tokens / seconds if seconds > 0 else None, "mfu": used}
