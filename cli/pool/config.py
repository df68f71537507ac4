"""A pool's configuration and terms: written as commented TOML, checked against one another, priced."""

import json
import math
import textwrap
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from chain.deployment import FOLDER
from chain.indexer.records import Terms
from chain.indexer.state import group_number
from cli.hardware import pass_operations
from cli.output import fields
from environments.base import ANSWER_TOKENS, MAX_ANSWER_CHARS, THRESHOLD
from environments.checking import sample_seeds
from environments.gym import RESERVED
from environments.program import too_slow
from environments.registry import load_environment, scoring_versions
from protocol.config import BF16_CHECKS, ChecksConfig, EnvironmentConfig, ModelConfig, PoolConfig
from protocol.encoding import Document, load_document, parse_tokens, show_tokens
from protocol.errors import ConfigError
from protocol.models import read_object
from protocol.rollout_file.rows import Limits
from protocol.verdict import LANE
from trainer.model.tiny_model import TINY_SOURCE
from validator.challenges import no_evidence

_MAX_ROWS, _MAX_UNITS = 65535, (1 << 32) - 1  # of a file, as contracts count
_MAX_UPLOAD = 5 << 30  # bytes that S3 takes in one request
VALIDATOR_SPEED = {"bfloat16": 100.0, "float32": 25.0}
"""10¹² operations a second of a validator's pass where nothing else is stated: assumed, not measured."""
_PROGRAM_PROBLEMS = 32

# The file


_WIDTH = 118
_HEAD = """\
# A pool's configuration. Its hash goes on chain with `muster pool create` and can never change after that.
# A line that begins with `#` and a name is not set; remove the `#` to set it. Comments end with bounds and default.
# Next: muster pool check --config FILE --terms base-sepolia --budget TOKENS

"""
_BOUNDS = (("ge", "at least {}"), ("gt", "above {}"), ("le", "at most {}"), ("lt", "below {}"))


def pool_file(config: PoolConfig, environment_parameters: Mapping[str, Any]) -> str:
    """Return commented TOML. `environment_parameters`: name → default, shown where it is not set."""
    return _HEAD + "\n".join(_table(PoolConfig, config, "", False, environment_parameters)) + "\n"


