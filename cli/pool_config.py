"""A pool's configuration and terms: written as commented TOML, checked against one another, priced."""

import json as json_module
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from chain.deployment import FOLDER
from chain.indexer.records import Terms
from chain.indexer.state import group_number
from cli.output import fields
from protocol import config
from protocol.config import Curriculum, EnvironmentConfig, PoolConfig
from protocol.encoding import Document, load_document, parse_tokens, show_tokens
from protocol.errors import ConfigError
from protocol.evidence import null_model

_MATRIX = "Decay of the weights of matrices; others do not decay."
_BETA = "Decay of the running mean of gradients"
_RATE = "The peak learning rate."

EXPLAINED: dict[type[Document], dict[str, str]] = {
    config.PoolConfig: {
        "version": "The version of this format.",
        "name": "What people see the pool under.",
        "scoring_versions": "What decides scores: a machine with another version of one of these does no work here.",
        "model": "The model that is trained.",
        "environments": "Where problems come from, and what answers are worth. Repeat the table for several; each gets "
        "its weight's share of the problems.",
        "work": "The shape of one file of work: what a node makes, and is paid for, at a time.",
        "checks": "Where a file's measurements count as fraud. These hold for computing in `model.dtype` with the "
        "engines of muster; `muster pool calibrate` measures your own model's.",
        "train": "How accepted files change the model.",
        "evaluation": "What is measured of the model, on problems that training never sees.",
        "weights": "How policy steps travel to nodes and validators.",
        "data": "Set it for a data pool: it buys rollouts of the model as it is, and trains nothing.",
        "evidence": "The law by which anybody adds up all files of a node: `muster pool calibrate --apply` writes it.",
    },
    config.DataConfig: {
        "rollouts": "How many verified rollouts it buys; then its owner's process closes it.",
    },
    config.WeightsConfig: {
        "snapshot_every": "Every step is published as what changed, multiples of this in full too; 1: all in full.",
        "delta_min_bytes": "Weights of fewer bytes always travel whole.",
    },
    config.ModelConfig: {
        "source": "The model's folder, or its id on huggingface.co. Weights travel by their hash, not by this name.",
        "license": "The model's licence, as nodes see it before they join.",
        "dtype": "What everybody computes in. Thresholds hold for one dtype only.",
        "prompt_template": "What the model is asked; {question} stands for the problem.",
        "chat_template": "Put the prompt into the chat template of the model's tokenizer.",
        "turns": "Messages before the question, where there is a chat template: a system prompt, worked examples.",
        "answer_after": "Only what follows this text counts as the answer, such as </think>; empty: all of it.",
    },
    config.ChatTurn: {
        "role": "Who speaks.",
        "content": "What is said.",
    },
    config.EnvironmentConfig: {
        "name": "Such as reasoning_gym/chain_sum.",
        "label": "What metrics and reports call it; not set: its name.",
        "weight": "Its share of the problems, compared with the other environments'.",
        "params": "The environment's own parameters.",
        "content": "SHA-256 of what defines it, such as its data file: whoever has another refuses to work.",
        "rows": "How many problems its data file has; 0 where problems are made from seeds.",
        "held_out": "How many of these, the last ones, are kept for evaluation.",
        "problems": "Draw from some problems only: `muster env filter` writes this part, with those that a model "
        "solves sometimes.",
        "curriculum": "Let problems rest that the run's own models nearly always or hardly ever solved; they come back "
        "by themselves. It takes `rows` or `problems`.",
        "targets": "Instead of the pool's: lengths that answers are asked to have.",
        "length_alpha": "Instead of the pool's: reward lost for every token off the target.",
        "advantage": "Instead of the run's: how rewards of one problem's answers become advantages.",
        "advantage_scale": "What multiplies the advantages of this environment's answers.",
    },
    config.Curriculum: {
        "tries": "With fewer tries a problem is drawn like any other.",
        "lowest": "Thousandths of solved tries: below them a problem is masked as too hard.",
        "highest": "Above them it is masked as too easy.",
        "solved": "The task reward from which on a try counts as solved.",
        "window": "Only files that became final during so many policy steps count; what rests comes back after as "
        "many.",
        "most": "At most so many thousandths of the problems rest at a time.",
    },
    config.ProblemFilter: {
        "rule": "By what the problems were chosen.",
        "candidates": "How many problems were tried.",
        "kept": "Base64 of one bit for each of them: kept or not.",
        "model": "SHA-256 of the files of the model that tried them.",
        "samples": "Tries at each problem.",
        "lowest": "The least share of solved tries of those that were kept.",
        "highest": "The greatest share of solved tries of those that were kept.",
        "report": "SHA-256 of the filter's own record.",
    },
    config.WorkConfig: {
        "problems_per_file": "Problems of one file.",
        "samples_per_problem": "Answers to each problem: an advantage compares them. A file holds the product of both.",
        "max_new_tokens": "The longest answer, in tokens.",
        "max_prompt_tokens": "The longest prompt, in tokens. Both together must fit the model's context.",
        "temperature": "The temperature of sampling.",
        "targets": "Lengths (in tokens) that answers are asked to have, one drawn for each problem; none: no target.",
        "length_tiers": "Instead of `targets`: such lengths for each tier of nodes, the weakest nodes first.",
        "length_alpha": "Reward lost for every token that an answer is off its target.",
    },
    config.ChecksConfig: {
        "eos_probability_min": "An answer that ends by an EOS less probable than this, which the noise did not choose "
        "either, was cut.",
        "exponent_mismatches_reject": "Exponents of the proven activations that differ, the mean over chunks.",
        "exponent_mismatches_chunk_reject": "The same, of the worst chunk of 32 tokens.",
        "mantissa_mean_reject": "How far mantissas of the proven activations are off, the mean over chunks.",
        "mantissa_mean_chunk_reject": "The same, of the worst chunk.",
        "sampling_gap_reject": "By how much a token lost to the one that the noise picks, the worst token.",
        "sampling_miss_rate_reject": "The share of tokens that are not those that the noise picks.",
        "logprob_error_reject": "How far a claimed log-probability is off, the worst token.",
        "logprob_mean_reject": "The same, the mean over tokens.",
        "distribution_nats_reject": "How improbable the text as a whole is under honest sampling, in nats: honest work "
        "reaches x with a probability of exp(-x) at most.",
        "unsure_band": "From this share of a threshold on the vote is `unsure`, which counts as accepted.",
    },
    config.TrainConfig: {
        "steps": "Policy steps of the whole run.",
        "files_per_step": "Files that a step trains.",
        "max_off_policy_steps": "How many steps old a file may be; the terms' `max_lag` must be at least as much.",
        "minibatches": "Updates of the weights in each step.",
        "filter": "Let a step wait for files with signal: answers to a problem whose rewards differ.",
        "lora": "Train low-rank additions to the projections instead of all weights.",
        "algorithm": "What an update minimises.",
        "optimizer": "How a gradient becomes an update.",
    },
    config.OnlineFilter: {
        "groups": "A step takes files until they hold so many problems with signal.",
        "max_files": "And never more files than this.",
    },
    config.LoraConfig: {
        "rank": "Their rank.",
        "alpha": "Their scale is alpha / rank.",
    },
    config.AlgorithmConfig: {
        "loss": "The policy loss: grpo, gspo, cispo or dppo.",
        "advantage": "How rewards of one problem's answers become advantages.",
        "normaliser": "What a token's loss is divided by: the minibatch's tokens, its sequences and their lengths, or "
        "a constant.",
        "constant_length": "That constant, with `normaliser` constant.",
        "importance_cap": "The most that a file of an older policy may weigh; 0: all weigh 1.",
        "entropy_coefficient": "The weight of a bonus for entropy.",
        "kl": "A penalty on leaving the base model.",
    },
    config.KlConfig: {
        "coefficient": "Its weight.",
        "estimator": "How the divergence is estimated.",
    },
    config.GrpoConfig: {
        "name": "The clipped ratio of every token.",
        "epsilon_low": "A ratio is clipped below 1 - this.",
        "epsilon_high": "And above 1 + this.",
        "delta": "The most a ratio may be where the advantage is negative; null, which only JSON can say, leaves it "
        "open.",
    },
    config.GspoConfig: {
        "name": "The clipped ratio of a whole sequence; with `normaliser` sequences.",
        "epsilon_low": "A ratio is clipped below 1 - this.",
        "epsilon_high": "And above 1 + this.",
    },
    config.CispoConfig: {
        "name": "REINFORCE with a bounded ratio as a constant weight.",
        "ratio_max": "The bound.",
    },
    config.DppoConfig: {
        "name": "Tokens whose probability moved too far have no gradient.",
        "mask_low": "Too far downwards.",
        "mask_high": "Too far upwards.",
        "squared_log_ratio": "The weight of the squared log-ratio.",
    },
    config.OptimizerConfig: {
        "method": "The optimizer: adamw or muon.",
        "schedule": "The learning rate over the updates of a run.",
        "grad_clip": "The largest norm of a gradient.",
    },
    config.ScheduleConfig: {
        "warmup_updates": "Updates over which it rises from 0.",
        "decay": "How it falls at the end.",
        "decay_share": "Over which last share of the run.",
        "final_share": "To which share of its peak.",
    },
    config.AdamWConfig: {
        "name": "AdamW.",
        "learning_rate": _RATE,
        "beta1": f"{_BETA}.",
        "beta2": f"{_BETA}' squares.",
        "epsilon": "Added to the denominator.",
        "weight_decay": _MATRIX,
    },
    config.MuonConfig: {
        "name": "Muon on the blocks' matrices, AdamW elsewhere.",
        "learning_rate": _RATE,
        "momentum": "Momentum of Muon.",
        "beta1": f"{_BETA}, of AdamW.",
        "beta2": f"{_BETA}' squares, of AdamW.",
        "epsilon": "Added to the denominator, of AdamW.",
        "weight_decay": _MATRIX,
    },
    config.EvaluationConfig: {
        "every": "Measure every so many steps; 0: the base model and the last step only.",
        "sets": "Sets of held-out problems; the first is what the run's reward is judged by.",
    },
    config.EvaluationSet: {
        "name": "What it is called.",
        "environment": "Another environment than the pool's own.",
        "problems": "How many problems.",
        "samples": "Tries at each.",
        "temperature": "The temperature of sampling; not set: the pool's.",
        "solved": "The task reward from which on a try counts as solved.",
    },
}

