"""What worker, validator and trainer derive alike from a pool's configuration: prompts, and rewards bit for bit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from environments.base import Problem
from environments.catalogue import load_environment
from environments.prompts import completion_text, prompt_tokens
from environments.rewards import float32, length_penalty, reward
from protocol.config import PoolConfig
from protocol.environments import Drawn, EnvironmentConfig, drawn
from protocol.errors import IntegrityError
from protocol.models.documents import read_object
from protocol.models.tokenizer import Tokenizer, eos_ids, load_tokenizer

_KEPT_PROBLEMS = 4096
_MAX_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True)
class Score:
    """The three reward columns of a rollout; every number is exactly a float32 value."""

    task_reward: float
    length_penalty: float
    reward: float


class PoolEnvironments:
    """A pool's problems as token ids, and the scores of answers to them.

    `vocabulary` is the number of rows of the model's output layer, which may exceed the tokenizer's size. `data`: the
    folder of the environments' files by content hash (environments/data.py). `held_out`: problems that work is never
    drawn from. Raises ConfigError for an unknown environment, one of another version, or a missing file.
    """

    def __init__(
        self,
        config: PoolConfig,
        tokenizer: Tokenizer,
        eos_ids: Sequence[int],
        vocabulary: int,
        data: Path | None = None,
        held_out: bool = False,
    ) -> None:
        self.config = config
        self.eos_ids = tuple(eos_ids)
        self.vocabulary = vocabulary
        self._tokenizer, self._held_out = tokenizer, held_out
        self._environments = [load_environment(one, data) for one in config.environments]
        self._made = lru_cache(_KEPT_PROBLEMS)(self._make)

    @classmethod
    def of(
        cls, config: PoolConfig, folder: Path, data: Path | None = None, held_out: bool = False
    ) -> "PoolEnvironments":
        """By a model folder. Raises IntegrityError where tokenizer, EOS or vocabulary are missing."""
        return cls(config, load_tokenizer(folder), eos_ids(folder), _vocabulary(folder), data, held_out)

    def drawn(self, problem_seed: int) -> Drawn:
        return drawn(self.config.environments, problem_seed, self._held_out)

    def settings(self, problem_seed: int) -> EnvironmentConfig:
        """Of the environment that a problem belongs to."""
        return self.config.environments[self.drawn(problem_seed).environment]

    def where(self, problem_seed: int) -> str:
        """Which problem that is, in words."""
        found = self.drawn(problem_seed)
        settings = self.config.environments[found.environment]
        return f"{settings.called}, {'row' if settings.rows else 'seed'} {found.seed}"

    def problem(self, problem_seed: int) -> Problem:
        return self._made(self.drawn(problem_seed))

    def _make(self, found: Drawn) -> Problem:
        return self._environments[found.environment].problem(found.seed)

    def prompt(self, problem_seed: int, target_length: int) -> tuple[int, ...]:
        """Prompt token ids of a problem with a target length (0: none)."""
        return prompt_tokens(self._tokenizer, self.config.model, self.problem(problem_seed), target_length)

    def score(self, problem_seed: int, target_length: int, output: Sequence[int]) -> Score:
        """Rewards of a completion (EOS included). Raises ScoringUnavailable where this machine cannot score it."""
        text = completion_text(self._tokenizer, output, self.eos_ids, self.config.model.answer_after)
        place = self.drawn(problem_seed).environment
        alpha = self.config.length_alpha_of(self.config.environments[place])
        task = float32(self._environments[place].score(self.problem(problem_seed), text))
        penalty = length_penalty(alpha, target_length, len(output))
        return Score(task, penalty, reward(task, penalty))


def _vocabulary(folder: Path) -> int:
    """Rows of the output layer, as config.json says (for composite models in `text_config`)."""
    path = folder / "config.json"
    document = read_object(path, _MAX_CONFIG_BYTES)
    try:
        size = document["text_config"]["vocab_size"] if "text_config" in document else document["vocab_size"]
        if type(size) is not int or size <= 0:
            raise ValueError("`vocab_size` is not a positive number")
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path} cannot be used: {error!r}", "fetch the weights again") from None
    return int(size)
