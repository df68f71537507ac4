"""Held-out evaluation of policy steps, beside training: tries, estimates, a queue on a thread, and a child process.

Anyone can repeat a measurement: problems follow from the pool's configuration, sampling noise from configuration and
step. The child process has a time limit, a low priority, and dies with the trainer.
"""

import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter

from engines.base import Engine, Sampling
from engines.runtime import torch_environment
from environments.pool import PoolEnvironments, Score
from protocol.accounts import LocalAccount
from protocol.api.work import Evaluation, SetResult, SignedEvaluation, sign_evaluation
from protocol.config import EvaluationSet, PoolConfig
from protocol.encoding import Document, parse_json
from protocol.errors import MusterError, printable
from protocol.files import die_with_parent, write_atomic
from protocol.identity import PoolId
from protocol.seeds import all_targets, heldout_noise_key, heldout_problem
from runtime.process import EngineConfig
from runtime.turns import RolloutTask, converse
from trainer.config import EvaluationProcessConfig

log = logging.getLogger("muster.trainer")
BATCHES_AT_ONCE = 8
"""Batches that an engine is given at once: it puts prompts of one length together, which saves most of the padding."""
_BATCH = 64
_POLL_SECONDS = 0.2
_RESULTS = TypeAdapter(list[SetResult])


@dataclass(frozen=True)
class Attempt:
    """One try at a problem with a target length (0: none), and the words that key its sampling noise."""

    problem_seed: int
    target_length: int
    noise_key: tuple[int, int, int]


@dataclass(frozen=True)
class ScoredAttempt:
    """A scored try; `length` in sampled tokens of all turns, EOS included."""

    score: Score
    length: int


def score_attempts(
    engine: Engine,
    environment: PoolEnvironments,
    attempts: Sequence[Attempt],
    batch: int,
    temperature: float | None = None,
) -> Iterator[ScoredAttempt]:
    """Yield the outcome of every try, in order, with the weights that the engine has loaded. `batch`: completions
    generated together; `temperature`: the pool's if None."""
    work = environment.config.work
    sampling = Sampling(temperature or work.temperature, environment.eos_ids)
    for start in range(0, len(attempts), BATCHES_AT_ONCE * batch):
        part = attempts[start : start + BATCHES_AT_ONCE * batch]
        tasks = [
            RolloutTask(one.problem_seed, environment.prompt(one.problem_seed, one.target_length), one.noise_key)
            for one in part
        ]
        completions = converse(engine, environment, tasks, sampling, work.max_new_tokens)
        for attempt, completion in zip(part, completions, strict=True):
            score = environment.score(attempt.problem_seed, attempt.target_length, completion.tokens)
            yield ScoredAttempt(score, len(completion.tokens))


def average(rewards: Sequence[Sequence[float]]) -> float:
    """Return the mean reward over all tries of all problems (avg@n)."""
    return math.fsum(reward for tries in rewards for reward in tries) / sum(map(len, rewards))


def standard_error(rewards: Sequence[Sequence[float]]) -> float:
    """Return the standard error of `average`: problems are independent draws, the tries of one problem are not. 0 for a
    single problem."""
    count = len(rewards)
    if count < 2:
        return 0.0
    means = [math.fsum(tries) / len(tries) for tries in rewards]
    centre = math.fsum(means) / count
    variance = math.fsum((mean - centre) ** 2 for mean in means) / (count - 1)
    return math.sqrt(variance / count)


def pass_at(k: int, tries: int, solved: Sequence[int]) -> float:
    """Return the probability that k tries hold a success, without bias from `tries` ≥ k of them: the mean over problems
    of 1 − C(tries − c, k) / C(tries, k), c successes (Chen et al. 2021, arXiv 2107.03374)."""
    if not 1 <= k <= tries:
        raise ValueError(f"pass@{k} cannot be told from {tries} tries")
    ways = math.comb(tries, k)
    return math.fsum(1 - math.comb(tries - count, k) / ways for count in solved) / len(solved)


def reported_ks(tries: int) -> tuple[int, ...]:
    """Return the powers of two up to `tries`, and `tries` itself."""
    powers = [1 << power for power in range(tries.bit_length())]
    return tuple(sorted({*powers, tries}))


def evaluate(engine: Engine, config: PoolConfig, folder: Path, step: int, batch: int = _BATCH) -> list[SetResult]:
    """Return the results of every held-out set with the weights in `folder`, those of policy step `step`. Raises
    ConfigError for an unknown environment, IntegrityError if the folder is not a usable model."""
    engine.load(folder)
    sets = range(len(config.evaluation.sets))
    return [_measure(engine, config, folder, step, number, batch) for number in sets]


