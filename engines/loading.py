"""Loading model folders: safetensors and config only, local files only, nothing from the folder is executed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch

from protocol.errors import ConfigError, IntegrityError, first_line, printable
from protocol.models import REFETCH, check_documents, check_vocabulary, read_object

T = TypeVar("T")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MAX_CONFIG_BYTES = 1 << 20
# Settings that change logits after the output projection, where verification and training part decoder and projection.
UNSUPPORTED = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")


def torch_dtype(name: str) -> torch.dtype:
    """Return float32 or bfloat16. Raises ConfigError."""
    if name not in DTYPES:
        raise ConfigError(f"compute dtype {name!r}", f"choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


def set_threads(threads: int) -> None:
    """Set how many threads torch uses: several multi-threaded processes on few cores slow one another many times.

    Also calls torch's vector mathematics once, alone: its first call can race (pytorch issue 188792).
    """
    torch.set_num_threads(threads)
    tensor = torch.ones(1)
    for function in (torch.cos, torch.sin, torch.exp, torch.log, torch.sqrt):
        function(tensor)


def read_config(folder: Path) -> dict[str, Any]:
    """Return config.json. Raises IntegrityError if it is not a usable model's, or a JSON file beside it is unfit."""
    check_documents(folder)
    path = folder / "config.json"
    config = read_object(path, MAX_CONFIG_BYTES)
    if not isinstance(config.get("model_type"), str):
        raise IntegrityError(f"{path} names no model_type", REFETCH)
    if "auto_map" in config:
        raise IntegrityError(
            f"{path} asks to run code of its own (auto_map)", "use a model of the transformers library"
        )
    quantisation = config.get("quantization_config") or text_settings(config).get("quantization_config")
    if quantisation or any((folder / name).is_file() for name in ("quantize_config.json", "hf_quant_config.json")):
        method = quantisation.get("quant_method") if isinstance(quantisation, dict) else None
        raise IntegrityError(
            f"{folder} holds quantised weights{f' ({printable(str(method), 40)})' if method else ''}, which can be "
            "neither trained nor verified",
            "use the original model",
        )
    rows = text_settings(config).get("vocab_size")
    if isinstance(rows, int) and not isinstance(rows, bool):
        check_vocabulary(folder, rows)
    for name in UNSUPPORTED:
        if text_settings(config).get(name) not in (None, 1, 1.0):
            raise IntegrityError(f"{path} sets {name}, which verification does not support", "use another model")
    return config


def text_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the part of config.json that describes the language model: models for images and text keep it apart."""
    text = config.get("text_config", config)
    return text if isinstance(text, dict) else config


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder, sorted. Raises IntegrityError if there is none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise IntegrityError(f"{folder} holds no safetensors file", REFETCH)
    return files


def read_tensors(folder: Path, read: Callable[[Any, str], T]) -> Iterator[tuple[str, T]]:
    """Yield name and read(open file, name) of every tensor of a folder, one at a time. Raises IntegrityError."""
    from safetensors import safe_open

    for path in weight_files(folder):
        try:
            with safe_open(str(path), framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (not a dictionary)
                    yield name, read(file, name)
        except Exception as error:  # safetensors' own class is not exported to type checkers
            raise IntegrityError(f"{path} cannot be read: {first_line(error)}", REFETCH) from None


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return name → shape of every tensor of a folder, from the headers alone. Raises IntegrityError."""
    return dict(read_tensors(folder, lambda file, name: tuple(file.get_slice(name).get_shape())))


def load_model(folder: Path, dtype: str, device: str = "cpu") -> Any:
    """Load a causal language model for evaluation, weights cast to `dtype`. Raises ConfigError for an unknown dtype,
    IntegrityError if the folder is not a complete model."""
    wanted = torch_dtype(dtype)
    read_config(folder)
    weight_files(folder)
    import transformers

    library: Any = transformers
    library.utils.logging.disable_progress_bar()
    model: Any
    report: dict[str, Any]
    try:
        model, report = library.AutoModelForCausalLM.from_pretrained(
            str(folder),
            dtype=wanted,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    except Exception as error:  # a hostile folder can make the library raise anything
        raise IntegrityError(f"{folder} is not a usable model: {first_line(error)}", REFETCH) from None
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report.get(kind):
            first = sorted(map(str, report[kind]))[0]
            raise IntegrityError(f"the weights in {folder} do not fit their config: {kind} {first}", REFETCH)
    model = model.to(device).eval().requires_grad_(False)
    if not _splits(model):
        raise IntegrityError(
            f"{folder}: this family changes logits after its output projection, which verification does not support",
            "use another model",
        )
    return model


@torch.inference_mode()
def _splits(model: Any) -> bool:
    """Return whether the model's logits are its output projection of its decoder's last states, and nothing besides."""
    ids = torch.arange(4, device=model.device)[None]
    try:
        whole = model(input_ids=ids, use_cache=False).logits
        parts = model.get_output_embeddings()(model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state)
    except (AttributeError, TypeError):
        return False
    except Exception as error:  # what a hostile model's sizes make of four tokens
        raise IntegrityError(f"the model cannot be run: {first_line(error)}", REFETCH) from None
    return torch.allclose(whole.float(), parts.float(), rtol=1e-4, atol=1e-4, equal_nan=True)


def same_layout(model: Any, folder: Path) -> bool:
    """Return whether every tensor of a folder has the name of a parameter of the model. Raises IntegrityError."""
    return tensor_shapes(folder).keys() <= {name for name, _ in model.named_parameters(remove_duplicate=False)}


def reload_weights(model: Any, folder: Path) -> None:
    """Replace a loaded model's weights by those of a folder, all or none. Raises IntegrityError if a tensor is missing,
    unknown or of another shape."""
    # Tied parameters appear under several names with one storage: any of the names will do.
    own = dict(model.named_parameters(remove_duplicate=False))
    fresh: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for name, tensor in read_tensors(folder, lambda file, name: file.get_tensor(name)):
        if name not in own:
            raise IntegrityError(f"the weights in {folder} hold an unknown tensor {name[:100]!r}", REFETCH)
        target = own[name]
        if target.shape != tensor.shape:
            raise IntegrityError(
                f"{name} in {folder} has shape {list(tensor.shape)}, not {list(target.shape)}", REFETCH
            )
        fresh[id(target)] = (target, tensor)
    missing = sorted(name for name, target in own.items() if id(target) not in fresh)
    if missing:
        raise IntegrityError(f"the weights in {folder} lack {missing[0]}", REFETCH)
    with torch.no_grad():
        for target, tensor in fresh.values():
            target.copy_(tensor)
