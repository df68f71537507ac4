"""Other weights than the published ones: noise, an older step, a model with fewer layers."""

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import torch
from safetensors.torch import load_file, save_file

from attacks.base import Cheat, attack

Tensors = dict[str, torch.Tensor]


def altered_copy(weights: Path, change: Callable[[Tensors], Tensors]) -> Path:
    """A copy of a model folder in a new temporary folder, every safetensors file changed by `change`."""
    folder = Path(mkdtemp(prefix="muster-attack-"))
    for source in weights.iterdir():
        if source.suffix == ".safetensors":
            save_file(change(load_file(source)), folder / source.name, metadata={"format": "pt"})
        else:
            shutil.copy(source, folder / source.name)
    return folder


def noisy(tensors: Tensors, sigma: float, seed: int = 0) -> Tensors:
    """Gaussian noise of `sigma` times each tensor's root mean square."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, tensor in sorted(tensors.items()):
        noise = torch.randn(tensor.shape, generator=generator)
        out[name] = (tensor.float() + sigma * tensor.float().pow(2).mean().sqrt() * noise).to(tensor.dtype)
    return out


def int8(tensors: Tensors) -> Tensors:
    """Matrices rounded to 8 bits per row, as weight-only quantisation does."""
    out = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 2:
            scale = tensor.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
            tensor = ((tensor.float() / scale).round() * scale).to(tensor.dtype)
        out[name] = tensor.contiguous()
    return out


def smaller_copy(weights: Path) -> Path:
    """A copy of a model folder in a new temporary folder, without the last layer."""

    def change(tensors: Tensors) -> Tensors:
        return {name: tensor for name, tensor in tensors.items() if f".layers.{last}." not in name}

    config = json.loads((weights / "config.json").read_text())
    last = config["num_hidden_layers"] - 1
    folder = altered_copy(weights, change)
    config["num_hidden_layers"] = last
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][:last]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


class _Altered(Cheat, ABC):
    """Loads a changed copy of the weights and removes it afterwards."""

    @abstractmethod
    def altered(self, weights: Path) -> Path:
        """A temporary folder with the weights that are really used."""

    def load(self, weights: Path) -> None:
        folder = self.altered(weights)
        try:
            super().load(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@attack("weights-noise", "adds Gaussian noise to the weights; strength: share of each tensor's root mean square", 0.02)
class WeightsNoise(_Altered):
    def altered(self, weights: Path) -> Path:
        return altered_copy(weights, lambda tensors: noisy(tensors, self.strength))


@attack("weights-int8", "computes with weights rounded to 8 bits")
class WeightsInt8(_Altered):
    def altered(self, weights: Path) -> Path:
        return altered_copy(weights, int8)


@attack("weights-bf16", "computes with weights rounded to bfloat16")
class WeightsBf16(_Altered):
    def altered(self, weights: Path) -> Path:
        return altered_copy(weights, lambda tensors: {n: t.bfloat16().to(t.dtype) for n, t in tensors.items()})


@attack("weights-small", "serves a model without its last layer")
class WeightsSmall(_Altered):
    def altered(self, weights: Path) -> Path:
        return smaller_copy(weights)


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
