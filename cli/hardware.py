"""What this machine can compute with, and what it can serve of a pool's model: by arithmetic on the model's
configuration, before anything is fetched."""

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cli
from protocol.errors import ConfigError

ROOT = Path(cli.__file__).parents[1]
GIB = 1 << 30
_SHARE = 0.9  # of a card's memory, that an engine takes; the rest is the driver's and other programs'
_WORKING = 2 * GIB  # of it, on each card: activations, logits, CUDA graphs
_WIDTH = {"float32": 4, "bfloat16": 2}


def driver_answers() -> bool:
    """Return whether NVIDIA's driver finds a card."""
    program = shutil.which("nvidia-smi")
    try:
        return program is not None and subprocess.run([program, "-L"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def device_files() -> tuple[str, ...]:
    """Return the files of NVIDIA cards, which are there where a card is, whatever else is installed."""
    return tuple(sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*")))


@dataclass(frozen=True)
class Gpu:
    """A card that torch can use; its memory in bytes."""

    name: str
    memory: int


@dataclass(frozen=True)
class TorchDevices:
    """What torch can use. `imprecise`: what does not compute float32 in full; `build`: its version, and that of CUDA
    if it has one; empty where torch cannot be imported."""

    gpus: tuple[Gpu, ...] = ()
    imprecise: tuple[str, ...] = ()
    build: str = ""


_TORCH_PROBE = """
import json, torch
from engines.precision import require_full_precision
from protocol.errors import MusterError
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
cards = [torch.cuda.get_device_properties(number) for number in range(count)]
wrong = []
for device in ("cpu", *(f"cuda:{number}" for number in range(count))):
    try:
        require_full_precision("float32", device)
    except MusterError as error:
        wrong.append(str(error))
build = f"{torch.__version__} {torch.version.cuda or ''}".strip()
gpus = [[card.name, card.total_memory] for card in cards]
print(json.dumps({"gpus": gpus, "imprecise": sorted(set(wrong)), "build": build}))
"""


@functools.cache
def torch_devices() -> TorchDevices:
    """Ask torch, in a process that imports it."""
    order = [sys.executable, "-P", "-c", _TORCH_PROBE]
    try:
        done = subprocess.run(order, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
        report = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return TorchDevices()
    return TorchDevices(tuple(Gpu(*card) for card in report["gpus"]), tuple(report["imprecise"]), report["build"])


# What of a model fits


@dataclass(frozen=True)
class ModelShape:
    """What memory depends on. weights: their bytes in the compute dtype; position: bytes of the KV cache per token."""

    weights: int
    position: int
    heads: int
    kv_heads: int

    @classmethod
    def of(cls, config: dict[str, Any], stored: int, stored_dtype: str, dtype: str) -> "ModelShape":
        """Return the shape of a model with this config.json, whose weights take `stored` bytes in `stored_dtype`.
        Raises ConfigError for a configuration that does not say."""
        text = config.get("text_config", config)
        if "quantization_config" in config or "quantization_config" in text:
            what = "the pool's model is quantised, which can be neither trained nor verified"
            raise ConfigError(what, "tell its owner")
        try:
            layers, heads = int(text["num_hidden_layers"]), int(text["num_attention_heads"])
            kv_heads = int(text.get("num_key_value_heads") or heads)
            size = int(text.get("head_dim") or text["hidden_size"] // heads)
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            raise ConfigError("the model's config.json does not give its layers and heads", "ask its owner") from None
        width = _WIDTH[dtype]
        weights = stored * width // _WIDTH.get(stored_dtype, 2)
        return cls(weights, 2 * layers * kv_heads * size * width, heads, kv_heads)


def pass_operations(config: dict[str, Any], tokens: int) -> float:
    """Return the operations of a verifier's pass over one text: of a decoder of usual blocks and its output head.
    Raises ConfigError for a config.json that does not say."""
    text = config.get("text_config", config)
    try:
        layers, heads = int(text["num_hidden_layers"]), int(text["num_attention_heads"])
        width, vocabulary = int(text["hidden_size"]), int(text["vocab_size"])
        kv_heads = int(text.get("num_key_value_heads") or heads)
        inner = heads * int(text.get("head_dim") or width // heads)
        experts = int(text.get("num_experts_per_tok") or 0)
        hidden = experts * int(text["moe_intermediate_size"]) if experts else int(text["intermediate_size"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise ConfigError("the model's config.json does not give its sizes", "complete it") from None
    block = width * (2 * inner + 2 * inner * kv_heads // heads + 3 * hidden)
    return 2.0 * tokens * (layers * block + vocabulary * width) + 2.0 * layers * inner * tokens**2


def capacity(shape: ModelShape, gpus: Sequence[Gpu], memory: int, length: int) -> tuple[bool, str]:
    """Return whether a machine can serve the model at all, and how many texts of `length` tokens its KV cache holds at
    once if its cards work together (tensor parallelism). memory: the machine's own, which serves without a card."""
    size, cards = min((gpu.memory for gpu in gpus), default=memory), len(gpus) or 1
    together = max(number for number in range(1, cards + 1) if cards % number == 0 and shape.heads % number == 0)
    kept = shape.position * length // min(together, shape.kv_heads)  # beyond their number, KV heads are copied
    fixed = shape.weights // together + _WORKING
    rows = max(0, int(size * _SHARE) - fixed) // kept
    what = (
        f"{shape.weights / GIB:.1f} GiB of weights, {shape.position / 1024:.0f} KiB of KV cache a token, "
        f"{shape.position * length / GIB:.2f} GiB for a text of {length} tokens"
    )
    where = f"{together} of {cards} cards" if gpus else "this machine"
    if rows:
        return True, f"{what}; {rows} such texts at once on {where}"
    return False, f"{what}; {where} need {(fixed + kept) / _SHARE / GIB:.0f} GiB each and have {size / GIB:.0f} GiB"


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
