"""A pool's prompts and rewards, the same bits for worker, validator and trainer.

Rewards are exactly float32 values: the rollout file's columns keep them unchanged, and `==` compares them.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from pydantic import AliasChoices, BaseModel, Field, ValidationError

from environments.base import NO_PROBLEM, Environment, InTurns, Problem
from environments.prompts import answer_of, completion_text, prompt_tokens, warn_without_stop
from environments.registry import check_versions, load_environment
from environments.turns import Reply, ReplyFrame, replay, turns_of
from protocol.config import Drawn, EnvironmentConfig, PoolConfig, drawn
from protocol.curriculum import CurriculumMask
from protocol.errors import ConfigError, IntegrityError, first_problem
from protocol.models import Tokenizer, eos_ids, load_tokenizer, read_object, text_digest
from protocol.rollout_file.rows import Tokens, Transcript


def float32(value: float) -> float:
    return float(np.float32(value))


def length_penalty(alpha: float, target: int, length: int) -> float:
    """alpha · |target − length| tokens (output tokens, EOS included); 0 where there is no target (target 0)."""
    if target <= 0 or alpha == 0.0:
        return 0.0
    return float(np.float32(alpha) * np.float32(abs(target - length)))


def reward(task: float, penalty: float) -> float:
    """task − penalty, subtracted in float32."""
    return float(np.float32(task) - np.float32(penalty))


_KEPT_PROBLEMS = 4096


@dataclass(frozen=True)
class Score:
    """The three reward columns of a rollout."""

    task_reward: float
    length_penalty: float
    reward: float


class PoolEnvironments:
    """A pool's problems as token ids, and the scores of answers. `vocabulary`: rows of the model's output layer.
    `data`: the folder of files by hash, or environments that are loaded. `held_out`: problems that work is never drawn
    from. `positions`: the model's context in tokens (None: unbounded). Raises ConfigError for an unknown environment,
    one of another version, a missing file, or a context that holds no reply."""

    def __init__(
        self,
        config: PoolConfig,
        tokenizer: Tokenizer,
        eos_ids: Sequence[int],
        vocabulary: int,
        data: Path | Sequence[Environment] | None = None,
        held_out: bool = False,
        positions: int | None = None,
    ) -> None:
        self.config = config
        self.eos_ids = tuple(eos_ids)
        self.vocabulary, self.positions = vocabulary, positions
        self.mask: CurriculumMask | None = None
        self._tokenizer, self._held_out = tokenizer, held_out
        self._environments = list(data) if isinstance(data, Sequence) else _loaded(config, data)
        self._frames = [self._frame(environment) for environment in self._environments]
        self._problems = lru_cache(_KEPT_PROBLEMS)(self._problem)
        self._fits = lru_cache(_KEPT_PROBLEMS)(self._is_short)

    @classmethod
    def of(
        cls,
        config: PoolConfig,
        folder: Path,
        data: Path | Sequence[Environment] | None = None,
        held_out: bool = False,
    ) -> "PoolEnvironments":
        """By a model folder. Raise IntegrityError where tokenizer, EOS or vocabulary are missing."""
        sizes, tokenizer, ends = _sizes(folder), load_tokenizer(folder), eos_ids(folder)
        if config.model.chat_template:
            warn_without_stop(tokenizer, ends)
        return cls(config, tokenizer, ends, sizes.vocab_size, data, held_out, sizes.positions)

    def _frame(self, environment: Environment) -> ReplyFrame | None:
        """Return what stands around an environment's replies; None where it has none."""
        turns, room, work = environment.declared.turns, self._reply_room, self.config.work
        if turns.most == 1:
            return None
        if room is not None and room < turns.reply_tokens:
            raise ConfigError(
                f"the model's {self.positions} positions have no room for a reply of {turns.reply_tokens} tokens "
                f"beside {work.max_prompt_tokens} of a prompt and {work.max_new_tokens} sampled ones",
                "lower work.max_prompt_tokens, work.max_new_tokens or `reply_tokens`",
            )
        return ReplyFrame(self._tokenizer, self.config.model, turns.role, self.eos_ids)

    @property
    def _reply_room(self) -> int | None:
        """Tokens that all replies of a rollout may take together, so that the model can take whatever else it holds."""
        work = self.config.work
        return None if self.positions is None else self.positions - work.max_prompt_tokens - work.max_new_tokens

    def at(self, folder: Path) -> "PoolEnvironments":
        """Return the same with the curriculum mask of the policy step in `folder`. Raise IntegrityError without one."""
        if not self.config.curricula:
            return self
        masked = copy.copy(self)
        masked.mask = CurriculumMask.load(self.config, folder)
        return masked

    def drawn(self, problem_seed: int) -> Drawn:
        return drawn(self.config.environments, problem_seed, self._held_out)

    def _of(self, problem_seed: int) -> Environment:
        return self._environments[self.drawn(problem_seed).environment]

    def settings(self, problem_seed: int) -> EnvironmentConfig:
        return self.config.environments[self.drawn(problem_seed).environment]

    def where(self, problem_seed: int) -> str:
        settings = self.settings(problem_seed)
        return f"{settings.called}, {'row' if settings.rows else 'seed'} {self.drawn(problem_seed).seed}"

    def problem(self, problem_seed: int) -> Problem:
        return self._problems(self.drawn(problem_seed))

    def _problem(self, draw: Drawn) -> Problem:
        return self._environments[draw.environment].problem(draw.seed)

    def prompt(self, problem_seed: int, target_length: int) -> tuple[int, ...]:
        """Return a problem's prompt, or something short that no answer is worth anything to if that is too long."""
        environment, longest = self._of(problem_seed), self.config.work.max_prompt_tokens
        tokens = self._tokens(environment, self.problem(problem_seed), target_length)
        return tokens if len(tokens) <= longest else self._tokens(environment, Problem(NO_PROBLEM, ""), 0)[:longest]

    def asks(self, problem_seed: int, target_length: int) -> bool:
        """Return whether the prompt is the problem: whether it is as short as the pool's prompts have to be."""
        return self._fits(self.drawn(problem_seed), target_length)

    def _is_short(self, draw: Drawn, target_length: int) -> bool:
        tokens = self._tokens(self._environments[draw.environment], self._problems(draw), target_length)
        return len(tokens) <= self.config.work.max_prompt_tokens

    def _tokens(self, environment: Environment, problem: Problem, target_length: int) -> Tokens:
        tools = environment.declared.turns.tools
        return prompt_tokens(self._tokenizer, self.config.model, problem, target_length, tools)

    def turns(self, problem_seed: int) -> int:
        return self._of(problem_seed).declared.turns.most

    def replies(self, problem_seed: int) -> Reply:
        """Return what is called once after each turn of a rollout, in order, for what follows it, and may raise
        ScoringUnavailable. A reply that the model has no room for, or that holds tokens it does not know, is none."""
        environment, frame = self._of(problem_seed), self._frames[self.drawn(problem_seed).environment]
        if frame is None or not isinstance(environment, InTurns):
            return lambda turns: None
        problem, room, texts = self.problem(problem_seed), self._reply_room, list[str]()

        def reply(turns: Sequence[Tokens]) -> Tokens | None:
            nonlocal room
            texts.extend(map(self._text, turns[len(texts) :]))
            reply, most = environment.reply(problem, list(texts)), environment.declared.turns.reply_tokens
            tokens = None if reply is None else frame.tokens(reply, most if room is None else min(most, room))
            if tokens is None or max(tokens, default=0) >= self.vocabulary:
                return None
            room = None if room is None else room - len(tokens)
            return tokens

        return reply

    def transcript(self, problem_seed: int, output: Sequence[int]) -> Transcript:
        """Take apart what was sampled, the environment's replies made again. Raise ScoringUnavailable."""
        return replay(tuple(output), self.eos_ids, self.turns(problem_seed), self.replies(problem_seed))

    def _text(self, turn: Sequence[int]) -> str:
        return completion_text(self._tokenizer, turn, self.eos_ids)

    def score(self, problem_seed: int, target_length: int, output: Sequence[int]) -> Score:
        """Return rewards of what was sampled (EOS included). Raise ScoringUnavailable."""
        alpha = self.config.length_alpha_of(self.settings(problem_seed))
        task = float32(self._task_score(problem_seed, output)) if self.asks(problem_seed, target_length) else 0.0
        penalty = length_penalty(alpha, target_length, len(output))
        return Score(task, penalty, reward(task, penalty))

    def _task_score(self, problem_seed: int, output: Sequence[int]) -> float:
        environment, problem = self._of(problem_seed), self.problem(problem_seed)
        *before, last = turns_of(output, self.eos_ids) if environment.declared.turns.most > 1 else [output]
        answer = completion_text(self._tokenizer, last, self.eos_ids, self.config.model.answer_after)
        if environment.declared.turns.most == 1 or not isinstance(environment, InTurns):
            return environment.score(problem, answer)
        return environment.score_turns(problem, [*map(self._text, before), answer])


