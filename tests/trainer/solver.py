"""A pool of sums, and an engine without a model that solves a chosen share of its tries at each problem."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from engines.base import FINISH_EOS, Completion, Request, Sampling
from environments.pool import PoolEnvironments
from protocol.config import EnvironmentConfig, PoolConfig, WorkConfig
from protocol.models import load_tokenizer
from trainer.model.tiny_model import tiny_model_config

SUMS_POOL = PoolConfig(
    name="test",
    model=tiny_model_config(),
    environments=(EnvironmentConfig(name="reasoning_gym/chain_sum", params={"min_digits": 4, "max_digits": 4}),),
    work=WorkConfig(max_new_tokens=8, max_prompt_tokens=128),
)


class Solver:
    """`solves(problem seed, try)`: whether that try at a problem is right; tries are counted from 0. `known`: the
    problems it may be asked. `loaded` and `asked` say what it was used for."""

    def __init__(self, environment: PoolEnvironments, folder: Path, solves: Callable[[int, int], bool]) -> None:
        self._environment, self._tokenizer, self._solves = environment, load_tokenizer(folder), solves
        self._seeds: dict[tuple[int, ...], int] = {}
        self._tries: Counter[int] = Counter()
        self.loaded: list[Path] = []
        self.asked: list[Request] = []

    def know(self, seeds: Sequence[int], targets: Sequence[int] = (0,)) -> "Solver":
        self._seeds |= {self._environment.prompt(seed, target): seed for seed in seeds for target in targets}
        return self

    def load(self, weights: Path) -> None:
        self.loaded.append(weights)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        self.asked += requests
        return [self._complete(self._seeds[request.prompt], sampling) for request in requests]

    def _complete(self, seed: int, sampling: Sampling) -> Completion:
        right = self._solves(seed, self._tries[seed])
        self._tries[seed] += 1
        answer = self._environment.problem(seed).answer if right else "x"
        tokens = (*self._tokenizer.encode(f"</think>{answer}"), sampling.eos_ids[0])
        return Completion(tokens, tuple(-1.0 for _ in tokens), FINISH_EOS, ())
