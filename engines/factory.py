"""Choosing an engine by name; imports torch only when an engine is made."""

from engines.base import Engine
from engines.torch_process import vllm_installed
from protocol.errors import ConfigError

NAMES = ("auto", "transformers", "vllm")


def make_engine(
    name: str = "auto",
    dtype: str = "float32",
    device: str = "cpu",
    threads: int = 1,
    max_batch: int = 64,
    tensor_parallel: int = 1,
    memory_share: float = 0.9,
) -> Engine:
    """Make an engine without weights. `auto` is vLLM where it is installed, which takes OMP_NUM_THREADS from the
    environment instead of `threads`. Raises ConfigError for an unknown name, and for a model divided over GPUs by
    another engine; MusterError where vLLM is missing."""
    if name not in NAMES:
        raise ConfigError(f"engine {name!r}", f"choose one of {', '.join(NAMES)}")
    if name == "vllm" or (name == "auto" and vllm_installed()):
        from engines.vllm import VllmEngine

        return VllmEngine(dtype, device, max_batch, tensor_parallel, memory_share=memory_share)
    if tensor_parallel > 1:
        raise ConfigError(f"tensor_parallel {tensor_parallel} with engine {name}", 'set name = "vllm"')
    from engines.hf import TransformersEngine

    return TransformersEngine(dtype, device, threads, max_batch)
