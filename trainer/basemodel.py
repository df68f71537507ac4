"""Where a run's first weights come from: the warmed-up tiny model from the cache, a folder, or a Hugging Face id."""

import dataclasses
import importlib.metadata
import json
import logging
from pathlib import Path

from environments.catalogue import load_environment
from protocol.config import ModelConfig
from protocol.encoding import canonical_json, sha256_hex
from protocol.environments import EnvironmentConfig
from protocol.errors import ConfigError, first_line
from protocol.files import explained, user_cache, write_atomic
from protocol.folders import file_digests, write_folder
from protocol.locks import locked
from trainer.tiny_model import PHRASES, TINY_SOURCE
from trainer.warmup import Progress, Recipe, warm_up

log = logging.getLogger("muster.trainer")
REVISION = 2  # raise it when the warm-up's code changes what comes out
PACKAGES = ("torch", "transformers", "tokenizers", "reasoning_gym")
BUILD_SECONDS = 1800.0


def base_model(
    model: ModelConfig, task: EnvironmentConfig, seed: int, cache: Path | None = None, progress: Progress = log.info
) -> Path:
    """A local Hugging Face folder with the weights of policy step 0; never changed afterwards.

    `model.source` is a folder, a Hugging Face id (fetched into its own cache), or `muster/tiny-qwen2`, which is warmed
    up from `seed` once and then kept in `cache` (default: the user's cache folder). Raises ConfigError.
    """
    if model.source == TINY_SOURCE:
        return warmed_up(task, seed, cache or user_cache("models"), progress)
    return model_folder(model.source)


def model_folder(source: str) -> Path:
    """A local folder as it is, or what a Hugging Face id fetches. Raises ConfigError."""
    folder = Path(source).expanduser()
    return folder if folder.is_dir() else _from_hub(source)


def warmed_up(
    task: EnvironmentConfig, seed: int, cache: Path, progress: Progress = log.info, recipe: Recipe | None = None
) -> Path:
    """The tiny model of a seed and task, from `cache` if it is intact there, else made now (about 40 CPU-seconds)."""
    recipe = recipe or Recipe()
    key = cache_key(task, seed, recipe)
    folder, record = cache / key, cache / f"{key}.json"
    with explained(f"write to the cache {cache}", "set XDG_CACHE_HOME"):
        cache.mkdir(parents=True, exist_ok=True)
    lock = cache / f"{key}.lock"
    with locked(lock, f"another process that makes the base model ({lock})", BUILD_SECONDS):
        if _intact(folder, record, progress):
            progress(f"base model for seed {seed}: from the cache")
            return folder
        loaded = load_environment(task)
        write_folder(folder, lambda aside: warm_up(aside, loaded, seed, recipe, progress))
        write_atomic(record, canonical_json(file_digests(folder)))
    return folder


def cache_key(task: EnvironmentConfig, seed: int, recipe: Recipe) -> str:
    """Hash of everything that decides the weights: recipe, seed, task (whichever of its problems work is drawn from),
    tokenizer phrases, library versions."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    whole = task.model_copy(update={"problems": None}).model_dump(mode="json", exclude={"curriculum"})
    parts = [REVISION, dataclasses.asdict(recipe), seed, whole, list(PHRASES), versions]
    return f"tiny-{sha256_hex(canonical_json(parts))[:24]}"


def _intact(folder: Path, record: Path, progress: Progress) -> bool:
    if not folder.is_dir():
        return False
    try:
        expected = json.loads(record.read_bytes())
        if expected and file_digests(folder) == expected:
            return True
    except (OSError, ValueError):
        pass
    progress(f"the cached base model {folder} is damaged; making it again")
    return False


def _from_hub(source: str) -> Path:
    from huggingface_hub import snapshot_download

    patterns = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.jinja"]
    try:
        return Path(snapshot_download(source, allow_patterns=patterns, etag_timeout=20))
    except Exception as error:  # the hub's client has many errors; each means the model cannot be had
        raise ConfigError(
            f"the model {source!r} is neither a folder nor a model that can be fetched: {first_line(error)}",
            "check the name, the network and the licence's terms, or name a local folder",
        ) from None