MACHINE_WRITTEN: tuple[type[Document], ...] = (null_model.EvidenceConfig,)
"""Parts that a command writes and nobody by hand: the file names them, and holds one only where it is set."""


_WIDTH = 118
_HEAD = """\
# A pool's configuration. Its hash goes on chain with `muster pool create` and can never change after that.
# A line that begins with `#` and a name is not set; remove the `#` to set it. Comments end with bounds and default.
# Next: muster pool check --config FILE --terms base-sepolia --budget TOKENS

"""
_SYMBOLS = (("ge", "at least {}"), ("gt", "above {}"), ("le", "at most {}"), ("lt", "below {}"))


def pool_file(config: PoolConfig, task_parameters: Mapping[str, Any]) -> str:
    """The TOML of a configuration. `task_parameters`: name → default of what its environment takes, shown where not
    set."""
    return _HEAD + "\n".join(_Writer(task_parameters).table(PoolConfig, config, "", off=False)) + "\n"


class _Writer:
    """Writes one model after another; `off` makes comments of what is not set."""

    def __init__(self, task_parameters: Mapping[str, Any]) -> None:
        self._task_parameters = task_parameters

    def table(self, kind: type[Document], value: Document | None, path: str, off: bool) -> Iterator[str]:
        """The fields of a model, those without tables of their own first, as TOML wants them."""
        parts = []
        for name, field in kind.model_fields.items():
            given = getattr(value, name) if value is not None else _default(field)
            models = _models(field.annotation)
            if models or isinstance(given, dict):
                parts.append((name, field, given, models))
            else:
                yield from _comment(kind, name, field)
                yield _assignment(name, given, off)
        for name, field, given, models in parts:
            yield ""
            yield from _comment(kind, name, field)
            yield from self._part(f"{path}.{name}".lstrip("."), given, models, _is_list(field.annotation), off)

    def _part(self, path: str, given: Any, models: list[type[Document]], many: bool, off: bool) -> Iterator[str]:
        if isinstance(given, MACHINE_WRITTEN):
            yield _header(path, many, off)
            yield from (_assignment(name, one, off) for name, one in given.model_dump(mode="json").items())
            return
        if models and set(models) <= set(MACHINE_WRITTEN):
            yield _header(path, many, off=True)
            return
        if isinstance(given, dict):
            yield from self._parameters(path, given, off)
            return
        values = list(given) if many and given else [given] if isinstance(given, Document) else []
        for value in values:
            yield _header(path, many, off)
            yield from self.table(type(value), value, path, off)
        for kind in models:  # what could stand there instead, or also
            if kind not in map(type, values):
                if values:
                    yield f"# Instead of the table above, where it is {kind.model_fields['name'].default}:"
                yield _header(path, many, off=True)
                yield from self.table(kind, None, path, off=True)

    def _parameters(self, path: str, given: dict[str, Any], off: bool) -> Iterator[str]:
        yield _header(path, many=False, off=off)
        for name, value in given.items():
            yield _assignment(name, value, off)
        if path == "environments.params":
            for name, value in self._task_parameters.items():
                if name not in given:
                    yield _assignment(name, value, off=True)


