"""What of a machine its arithmetic depends on, as files and laws of evidence name it. Imports torch only when asked."""

import platform

_USUAL = "AVX512"


def arithmetic_of(device: str) -> str:
    """A device's name in files: `cpu` stands for processors with AVX-512, others are named by their kernels.

    In bfloat16 torch rounds differently with AVX2: honest files of one kind of processor, measured by the same engine
    on the other, differ three times as much as on their own, which no law that was measured on one kind allows.
    """
    import torch

    kernels = torch.backends.cpu.get_cpu_capability()
    if device != "cpu" or kernels == _USUAL:
        return device
    return f"{device}-{platform.machine()}-{kernels}".lower()