def _table(
    kind: type[Document], value: Document | None, path: str, off: bool, unset: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the fields of a model: plain ones first, as TOML wants them. `off` makes comments of what is not set."""
    parts = []
    for name, field in kind.model_fields.items():
        setting = getattr(value, name) if value is not None else _default(field)
        if isinstance(setting, dict) or _models(field):
            parts.append((f"{path}.{name}".lstrip("."), field, setting))
        else:
            yield from _comment(field)
            yield _assignment(name, setting, off)
    for table_path, field, setting in parts:
        yield ""
        yield from _comment(field)
        many, kinds = get_origin(field.annotation) is tuple, _models(field)
        if isinstance(setting, dict):
            yield _header(table_path, False, off)
            yield from (_assignment(key, each, off) for key, each in setting.items())
            if table_path == "environments.params":
                yield from (_assignment(key, each, True) for key, each in unset.items() if key not in setting)
        else:
            values = setting or () if many else [setting] if setting is not None else []
            for entry in values:
                yield _header(table_path, many, off)
                yield from _table(type(entry), entry, table_path, off, unset)
            for other in (kind for kind in kinds if kind not in map(type, values)):
                if values:
                    yield f"# Instead of the table above, where it is {other.model_fields['name'].default}:"
                yield _header(table_path, many, True)
                yield from _table(other, None, table_path, True, unset)


def _comment(field: FieldInfo) -> list[str]:
    """Return the description, bounds, choices and default of a field."""
    notes, default = [], _default(field)
    choices = [
        choice for part in _members(field.annotation) if get_origin(part) is Literal for choice in get_args(part)
    ]
    if choices:
        notes.append("one of " + ", ".join(map(str, choices)) if len(choices) > 1 else f"always {choices[0]}")
    for attribute, words in _BOUNDS:
        bounds = [getattr(bound, attribute) for bound in field.metadata if getattr(bound, attribute, None) is not None]
        notes += [words.format(f"{bound:g}" if isinstance(bound, float) else bound) for bound in bounds]
    if isinstance(default, str | int | float | bool) and len(choices) != 1:
        notes.append(f"default {_literal(default)}")
    text = f"{field.description}" + (f" ({'; '.join(notes)})" if notes else "")
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _default(field: FieldInfo) -> Any:
    return None if field.is_required() else field.get_default(call_default_factory=True, validated_data={})


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union or of a tuple's elements, without what annotates them."""
    if get_origin(annotation) in (Annotated, tuple):
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def _models(field: FieldInfo) -> list[type[Document]]:
    members = _members(field.annotation)
    return [member for member in members if isinstance(member, type) and issubclass(member, Document)]


def _header(path: str, many: bool, off: bool) -> str:
    return ("# " if off else "") + (f"[[{path}]]" if many else f"[{path}]")


def _assignment(name: str, value: Any, off: bool) -> str:
    return f"# {name} =" if value is None else ("# " if off else "") + f"{name} = {_literal(value)}"


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_literal(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # a TOML basic string has JSON's escapes


def pool_config(folder: Path, environment: str, params: dict[str, Any], name: str | None) -> PoolConfig:
    """Return the configuration with defaults for everything else. Raises what `model_config` raises."""
    model = model_config(folder)
    chosen = EnvironmentConfig(name=environment, params=params)
    return PoolConfig(
        name=name or folder.resolve().name,
        model=model,
        environments=(chosen,),
        checks=BF16_CHECKS if model.dtype == "bfloat16" else ChecksConfig(),
        scoring_versions=scoring_versions([chosen]),
    )


def model_config(folder: Path) -> ModelConfig:
    """Read a model folder's dtype, and whether it has a chat template. Raises ConfigError, IntegrityError."""
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", "name the model's folder in --model")
    config, tokenizer = read_object(folder / "config.json"), folder / "tokenizer_config.json"
    half = (config.get("dtype") or config.get("torch_dtype")) in ("bfloat16", "float16")
    chats = (folder / "chat_template.jinja").is_file()
    chats = chats or (tokenizer.is_file() and bool(read_object(tokenizer).get("chat_template")))
    return ModelConfig(source=folder.resolve().name, dtype="bfloat16" if half else "float32", chat_template=chats)


def parameter(text: str) -> tuple[str, Any]:
    """Parse `min_terms=3` into a name and a value, which is JSON or else text. Raises ConfigError."""
    name, given, value = text.partition("=")
    if not given or not name.strip().isidentifier():
        raise ConfigError(f"--param {text!r} is not NAME=VALUE", "write it like min_terms=3")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value


def environment_parameters(environment: str) -> dict[str, Any]:
    """Return name → default of a reasoning_gym dataset's parameters, where TOML can express the default; else
    nothing."""
    if not environment.startswith("reasoning_gym/"):
        return {}
    import dataclasses

    from reasoning_gym.factory import DATASETS

    _, config = DATASETS[environment.partition("/")[2]]
    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = field.default_factory() if callable(field.default_factory) else field.default
        if field.name not in RESERVED and isinstance(value, bool | int | float | str | tuple | list):
            defaults[field.name] = value
    return defaults | {THRESHOLD: 1.0}


# Checks and costs


# What checking a row costs of generating it, at most (benchmarks/results/price.json, at any audit rate).
_CHECK_SHARE = 0.36


def costs(config: PoolConfig, terms: Terms, budget: int) -> dict[str, int]:
    """Return what a full `file` of the pool costs (base units), each as long as it can be, and how many `files` the
    budget buys of those `wanted`. `units`: the most output tokens of a file; `check`: what one of its file costs a seat
    if its node's pay covers no more than its work; `rollouts`: how many a data pool buys, 0 for a pool that trains;
    `rows` of them make a file."""
    units, wanted = config.work.units, config.train.steps * config.train.files_per_step
    wanted = config.bought_files or wanted
    pay, fees = units * terms.rate, terms.committee * terms.fee
    audited = (1 + (config.work.rows - 1) * terms.audit_fraction) / config.work.rows
    return {
        "units": units,
        "pay": pay,
        "fees": fees,
        "check": math.ceil(_CHECK_SHARE * audited * pay),
        "file": pay + fees,
        "budget": budget,
        "wanted": wanted,
        "files": budget // (pay + fees) if pay + fees else wanted,
        "files_per_step": config.train.files_per_step,
        "rollouts": config.data.rollouts if config.data is not None else 0,
        "rows": config.work.rows,
    }


def costs_text(cost: dict[str, int]) -> str:
    """Return the costs of a pool for people."""
    files, needed = cost["files"], cost["wanted"] * cost["file"]
    buys = (
        f"{files * cost['rows']} rollouts" if cost["rollouts"] else f"{files // cost['files_per_step']} training steps"
    )
    later = "" if needed <= cost["budget"] else ": muster pool fund adds the rest later"
    file, pay, fees = (show_tokens(cost[name]) for name in ("file", "pay", "fees"))
    return fields(
        {
            "a full file": f"{cost['units']} output tokens; {file} tokens, of them {pay} to its node and {fees} to its "
            "committee",
            "the budget buys": f"{files} full files, {buys}",
            f"{cost['rollouts']} rollouts take" if cost["rollouts"] else "the run needs": f"{cost['wanted']} files, "
            f"{show_tokens(needed)} tokens at most{later}",
        }
    )


def contradictions(config: PoolConfig, terms: Terms, budget: int) -> list[ConfigError]:
    """Return why the pool could take no file, or would lose them: configuration, terms and budget do not fit."""
    cost, problems = costs(config, terms, budget), []
    if misfit := config.checks.misfit(terms.auditRate):
        problems.append(misfit)
    elif config.model.dtype == "bfloat16" and config.checks.audit_rate is None:
        what = "its thresholds were not measured on this model: in bfloat16 honest files may be refused, and slashed"
        problems.append(ConfigError(what, "measure them with `muster pool calibrate --apply`"))
    if config.work.rows > _MAX_ROWS:
        problems.append(ConfigError(f"a file has {config.work.rows} rollouts, {_MAX_ROWS} fit", "make files smaller"))
    if cost["units"] > _MAX_UNITS:
        what = f"a file can have {cost['units']} output tokens, the contracts count {_MAX_UNITS}"
        problems.append(ConfigError(what, "make files or answers smaller"))
    if (size := Limits.of(config.work).file_bytes) > _MAX_UPLOAD:
        problems.append(
            ConfigError(f"a file can have {size} bytes, a bucket takes {_MAX_UPLOAD}", "make files smaller")
        )
    if config.work.max_new_tokens > ANSWER_TOKENS:
        what = f"answers can have {config.work.max_new_tokens} tokens, of about four characters each"
        why = f"an answer of more than {MAX_ANSWER_CHARS} characters is worth 0"
        problems.append(ConfigError(what, f"lower `work.max_new_tokens` to {ANSWER_TOKENS}: {why}"))
    if terms.rate and (limit := terms.minStake * terms.leverage // terms.rate) < cost["units"]:
        what = f"the least stake allows {limit} output tokens in flight, one file can have {cost['units']}"
        problems.append(ConfigError(what, "raise `min_stake` or `leverage`, or lower `rate`"))
    if budget < cost["file"]:
        what = f"the budget is {show_tokens(budget)} tokens, one full file costs {show_tokens(cost['file'])}"
        problems.append(ConfigError(what, "raise --budget, or lower `rate` or `fee`"))
    if config.data is None and terms.maxLag < config.train.max_off_policy_steps:
        what = f"training uses files {config.train.max_off_policy_steps} steps old, `max_lag` takes {terms.maxLag}"
        problems.append(ConfigError(what, "raise `max_lag`, or lower `train.max_off_policy_steps`"))
    with suppress(ConfigError):  # a wrong parameter: `world_problems` names it
        if slow := too_slow(config, terms.commitWindow, terms.juryCommitWindow):
            problems.append(ConfigError(f"environment {slow.what}", slow.hint))
    total = sum(environment.weight for environment in config.environments)
    for environment in config.curricula.values():
        learn = environment.curriculum
        assert learn is not None, "it is one of the curricula"
        rows = learn.window * config.train.files_per_step * config.work.rows
        tries = rows * environment.weight / total / environment.kept  # of each problem, while none is masked
        if 4 * tries < learn.tries:
            often = f"a problem is tried about {tries:.2g} times in {learn.window} policy steps"
            what = f"environment {environment.called}: {often}, but its curriculum masks after {learn.tries} tries"
            problems.append(ConfigError(what, "raise `curriculum.window`, lower `tries`, or leave `curriculum` out"))
    return problems


def judging(
    config: PoolConfig, terms: Terms, model: dict[str, Any] | None, speed: float = 0.0
) -> tuple[str, list[ConfigError]]:
    """Return what the model's pass over a lane's audited rows costs a validator that computes `speed` · 10¹² operations
    a second (0: VALIDATOR_SPEED), in words, and why no such validator could judge in time: a full lane in half of a
    committee's window, one file in half of a jury's; the other half is for scoring. `model`: its config.json, if that
    is here."""
    if model is None:
        return "not priced: the model's config.json is not on this machine", []
    work, speed = config.work, speed or VALIDATOR_SPEED[config.model.dtype]
    tokens, text = work.max_prompt_tokens + work.max_new_tokens, model.get("text_config", model)
    problems, positions = [], text.get("max_position_embeddings")
    if isinstance(positions, int) and tokens > positions:
        what = f"prompt and answer may take {tokens} tokens, the model has {positions} positions"
        problems.append(ConfigError(what, "lower `work.max_new_tokens` or `work.max_prompt_tokens`"))
    try:
        per_row = pass_operations(model, tokens) / (speed * 1e12)
    except ConfigError as error:
        return f"not priced: {error.what}", problems
    rows = min(work.rows, 1 + terms.audit_fraction * work.rows)  # one row of a file is always drawn
    lane = LANE * rows * per_row
    for whom, seconds, name, window in (
        (f"a lane of {LANE} files", lane, "commit_window", terms.commitWindow),
        ("a file before a jury", lane / LANE, "jury_commit_window", terms.juryCommitWindow),
    ):
        if 2 * seconds > window:
            share = math.floor(65536 * (window / (2 * seconds / rows) - 1) / work.rows)
            sample = f"lower `audit_rate` to {share}, " if share > 0 else ""
            what = (
                f"the model's pass over {whom} takes a validator of {speed:g}·10¹² operations a second "
                f"{seconds:.0f} s; of `{name}` {window / 2:g} s are for that"
            )
            hint = f"raise `{name}` to {math.ceil(2 * seconds)}, {sample}or make files or answers smaller"
            problems.append(ConfigError(what, hint))
    return f"{LANE * rows:.0f} rows of a lane, {lane:.3g} s at {speed:g}·10¹² operations a second", problems


def warnings(config: PoolConfig, terms: Terms) -> list[ConfigError]:
    """Return what does not keep a pool from working, but can never change once it is made."""
    problems = []
    # an attempt earns a quarter of the fee: what is left of it after a check must be more
    if 3 * terms.fee < 4 * (check := costs(config, terms, 0)["check"]):
        what = f"checking a full file can cost a seat {show_tokens(check)} tokens and earns {show_tokens(terms.fee)}"
        hint = f"raise `fee` to {show_tokens(-(-4 * check // 3))}, lower `audit_rate`, or make files smaller"
        problems.append(ConfigError(f"{what}: seats may do better not to look", hint))
    if not config.scoring_versions:
        what = "the configuration names no `scoring_versions`: a node whose libraries score differently is slashed"
        problems.append(ConfigError(what, "copy that table from what `muster pool init` writes for these environments"))
    if why := no_evidence(config.evidence):
        what = f"{why}, so cheats too small for any one file go unpunished and no node challenge can convict"
        problems.append(ConfigError(what, "name the engines that its judges can measure in `evidence.engines`"))
    return problems


def world_problems(config: PoolConfig, folder: Path | None = None) -> list[ConfigError]:
    """Return what of the world does not fit: environments, parameters, the model (in `folder`, else under its
    `source`)."""
    problems = []
    others = [held_out.environment for held_out in config.evaluation.sets if held_out.environment is not None]
    for environment in (*config.environments, *others):
        try:
            loaded = load_environment(environment)
            for seed in sample_seeds(loaded.rows, _PROGRAM_PROBLEMS if environment.name == "program" else 1):
                if fault := loaded.problem(seed).fault:
                    what = f"environment {environment.called} makes no problem of seed {seed}: {fault}"
                    raise ConfigError(what, "mend the program (see: muster env check)")
        except ConfigError as error:
            problems.append(ConfigError(error.what, error.hint or "correct `environments`"))
    if missing := missing_model(str(folder or config.model.source)):
        problems.append(ConfigError(missing, "name a folder, or an id as on huggingface.co, in `model.source`"))
    return problems


def model_document(config: PoolConfig, folder: Path | None = None) -> dict[str, Any] | None:
    """Return the config.json of the model in `folder`, else under its `source`; None where neither is here."""
    path = (folder or Path(config.model.source).expanduser()) / "config.json"
    return read_object(path) if path.is_file() else None


def missing_model(source: str) -> str:
    """Return why there is no such model, if that is certain: what names no folder may be an id of the hub."""
    folder = Path(source).expanduser()
    if source == TINY_SOURCE:
        return ""
    if folder.is_dir():
        return "" if (folder / "config.json").is_file() else f"the folder {source} holds no model: no config.json"
    if source.startswith(("/", "./", "../", "~")):
        return f"there is no folder {source}"
    return ""


# Terms


def _base_units(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError('must be a number of tokens in quotes, such as "0.5"')
    try:
        return parse_tokens(str(value))
    except ConfigError as error:
        raise ValueError(error.what) from None


def _group(value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError('must be "own" or the name of a validator group, in quotes')
    try:
        return 0 if value == "own" else group_number(value)
    except ConfigError as error:
        raise ValueError(error.what) from None


SmallAmount = Annotated[int, BeforeValidator(_base_units), Field(lt=1 << 32)]
Amount = Annotated[int, BeforeValidator(_base_units), Field(lt=1 << 56)]
U8 = Annotated[int, Field(ge=0, lt=1 << 8, strict=True)]
U16 = Annotated[int, Field(ge=0, lt=1 << 16, strict=True)]
U24 = Annotated[int, Field(ge=0, lt=1 << 24, strict=True)]
Seconds = Annotated[int, Field(ge=0, lt=1 << 32, strict=True)]


class TermsFile(BaseModel):
    """Members of `PoolTerms` by their names in snake case; the contract checks them against its bounds. `group`: the
    validator group that judges, `own` for the seats that opted into this one pool."""

    model_config = ConfigDict(extra="forbid", alias_generator=AliasGenerator(serialization_alias=to_camel))

    rate: SmallAmount
    fee: SmallAmount
    jury_fee: SmallAmount
    min_stake: Amount
    leverage: U16
    committee: U8 = 3
    jury: U8 = 7
    appeal_jury: U8 = 15
    max_lag: U8 = 2
    audit_rate: U24 = 65536
    draw_blocks: U16 = 1800
    commit_window: Seconds
    reveal_window: Seconds
    challenge_window: Seconds
    appeal_window: Seconds
    jury_commit_window: Seconds
    jury_reveal_window: Seconds
    receipt_window: Seconds
    group: Annotated[int, BeforeValidator(_group)] = 0
    invite_only: Annotated[bool, Field(strict=True)] = False


def load_terms(path: Path, config_hash: bytes, units: int) -> Terms:
    """Load the terms in a TOML file, or those that come with muster for a network, for files of at most `units` output
    tokens. Raises ConfigError naming the field."""
    shipped = FOLDER / "terms" / f"{path}.toml"
    path = shipped if path.suffix != ".toml" and shipped.exists() else path
    given = load_document(path, TermsFile, toml=True).model_dump(by_alias=True)
    return Terms.of({**given, "maxUnits": units, "configHash": config_hash})
