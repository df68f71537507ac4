"""`muster pool init`: a pool's configuration with every field explained, for a model folder and a task."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption
from cli.output import emit
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from protocol.config import ModelConfig, PoolConfig

_MAX_BYTES = 1 << 20


def init(
    model: Annotated[Path, typer.Option(help="Folder of the model to train.")],
    task: Annotated[str, typer.Option(help="Task, such as reasoning_gym/chain_sum.")],
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Parameter of the task; can be repeated.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the pool; the folder's if missing.")] = None,
    rollouts: Annotated[
        int | None, typer.Option(min=1, help="Make it a data pool, which buys so many rollouts and trains nothing.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("pool.toml"),
    force: Annotated[bool, typer.Option("--force", help="Write the file anew.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a pool's configuration: everything has its default and is explained, model and task are looked at. It needs
    no chain and no key."""
    from cli.pool_file import pool_file
    from cli.pool_plan import world_problems
    from protocol.config import DataConfig
    from protocol.files import explained, write_atomic

    if out.suffix != ".toml":
        raise ConfigError(f"{out} does not end in .toml", "comments need TOML; choose another --out")
    if out.exists() and not force:
        raise ConfigError(f"{out} exists", "choose another --out, or pass --force")
    config = pool_config(model.expanduser(), task, dict(map(parameter, param or ())), name)
    if rollouts is not None:
        config = config.model_copy(update={"data": DataConfig(rollouts=rollouts)})
    for problem in world_problems(config):
        raise ConfigError(problem.what, problem.hint)
    with explained(f"write {out}", "check the folder"):
        write_atomic(out, pool_file(config, task_parameters(task)).encode())
    shown = {"file": str(out), "config_hash": config.digest.hex(), "dtype": config.model.dtype}
    lines = [
        f"{out}: {config.name}, {config.model.dtype}, {config.work.rows} rollouts in a file",
        f"next: muster pool check --config {out} --terms base-sepolia --budget 1000",
    ]
    emit(shown, json, lambda: "\n".join(lines))


def pool_config(folder: Path, task: str, params: dict[str, Any], name: str | None) -> "PoolConfig":
    """The configuration with defaults for everything else. Raises ConfigError for what is no model folder."""
    from environments.registry import scoring_versions
    from protocol.config import BF16_CHECKS, ChecksConfig, PoolConfig
    from protocol.environments import EnvironmentConfig

    model = model_config(folder)
    checks = BF16_CHECKS if model.dtype == "bfloat16" else ChecksConfig()
    chosen = EnvironmentConfig(name=task, params=params)
    return PoolConfig(
        name=name or folder.resolve().name,
        model=model,
        environments=(chosen,),
        checks=checks,
        scoring_versions=scoring_versions([chosen]),
    )


def model_config(folder: Path) -> "ModelConfig":
    """What a model folder says of itself: its dtype, and whether it has a chat template. Raises ConfigError."""
    from protocol.config import ModelConfig

    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", "name the model's folder in --model")
    said = _document(folder / "config.json")
    dtype = said.get("dtype") or said.get("torch_dtype") or "float32"
    half = dtype in ("bfloat16", "float16")
    tokenizer = folder / "tokenizer_config.json"
    chats = (folder / "chat_template.jinja").is_file() or (
        tokenizer.is_file() and bool(_document(tokenizer).get("chat_template"))
    )
    return ModelConfig(source=str(folder.resolve()), dtype="bfloat16" if half else "float32", chat_template=chats)


def _document(path: Path) -> dict[str, Any]:
    from protocol.encoding import parse_json
    from protocol.files import read_bounded

    try:
        said = parse_json(read_bounded(path, _MAX_BYTES))
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}", "name the folder of a model") from None
    if not isinstance(said, dict):
        raise ConfigError(f"{path} is not a JSON object", "name the folder of a model")
    return said


def parameter(text: str) -> tuple[str, Any]:
    """`min_terms=3` as a name and a value, which is JSON, or else text. Raises ConfigError."""
    name, given, value = text.partition("=")
    if not given or not name.strip().isidentifier():
        raise ConfigError(f"--param {text!r} is not NAME=VALUE", "write it like min_terms=3")
    try:
        return name.strip(), json_module.loads(value)
    except ValueError:
        return name.strip(), value


def task_parameters(task: str) -> dict[str, Any]:
    """Name → default of the parameters that a task takes, where TOML can say the default."""
    import dataclasses

    from reasoning_gym.factory import DATASETS

    from environments.gym import RESERVED, THRESHOLD

    _, config = DATASETS[task.partition("/")[2]]
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = field.default_factory() if callable(field.default_factory) else field.default
        if field.name not in RESERVED and isinstance(value, bool | int | float | str | tuple | list):
            found[field.name] = value
    return found | {THRESHOLD: 1.0}
