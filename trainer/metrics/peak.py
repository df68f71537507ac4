"""Floating-point operations per second that a device can do at most: what utilisation (MFU) is a share of."""

import torch

from trainer.model.sharding import Placement

_BF16_PEAKS = {
    "A100": 312e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200": 989e12,
    "B200": 2250e12,
    "L40S": 362e12,
    "A10G": 70e12,
    "A10": 125e12,
    "RTX 4090": 165e12,
}
"""Dense bfloat16 with fp32 accumulation, by the makers' data sheets; the first name found in the device's counts."""


def peak_flops(placement: Placement, tflops: float | None = None) -> float | None:
    """Operations per second of all ranks together: `tflops` (10¹²) each, or the data sheet's of a known GPU; None
    where neither is known."""
    each = tflops * 1e12 if tflops is not None else _data_sheet(torch.device(placement.device))
    return each * placement.ranks.world if each is not None else None


def _data_sheet(device: torch.device) -> float | None:
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in _BF16_PEAKS.items() if known in name), None)


def throughput(tokens: int, flops: float, seconds: float, peak: float | None) -> dict[str, float | None]:
    """For a step's record: tokens (prompts included) per second, and the share of `peak` that its `flops` were."""
    used = flops / seconds / peak if peak and seconds > 0 else None
    return {"tokens_per_second": tokens / seconds if seconds > 0 else None, "mfu": used}