def _loaded(config: PoolConfig, data: Path | None = None) -> list[Environment]:
    check_versions(config.environments, config.scoring_versions)
    return [load_environment(environment, data) for environment in config.environments]


class _Sizes(BaseModel):
    """What config.json says of a model. `vocab_size`: rows of the output layer."""

    vocab_size: int = Field(gt=0, strict=True)
    positions: int | None = Field(
        None, gt=0, strict=True, validation_alias=AliasChoices("max_position_embeddings", "n_positions")
    )


def _sizes(folder: Path) -> _Sizes:
    path = folder / "config.json"
    document = read_object(path, 1 << 20)
    try:
        return _Sizes.model_validate(document.get("text_config", document))  # composite models have that
    except ValidationError as error:
        what = ": ".join(first_problem(error.errors()))
        raise IntegrityError(f"{path} cannot be used: {what}", "fetch the weights again") from None


class FollowingEnvironments:
    """Those of the step that was loaded last, made again whenever its text files differ: all judge by the same prompts,
    whenever they joined, and an owner who changes a template has no honest nodes refused."""

    def __init__(self, config: PoolConfig) -> None:
        self._config, self._digest = config, b""
        self._current: PoolEnvironments | None = None
        self._loaded: list[Environment] = []

    def prepare(self) -> None:
        """Load what no policy step changes: it takes seconds. Raise what `load_environment` and `check_versions`
        raise."""
        self._loaded = self._loaded or _loaded(self._config)

    def of(self, folder: Path) -> PoolEnvironments:
        """Return a step's environments with its curriculum mask. Raise what `PoolEnvironments.of` and `at` raise."""
        digest = text_digest(folder)
        if self._current is None or digest != self._digest:
            self.prepare()
            self._current, self._digest = PoolEnvironments.of(self._config, folder, self._loaded), digest
        return self._current.at(folder)