def _comment(kind: type[Document], name: str, field: FieldInfo) -> list[str]:
    notes = "; ".join(_notes(field))
    text = EXPLAINED[kind][name] + (f" ({notes})" if notes else "")
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _notes(field: FieldInfo) -> Iterator[str]:
    """Bounds, choices and default, in words."""
    if choices := [one for part in _spread(field.annotation) if get_origin(part) is Literal for one in get_args(part)]:
        yield "one of " + ", ".join(map(str, choices)) if len(choices) > 1 else f"always {choices[0]}"
    for attribute, words in _SYMBOLS:
        for bound in field.metadata:
            if (value := getattr(bound, attribute, None)) is not None:
                yield words.format(f"{value:g}" if isinstance(value, float) else value)
    default = _default(field)
    if isinstance(default, str | int | float | bool) and not (choices and len(choices) == 1):
        yield f"default {_literal(default)}"


def _default(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True, validated_data={})
    return None if field.is_required() else value


def _spread(annotation: Any) -> Iterator[Any]:
    """The members of a union, without what annotates them."""
    if get_origin(annotation) is Annotated:
        yield from _spread(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from _spread(one)
    else:
        yield annotation


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is tuple


def _models(annotation: Any) -> list[type[Document]]:
    """The models that a field holds, one or many."""
    inner = get_args(annotation)[0] if _is_list(annotation) else annotation
    return [one for one in _spread(inner) if isinstance(one, type) and issubclass(one, Document)]


def _header(path: str, many: bool, off: bool) -> str:
    return ("# " if off else "") + (f"[[{path}]]" if many else f"[{path}]")


def _assignment(name: str, value: Any, off: bool) -> str:
    if value is None:
        return f"# {name} ="
    return ("# " if off else "") + f"{name} = {_literal(value)}"


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_literal(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json_module.dumps(value, ensure_ascii=False)  # a TOML basic string has JSON's escapes


_MAX_ROWS = 65535
_MAX_MODEL_BYTES = 1 << 20
_PROGRAM_PROBLEMS = 32


@dataclass(frozen=True)
class PoolProblem:
    """Why a pool could not work, and what to change."""

    what: str
    hint: str

    @property
    def line(self) -> str:
        return f"{self.what}; {self.hint}"


@dataclass(frozen=True)
class PoolCosts:
    """What a full file costs (base_units) and how far a budget reaches. `units`: the most output tokens of a file.
    `rollouts`: how many a data pool buys, 0 for a pool that trains; `rows` of them make a file."""

    units: int
    pay: int
    fees: int
    budget: int
    wanted: int
    files_per_step: int
    rollouts: int = 0
    rows: int = 1

    @property
    def file(self) -> int:
        return self.pay + self.fees

    @property
    def files(self) -> int:
        """How many full files the budget buys."""
        return self.budget // self.file if self.file else self.wanted

    def text(self) -> str:
        steps, needed = self.files // self.files_per_step, self.wanted * self.file
        buys = f"{self.files * self.rows} rollouts" if self.rollouts else f"{steps} training steps"
        run = f"{self.rollouts} rollouts take" if self.rollouts else "the run needs"
        return fields(
            {
                "a full file": f"{self.units} output tokens; {show_tokens(self.file)} tokens, of them "
                f"{show_tokens(self.pay)} to its node and {show_tokens(self.fees)} to its committee",
                "the budget buys": f"{self.files} full files, {buys}",
                run: f"{self.wanted} files, {show_tokens(needed)} tokens at most"
                + ("" if needed <= self.budget else ": muster pool fund adds the rest later"),
            }
        )


def costs(config: PoolConfig, terms: Terms, budget: int) -> PoolCosts:
    """Of the pool's own files, each as long as it can be."""
    units = config.work.rows * config.work.max_new_tokens
    wanted = config.bought_files or config.train.steps * config.train.files_per_step
    pay, fees = units * terms.rate, terms.committee * terms.fee
    rollouts = config.data.rollouts if config.data is not None else 0
    return PoolCosts(units, pay, fees, budget, wanted, config.train.files_per_step, rollouts, config.work.rows)


def contradictions(config: PoolConfig, terms: Terms, budget: int) -> list[PoolProblem]:
    """Where configuration, terms and budget do not fit one another: a pool that could take no file, or lose them."""
    cost, found = costs(config, terms, budget), []
    if config.work.rows > _MAX_ROWS:
        found.append(PoolProblem(f"a file has {config.work.rows} rollouts, {_MAX_ROWS} fit", "make files smaller"))
    if cost.units > terms.maxUnits:
        what = f"a file can have {cost.units} output tokens, `max_units` takes {terms.maxUnits}"
        found.append(PoolProblem(what, "raise `max_units`, or make files or answers smaller"))
    if terms.rate and (limit := terms.minStake * terms.leverage // terms.rate) < cost.units:
        what = f"the least stake allows {limit} output tokens in flight, one file can have {cost.units}"
        found.append(PoolProblem(what, "raise `min_stake` or `leverage`, or lower `rate`"))
    if budget < cost.file:
        what = f"the budget is {show_tokens(budget)} tokens, one full file costs {show_tokens(cost.file)}"
        found.append(PoolProblem(what, "raise --budget, or lower `rate` or `fee`"))
    if config.data is None and terms.maxLag < config.train.max_off_policy_steps:
        what = f"training uses files {config.train.max_off_policy_steps} steps old, `max_lag` takes {terms.maxLag}"
        found.append(PoolProblem(what, "raise `max_lag`, or lower `train.max_off_policy_steps`"))
    return [*found, *judging_problems(config, terms), *curriculum_problems(config)]


def judging_problems(config: PoolConfig, terms: Terms) -> list[PoolProblem]:
    """Programs that could take longer than committees or juries have."""
    from environments.program import too_slow

    try:
        slow = too_slow(config, terms.commitWindow, terms.juryCommitWindow)
    except ConfigError:  # a wrong parameter: `world_problems` names it
        return []
    return [] if slow is None else [PoolProblem(f"environment {slow.what}", slow.hint)]


def warnings(config: PoolConfig, terms: Terms) -> list[PoolProblem]:
    """What does not keep a pool from working, and should be known before it is made: it can never change."""
    from validator.challenges import no_null_model

    found = []
    if not config.scoring_versions:
        what = "the configuration names no `scoring_versions`: a node whose libraries score differently is slashed"
        found.append(PoolProblem(what, "copy that table from what `muster pool init` writes for these environments"))
    why = no_null_model(config, terms.auditRate)
    if not why:
        return found
    what = f"{why}, so cheats too small for any one file go unpunished and no node challenge can convict"
    return [*found, PoolProblem(what, "measure one and write it there: muster pool calibrate … --apply FILE")]


def curriculum_lines(config: PoolConfig) -> list[str]:
    """What each curriculum of the pool does, in words."""
    return [_curriculum_line(config, one, one.curriculum) for one in config.curricula.values() if one.curriculum]


def _curriculum_line(config: PoolConfig, one: EnvironmentConfig, learn: Curriculum) -> str:
    rest = f"those solved in fewer than {learn.lowest / 10:g}% or more than {learn.highest / 10:g}%"
    return (
        f"curriculum of {one.called}: of {one.kept} problems, {rest} of at least {learn.tries} tries rest, at most "
        f"{learn.most / 10:g}% of them at a time; files that became final during the last {learn.window} policy steps "
        f"count, so each comes back after as many. In that time a problem is tried about "
        f"{_tries(config, one, learn):.3g} times"
    )


def curriculum_problems(config: PoolConfig) -> list[PoolProblem]:
    """Curricula by which hardly anything would ever rest."""
    found = []
    for one in config.curricula.values():
        learn = one.curriculum
        if learn is not None and 4 * _tries(config, one, learn) < learn.tries:
            often = f"a problem is tried about {_tries(config, one, learn):.2g} times in {learn.window} policy steps"
            what = (
                f"environment {one.called}: {often}, and its curriculum takes {learn.tries} tries: nothing would rest"
            )
            found.append(PoolProblem(what, "raise `curriculum.window`, lower `tries`, or leave `curriculum` out"))
    return found


def _tries(config: PoolConfig, one: EnvironmentConfig, learn: Curriculum) -> float:
    """How often each of an environment's problems is tried in the files of a curriculum's window, while none rests."""
    share = one.weight / sum(other.weight for other in config.environments)
    return learn.window * config.train.files_per_step * config.work.rows * share / one.kept


def world_problems(config: PoolConfig, folder: Path | None = None) -> list[PoolProblem]:
    """Return what of the world does not fit: an environment or model that does not exist, a parameter that an
    environment does not have. `folder`: where the model lies, if not under its `source`."""
    from environments.checking import sample_seeds
    from environments.registry import load_environment

    found = []
    others = [one.environment for one in config.evaluation.sets if one.environment is not None]
    for environment in (*config.environments, *others):
        try:
            loaded = load_environment(environment)
            for seed in sample_seeds(loaded.rows, _PROGRAM_PROBLEMS if environment.name == "program" else 1):
                if fault := loaded.problem(seed).fault:
                    what = f"environment {environment.called} makes no problem of seed {seed}: {fault}"
                    found.append(PoolProblem(what, "mend the program (see: muster env check)"))
                    break
        except ConfigError as error:
            found.append(PoolProblem(error.what, error.hint or "correct `environments`"))
    if missing := missing_model(str(folder or config.model.source)):
        found.append(PoolProblem(missing, "name a folder, or an id as on huggingface.co, in `model.source`"))
    return found


def missing_model(source: str) -> str:
    """Why there is no such model, if that is known for certain; an id that cannot be looked up now counts as one."""
    from trainer.model.tiny_model import TINY_SOURCE

    folder = Path(source).expanduser()
    if source == TINY_SOURCE:
        return ""
    if folder.is_dir():
        return "" if (folder / "config.json").is_file() else f"the folder {source} holds no model: no config.json"
    if source.startswith(("/", "./", "../", "~")):
        return f"there is no folder {source}"
    from huggingface_hub import model_info
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    try:
        model_info(source, timeout=5.0)
    except (RepositoryNotFoundError, HFValidationError):
        return f"there is no model {source}"
    except Exception:  # no network, or the site is down: that says nothing of the model
        return ""
    return ""


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
    max_units: U24
    committee: U8 = 3
    jury: U8 = 7
    appeal_jury: U8 = 15
    lane_blocks: U8 = 8
    attest_blocks: U8 = 60
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

    def terms(self, config_hash: bytes) -> Terms:
        return Terms.of({**self.model_dump(by_alias=True), "configHash": config_hash})


def load_terms(path: Path, config_hash: bytes) -> Terms:
    """The terms in a TOML file, or those that come with muster for a network of that name, for the pool configuration
    with that SHA-256. Raises ConfigError naming the field."""
    shipped = FOLDER / "terms" / f"{path}.toml"
    path = shipped if path.suffix != ".toml" and shipped.exists() else path
    return load_document(path, TermsFile, toml=True).terms(config_hash)


def pool_config(folder: Path, task: str, params: dict[str, Any], name: str | None) -> "PoolConfig":
    """The configuration with defaults for everything else. Raises ConfigError for what is no model folder."""
    from environments.registry import scoring_versions
    from protocol.config import BF16_CHECKS, ChecksConfig, EnvironmentConfig

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


def model_config(folder: Path) -> config.ModelConfig:
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
    return ModelConfig(source=folder.resolve().name, dtype="bfloat16" if half else "float32", chat_template=chats)


def _document(path: Path) -> dict[str, Any]:
    from protocol.encoding import parse_json
    from protocol.files import read_bounded

    try:
        said = parse_json(read_bounded(path, _MAX_MODEL_BYTES))
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

    from environments.base import THRESHOLD
    from environments.gym import RESERVED

    _, config = DATASETS[task.partition("/")[2]]
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = field.default_factory() if callable(field.default_factory) else field.default
        if field.name not in RESERVED and isinstance(value, bool | int | float | str | tuple | list):
            found[field.name] = value
    return found | {THRESHOLD: 1.0}
