"""Whether a pool can work, and what its work costs: from configuration, terms and budget, before any money moves. Pure
but for `world_problems`, which makes problems of the task and looks for the model."""

from dataclasses import dataclass
from pathlib import Path

from chain.indexer.records import Terms
from cli.output import fields
from protocol.amounts import show_tokens
from protocol.config import PoolConfig
from protocol.curriculum import Curriculum
from protocol.environments import EnvironmentConfig
from protocol.errors import ConfigError

_MAX_ROWS = 65535
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
    """What a full file costs (base units) and how far a budget reaches. `units`: the most output tokens of a file.
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
    what = f"{why}, so cheats too small for any one file go unpunished and no node case can convict"
    return [*found, PoolProblem(what, "measure one and write it there: muster calibrate … --apply (docs/evidence.md)")]


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


def world_problems(config: PoolConfig) -> list[PoolProblem]:
    """An environment or model that does not exist, or a parameter that the environment does not have."""
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
                    found.append(PoolProblem(what, "mend the program (see: muster task check)"))
                    break
        except ConfigError as error:
            found.append(PoolProblem(error.what, error.hint or "correct `environments`"))
    if missing := missing_model(config.model.source):
        found.append(PoolProblem(missing, "name a folder, or an id as on huggingface.co, in `model.source`"))
    return found


def missing_model(source: str) -> str:
    """Why there is no such model, if that is known for certain; an id that cannot be looked up now counts as one."""
    from trainer.tiny_model import TINY_SOURCE

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
