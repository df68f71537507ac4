"""Making one rollout file: plan, complete, score, seal. Apart from the engine everything is pure.

`attacks/` replaces stages to show what the checks catch; an honest worker uses `Producer` as it is.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from engines.base import Completion, Generator, Sampling
from environments.pool import FollowingEnvironments, PoolEnvironments
from protocol.config import PoolConfig
from protocol.rollout_file.file import write
from protocol.rollout_file.rows import Commitment, Rollout, RolloutHeader, commit
from protocol.seeds import Assignment, Work, assignments, noise_key
from runtime.turns import RolloutTask, converse


@dataclass(frozen=True)
class Planned:
    """One completion to make: sample `sample` of an assigned problem."""

    assignment: Assignment
    sample: int
    prompt: tuple[int, ...]
    noise_key: tuple[int, int, int]


@dataclass(frozen=True)
class Produced:
    """A finished file, and what goes on chain about it."""

    header: RolloutHeader
    rollouts: tuple[Rollout, ...]
    data: bytes
    commitment: Commitment


Keep = Callable[[Work, Generator, Sampling], AbstractContextManager[Generator]]


class Producer:
    """Makes rollout files of one pool with one engine, whose arithmetic they name; several at once, in threads, where
    the engine allows it. `keep` puts something between a file and the engine that remembers what it completed."""

    def __init__(self, config: PoolConfig, engine: Generator, keep: Keep | None = None) -> None:
        self.config, self.engine, self._keep = config, engine, keep
        self._following = FollowingEnvironments(config)
        self._environment: PoolEnvironments | None = None

    @property
    def environment(self) -> PoolEnvironments:
        if self._environment is None:
            raise ValueError("load weights first")
        return self._environment

    def prepare(self) -> None:
        """Prepare what the first file needs besides weights, while they are downloaded. Raises ConfigError for an
        environment that this machine does not have."""
        self._following.prepare()

    def load(self, weights: Path) -> None:
        """Load (or hot-reload) a step's model folder. Raises IntegrityError if it is not usable."""
        environment = self._following.of(weights)
        self.engine.load(weights)
        self._environment = environment

    def make(self, work: Work) -> Produced:
        """Make the file of some work: the same on every call, up to the engine's arithmetic."""
        plan = self.plan(work)
        rollouts = self.score(plan, self.complete(work, plan))
        return self.seal(work, rollouts)

    def plan(self, work: Work) -> list[Planned]:
        plan = []
        for assignment in assignments(work, self.config, self.environment.mask):
            prompt = self.environment.prompt(assignment.problem_seed, assignment.target_length)
            for sample in range(self.config.work.samples_per_problem):
                plan.append(Planned(assignment, sample, prompt, noise_key(work, assignment.slot, sample)))
        return plan

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.config.work.temperature, self.environment.eos_ids)

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        """Return completions with proofs, all turns of each, in the plan's order."""
        tasks = [RolloutTask(rollout.assignment.problem_seed, rollout.prompt, rollout.noise_key) for rollout in plan]
        kept = self._keep(work, self.engine, self.sampling) if self._keep else nullcontext(self.engine)
        with kept as engine:
            return converse(engine, self.environment, tasks, self.sampling, self.config.work.max_new_tokens)

    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
        rows = []
        for planned, completion in zip(plan, completions, strict=True):
            problem = planned.assignment
            score = self.environment.score(problem.problem_seed, problem.target_length, completion.tokens)
            rows.append(
                Rollout(
                    **vars(problem),
                    sample=planned.sample,
                    prompt_tokens=planned.prompt,
                    output_tokens=completion.tokens,
                    finish=completion.finish,
                    logprobs=completion.logprobs,
                    **vars(score),
                    proofs=completion.proofs,
                )
            )
        return rows

    def header(self, work: Work) -> RolloutHeader:
        info = self.engine.info
        return RolloutHeader(work, f"{info.name} {info.version}", info.dtype, info.device)

    def seal(self, work: Work, rollouts: Sequence[Rollout]) -> Produced:
        """Return file bytes and commitment. Raises MalformedFile if a stage broke the format."""
        header = self.header(work)
        data = write(header, rollouts)
        return Produced(header, tuple(rollouts), data, commit(data, rollouts))