def _measure(engine: Engine, config: PoolConfig, folder: Path, step: int, number: int, batch: int) -> SetResult:
    asked, started = config.evaluation.sets[number], time.monotonic()
    own = config.model_copy(update={"environments": (asked.environment,)}) if asked.environment else config
    environments = PoolEnvironments.of(own, folder, held_out=True)
    attempts = _attempts(config, environments, asked, step, number)
    scored = list(score_attempts(engine, environments, attempts, batch, asked.temperature))
    names = [environments.settings(one.problem_seed).called for one in attempts[:: asked.samples]]
    k = asked.samples
    rewards = [[one.score.task_reward for one in scored[start : start + k]] for start in range(0, len(scored), k)]
    by_name: dict[str, list[list[float]]] = {}
    for name, tries in zip(names, rewards, strict=True):
        by_name.setdefault(name, []).append(tries)
    solved = [sum(reward >= asked.solved for reward in tries) for tries in rewards]
    return SetResult(
        name=asked.name,
        problems=asked.problems,
        samples=k,
        average=average(rewards),
        error=standard_error(rewards),
        by_environment={name: average(tries) for name, tries in sorted(by_name.items())} if len(by_name) > 1 else {},
        passed={str(few): pass_at(few, k, solved) for few in reported_ks(k)},
        length=math.fsum(one.length for one in scored) / len(scored),
        seconds=round(time.monotonic() - started, 3),
    )


def _attempts(
    config: PoolConfig, environments: PoolEnvironments, asked: EvaluationSet, step: int, number: int
) -> list[Attempt]:
    """Problem by problem; problems take the target lengths of their environment in turn."""
    attempts = []
    for index in range(asked.problems):
        problem = heldout_problem(config.digest, number, index)
        targets = all_targets(config.work, environments.settings(problem)) or (0,)
        for sample in range(asked.samples):
            noise = heldout_noise_key(config.digest, step, number, index, sample)
            attempts.append(Attempt(problem, targets[index % len(targets)], noise))
    return attempts


class Evaluator(Protocol):
    """Who measures. `stop` makes a measurement in progress fail soon."""

    def __call__(self, pool: PoolConfig, folder: Path, step: int) -> list[SetResult]:
        """Return the results of the pool's held-out sets with the weights in `folder`, those of policy step `step`.
        Raises MusterError."""

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Candidate:
    """A policy step to measure: its weights and the digest of its manifest."""

    step: int
    folder: Path
    manifest: bytes