class TextEnvironments:
    """The environments of a swarm: a text gets the same score whatever model and tokenizer a machine has. Raises what
    loading them raises, and ConfigError for several turns, whose text does not say what was sampled."""

    def __init__(self, configs: Sequence[EnvironmentConfig], answer_after: str) -> None:
        self._configs, self._answer_after = configs, answer_after
        self._environments = list(map(load_environment, configs))
        for config, environment in zip(configs, self._environments, strict=True):
            if environment.declared.turns.most > 1:
                raise ConfigError(
                    f"environment {config.called} has several turns", "a swarm takes environments of one turn"
                )

    def problem(self, problem_seed: int) -> Problem:
        draw = drawn(self._configs, problem_seed)
        return self._environments[draw.environment].problem(draw.seed)

    def name(self, problem_seed: int) -> str:
        """Return what tells problems apart: environment and its own seed."""
        draw = drawn(self._configs, problem_seed)
        return f"{self._configs[draw.environment].called}/{draw.seed}"

    def score(self, problem_seed: int, text: str) -> float:
        """Return a completion's task reward, exactly a float32. Raise ScoringUnavailable."""
        draw = drawn(self._configs, problem_seed)
        environment = self._environments[draw.environment]
        return float32(environment.score(environment.problem(draw.seed), answer_of(text, self._answer_after)))
