"""Model folders into shards: a model is built without weights, placed, and filled with what this rank holds of it. A
rank's memory takes its shards, and what is being read of a few tensors."""

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from engines.loading import read_config, weight_files
from protocol.errors import IntegrityError, first_line
from protocol.models import REFETCH


def empty_model(folder: Path) -> Any:
    """Return the causal language model of a folder on the `meta` device, in float32. Raises IntegrityError."""
    read_config(folder)
    weight_files(folder)
    import transformers

    library: Any = transformers
    library.utils.logging.disable_progress_bar()
    try:
        model = model_of(str(folder), local_files_only=True)
        if (folder / "generation_config.json").is_file():
            model.generation_config = library.GenerationConfig.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # a hostile folder can make the library raise anything
        raise IntegrityError(f"{folder} is not a usable model: {first_line(error)}", REFETCH) from None
    return model


def model_of(source: str, local_files_only: bool = False) -> Any:
    """Return the causal language model that a configuration describes, a folder's or that of a Hugging Face id, on the
    `meta` device, in float32. Raises whatever the library does."""
    import transformers

    library: Any = transformers
    config = library.AutoConfig.from_pretrained(source, local_files_only=local_files_only, trust_remote_code=False)
    with torch.device("meta"):
        return library.AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
        )


def fill_model(model: Any, folder: Path, device: torch.device | str) -> None:
    """Read the weights of an `empty_model`, sharded or not, to `device`, in the types that it holds. What is not on the
    `meta` device stays. Raises IntegrityError if they are not exactly the model's."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.modeling_utils import LoadStateDictConfig

    extra = {name for name, value in model.named_parameters() if value.device.type != "meta"}
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    conversions: Any = get_model_conversion_mapping(model)
    loading = LoadStateDictConfig(
        pretrained_model_name_or_path=str(folder),
        device_map={"": torch.device(device)},
        dtype=torch.float32,
        weight_mapping=conversions,
        use_safetensors=True,
    )
    try:
        files = [str(path) for path in weight_files(folder)]
        report, _ = model._load_pretrained_model(model, None, files, loading)
        report.missing_keys -= extra
        report = model._finalize_model_loading(model, loading, report)
    except IntegrityError:
        raise
    except Exception as error:
        raise IntegrityError(f"{folder} is not a usable model: {first_line(error)}", REFETCH) from None
    for name, value in model.named_parameters():  # the library makes them again
        value.requires_grad_(name in trained)
    if torch.device(device).type == "cpu":
        with torch.no_grad():
            for value in model.parameters():  # the library leaves what it need not convert in the file's mapping
                if isinstance(value, DTensor):
                    value._local_tensor = value._local_tensor.clone()
                else:
                    value.data = value.data.clone()
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if keys := getattr(report, kind):
            first = sorted(map(str, keys))[0]
            raise IntegrityError(f"the weights in {folder} do not fit their config: {kind} {first}", REFETCH)


def return_freed_memory() -> None:
    """Have the allocator return to the system what loading and the first pass freed; glibc keeps most of it."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
