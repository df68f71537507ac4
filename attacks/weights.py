"""Other weights than the published ones (noise, an older step, fewer layers), and cheaper arithmetic with them."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import torch
from safetensors.torch import load_file, save_file

from attacks.base import Cheat, attack
from engines.base import Engine
from protocol.config import PoolConfig

Tensors = dict[str, torch.Tensor]


@contextmanager
def altered(weights: Path, change: Callable[[Tensors], Tensors]) -> Iterator[Path]:
    """Make a temporary copy of a model folder, every safetensors file changed by `change`."""
    with TemporaryDirectory(prefix="muster-attack-") as name:
        folder = Path(name)
        for source in weights.iterdir():
            if source.suffix == ".safetensors":
                save_file(change(load_file(source)), folder / source.name, metadata={"format": "pt"})
            else:
                shutil.copy(source, folder / source.name)
        yield folder


def noisy(tensors: Tensors, sigma: float, seed: int = 0) -> Tensors:
    """Add Gaussian noise of `sigma` times each tensor's root mean square."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, tensor in sorted(tensors.items()):
        noise = torch.randn(tensor.shape, generator=generator)
        out[name] = (tensor.float() + sigma * tensor.float().pow(2).mean().sqrt() * noise).to(tensor.dtype)
    return out


def int8(tensors: Tensors) -> Tensors:
    """Round matrices to 8 bits per row, as weight-only quantisation does."""
    return {name: (rounded(tensor) if tensor.ndim == 2 else tensor).contiguous() for name, tensor in tensors.items()}


def rounded(values: torch.Tensor) -> torch.Tensor:
    """Round to 8 bits, the last dimension by a scale of its own."""
    scale = values.float().abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / 127
    return ((values.float() / scale).round() * scale).to(values.dtype)


@contextmanager
def smaller(weights: Path) -> Iterator[Path]:
    """Make a temporary copy of a model folder without the last layer."""
    config = json.loads((weights / "config.json").read_text())
    last = config["num_hidden_layers"] - 1

    def change(tensors: Tensors) -> Tensors:
        return {name: tensor for name, tensor in tensors.items() if f".layers.{last}." not in name}

    config["num_hidden_layers"] = last
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][:last]
    with altered(weights, change) as folder:
        (folder / "config.json").write_text(json.dumps(config))
        yield folder


def bf16(tensors: Tensors) -> Tensors:
    return {name: tensor.bfloat16().to(tensor.dtype) for name, tensor in tensors.items()}


def _other_weights(
    name: str, help: str, change: Callable[[Path, float], AbstractContextManager[Path]], default: float = 0.0
) -> None:
    """Register an attack that computes with what `change` makes of the model folder at its strength."""

    @attack(name, help, default)
    class OtherWeights(Cheat):
        def load(self, weights: Path) -> None:
            with change(weights, self.strength) as folder:
                super().load(folder)


_other_weights(
    "weights-noise",
    "adds Gaussian noise to the weights; strength: share of each tensor's root mean square",
    lambda weights, sigma: altered(weights, lambda tensors: noisy(tensors, sigma)),
    0.02,
)
_other_weights("weights-int8", "computes with weights rounded to 8 bits", lambda weights, _: altered(weights, int8))
_other_weights("weights-bf16", "computes with weights rounded to bfloat16", lambda weights, _: altered(weights, bf16))
_other_weights("weights-small", "serves a model without its last layer", lambda weights, _: smaller(weights))


@attack("weights-stale", "serves the weights of an older step; strength: how many steps behind", 1)
class WeightsStale(Cheat):
    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._seen: list[Path] = []

    def load(self, weights: Path) -> None:
        copy = Path(mkdtemp(prefix="muster-attack-"))
        shutil.copytree(weights, copy, dirs_exist_ok=True)
        self._seen.append(copy)
        while len(self._seen) > int(self.strength) + 1:
            shutil.rmtree(self._seen.pop(0), ignore_errors=True)
        super().load(self._seen[0])


@attack("compute-bf16", "computes in bfloat16 where the pool asks for float32 (transformers engine)")
class ComputeBf16(Cheat):
    def __init__(self, config: PoolConfig, engine: Engine, strength: float) -> None:
        from engines.hf import TransformersEngine

        super().__init__(config, TransformersEngine(dtype="bfloat16"), strength)