class Evaluations:
    """The evaluations of a run, measured one after another on a thread, so that training never waits.

    At most one step waits while another is measured. A newer step replaces one that waits, which is recorded as
    skipped; the base model and the last step are never skipped. Only the evaluator runs on the thread; everything else
    belongs to the caller's. `known`: steps measured or skipped before a restart."""

    def __init__(
        self, pool: PoolConfig, pool_id: PoolId, account: LocalAccount, evaluator: Evaluator, known: Iterable[int] = ()
    ) -> None:
        self._pool, self._pool_id, self._account, self._evaluator = pool, pool_id, account, evaluator
        self._known = set(known)
        self._changed = threading.Condition()
        self._waiting: list[Candidate] = []
        self._running: Candidate | None = None
        self._done: list[Evaluation] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="evaluations", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """Begin nothing more and end what runs; it is measured after the restart."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._evaluator.stop()
        if self._thread.is_alive():
            self._thread.join(patience)

    def offer(self, candidate: Candidate) -> None:
        """Queue a published policy step if it is due and not known yet."""
        step = candidate.step
        if step in self._known or not self._pool.evaluation.due(step, self._pool.train.steps):
            return
        self._known.add(step)
        with self._changed:
            if not candidate.folder.is_dir():
                self._skip(candidate, "its weights are gone")
                return
            for waiting in [one for one in self._waiting if one.step not in (0, self._pool.train.steps)]:
                self._waiting.remove(waiting)
                self._skip(waiting, f"step {step} came before its turn")
            self._waiting.append(candidate)
            self._changed.notify_all()

    @property
    def pinned(self) -> set[Path]:
        """Folders that are still needed."""
        with self._changed:
            return {one.folder for one in (*self._waiting, *([self._running] if self._running else []))}

    @property
    def idle(self) -> bool:
        """Whether nothing waits, runs or has yet to be collected."""
        with self._changed:
            return not (self._waiting or self._running or self._done)

    def collect(self) -> list[SignedEvaluation]:
        """Return what was finished or skipped since the last call, signed."""
        with self._changed:
            done, self._done = self._done, []
        return [sign_evaluation(self._account, self._pool_id, one) for one in done]

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
                candidate = self._running = self._waiting.pop(0)
            try:
                results = self._evaluator(self._pool, candidate.folder, candidate.step)
            except Exception as error:  # whatever happens to a measurement, training goes on
                if not isinstance(error, MusterError):
                    log.exception("the evaluation of step %d failed", candidate.step)
                self._finish(candidate, [], printable(f"it failed: {error}", 190))
            else:
                self._finish(candidate, results)

    def _finish(self, candidate: Candidate, results: list[SetResult], failure: str = "") -> None:
        with self._changed:
            self._running = None
            if self._stopping:
                return
            if failure:
                self._skip(candidate, failure)
            else:
                self._done.append(self._evaluation(candidate, results))
        for one in results:
            log.info("held-out set %s at step %d: %.3f ± %.3f", one.name, candidate.step, one.average, one.error)

    def _skip(self, candidate: Candidate, why: str) -> None:
        log.warning("the evaluation of step %d is skipped: %s", candidate.step, why)
        self._done.append(self._evaluation(candidate, [], why))

    def _evaluation(self, candidate: Candidate, results: list[SetResult], skipped: str = "") -> Evaluation:
        return Evaluation(
            step=candidate.step,
            manifest=candidate.manifest.hex(),
            config_hash=self._pool.digest.hex(),
            time=round(time.time(), 3),
            results=results,
            skipped=skipped,
        )


class EvaluationJob(Document):
    """What the child process measures: the sets of `pool` with the weights in `folder`."""

    pool: PoolConfig
    folder: Path
    step: int
    engine: EngineConfig


class EvaluationProcess:
    """Measures one policy step at a time in a child process, which gets its job as one JSON file and writes its results
    as another. An Evaluator."""

    def __init__(self, config: EvaluationProcessConfig, engine: EngineConfig) -> None:
        self._config, self._engine = config, config.engine or engine
        self._stopping = threading.Event()

    @property
    def engine(self) -> str:
        return self._engine.name

    def stop(self) -> None:
        self._stopping.set()

    def __call__(self, pool: PoolConfig, folder: Path, step: int) -> list[SetResult]:
        """Return the results of every set. Raises MusterError if the child fails, takes too long or is stopped."""
        with tempfile.TemporaryDirectory(prefix="muster-evaluation-") as scratch:
            job, results = Path(scratch) / "job.json", Path(scratch) / "results.json"
            document = EvaluationJob(pool=pool, folder=folder.absolute(), step=step, engine=self._engine)
            job.write_text(document.model_dump_json())
            self._run([sys.executable, "-P", "-m", __name__, str(job), str(results), str(os.getpid())], Path(scratch))
            return _RESULTS.validate_python(parse_json(results.read_bytes()))

    def _run(self, argv: list[str], scratch: Path) -> None:
        environment = dict(os.environ) | torch_environment(self._engine.threads)
        with (scratch / "log").open("w+") as output:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
            try:
                os.setpriority(os.PRIO_PROCESS, child.pid, self._config.nice)
                code = self._wait(child)
            finally:
                child.kill()
                child.wait()
            if code != 0:
                output.seek(0)
                last = printable("".join(output.read().strip().splitlines()[-1:]))
                raise MusterError(f"the evaluation ended with code {code}: {last}", "see `evaluation.engine`")

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        end = time.monotonic() + self._config.seconds
        while (code := child.poll()) is None:
            if self._stopping.wait(_POLL_SECONDS):
                raise MusterError("the evaluation was stopped with the trainer")
            if time.monotonic() > end:
                what = f"the evaluation took longer than {self._config.seconds:.0f} s"
                raise MusterError(what, "raise `evaluation.seconds`, or measure less")
        return code


def main(job_path: Path, results: Path, parent: int) -> None:
    """Measure what the job says: the child process."""
    die_with_parent(parent)
    from engines.loading import set_threads

    job = EvaluationJob.model_validate_json(job_path.read_bytes())
    set_threads(job.engine.threads)
    found = evaluate(job.engine.make(), job.pool, job.folder, job.step, job.engine.batch)
    write_atomic(results, _RESULTS.dump_json(found))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    except MusterError as error:
        sys.exit(str(error))
