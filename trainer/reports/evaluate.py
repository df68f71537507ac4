"""Held-out evaluation of policy steps, beside training, in a child process that dies with the trainer. Anyone can
repeat it: problems follow from the pool's configuration, sampling noise from configuration and step."""

import logging
import math
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from engines.base import Engine, Sampling
from environments.pool import PoolEnvironments, Score
from protocol.accounts import LocalAccount
from protocol.api.work import Evaluation, SetResult, SignedEvaluation, sign_evaluation
from protocol.config import PoolConfig
from protocol.encoding import Document, parse_json
from protocol.errors import MusterError, printable
from protocol.files import die_with_parent, write_atomic
from protocol.identity import PoolId
from protocol.seeds import all_targets, heldout_noise_key, heldout_problem
from runtime.process import EngineConfig
from runtime.turns import RolloutTask, converse
from trainer.child import run_child
from trainer.config import EvaluationProcessConfig

log = logging.getLogger("muster.trainer")
# An engine is given several batches at once: it puts prompts of one length together, which saves most of the padding.
BATCHES_AT_ONCE = 8
_STOP_SECONDS = 5.0
_NICE = 5  # priority of an evaluation, as of `nice`
_RESULTS = TypeAdapter(list[SetResult])


@dataclass(frozen=True)
class Attempt:
    """One attempt at a problem with a target length (0: none), and the words that key its sampling noise."""

    problem_seed: int
    target_length: int
    noise_key: tuple[int, int, int]


def score_attempts(
    engine: Engine,
    environment: PoolEnvironments,
    attempts: Sequence[Attempt],
    batch: int,
    temperature: float | None = None,
) -> Iterator[tuple[Score, int]]:
    """Yield each attempt's score and its length in sampled tokens (EOS included), in order, with the weights that the
    engine has loaded. `batch`: completions generated together; `temperature`: the pool's if None."""
    work, size = environment.config.work, BATCHES_AT_ONCE * batch
    sampling = Sampling(temperature or work.temperature, environment.eos_ids)
    for start in range(0, len(attempts), size):
        part = attempts[start : start + size]
        prompts = [environment.prompt(question.problem_seed, question.target_length) for question in part]
        tasks = [
            RolloutTask(question.problem_seed, prompt, question.noise_key)
            for question, prompt in zip(part, prompts, strict=True)
        ]
        completions = converse(engine, environment, tasks, sampling, work.max_new_tokens)
        for question, completion in zip(part, completions, strict=True):
            yield (
                environment.score(question.problem_seed, question.target_length, completion.tokens),
                len(completion.tokens),
            )


def average(rewards: Sequence[Sequence[float]]) -> float:
    """Return the mean reward over all attempts at all problems (avg@n)."""
    return statistics.fmean(reward for attempts in rewards for reward in attempts)


def standard_error(rewards: Sequence[Sequence[float]]) -> float:
    """Return the standard error of `average`: problems are independent draws, attempts at one are not. 0 for one
    problem."""
    return statistics.stdev(map(statistics.fmean, rewards)) / math.sqrt(len(rewards)) if len(rewards) > 1 else 0.0


def pass_at(k: int, attempts: int, solved: Sequence[int]) -> float:
    """Return the probability that k attempts hold a success, without bias from `attempts` ≥ k of them: the mean over
    problems of 1 − C(attempts − c, k) / C(attempts, k), c successes (Chen et al. 2021, arXiv 2107.03374)."""
    if not 1 <= k <= attempts:
        raise ValueError(f"pass@{k} cannot be told from {attempts} tries")
    ways = math.comb(attempts, k)
    return statistics.fmean(1 - math.comb(attempts - count, k) / ways for count in solved)


def reported_ks(attempts: int) -> tuple[int, ...]:
    """Return the powers of two up to `attempts`, and `attempts` itself."""
    return tuple(sorted({1 << power for power in range(attempts.bit_length())} | {attempts}))


def evaluate(engine: Engine, config: PoolConfig, folder: Path, step: int, batch: int = 64) -> list[SetResult]:
    """Return the results of every held-out set with the weights in `folder`, those of policy step `step`. Raises
    ConfigError for an unknown environment, IntegrityError if the folder is not a usable model."""
    engine.load(folder)
    return [_measure(engine, config, folder, step, number, batch) for number in range(len(config.evaluation.sets))]


def _measure(engine: Engine, config: PoolConfig, folder: Path, step: int, number: int, batch: int) -> SetResult:
    heldout, started = config.evaluation.sets[number], time.monotonic()
    own = config.model_copy(update={"environments": (heldout.environment,)}) if heldout.environment else config
    environments = PoolEnvironments.of(own, folder, held_out=True)
    k, attempts, names = heldout.samples, list[Attempt](), list[str]()
    for index in range(heldout.problems):  # problems take the target lengths of their environment in turn
        problem = heldout_problem(config.digest, number, index)
        settings = environments.settings(problem)
        targets = all_targets(config.work, settings) or (0,)
        names.append(settings.called)
        for sample in range(k):
            noise = heldout_noise_key(config.digest, step, number, index, sample)
            attempts.append(Attempt(problem, targets[index % len(targets)], noise))
    scored = list(score_attempts(engine, environments, attempts, batch, heldout.temperature))
    rewards = [[score.task_reward for score, _ in scored[start : start + k]] for start in range(0, len(scored), k)]
    by_name: dict[str, list[list[float]]] = {}
    for name, own_rewards in zip(names, rewards, strict=True):
        by_name.setdefault(name, []).append(own_rewards)
    solved = [sum(reward >= heldout.solved for reward in own_rewards) for own_rewards in rewards]
    return SetResult(
        name=heldout.name,
        problems=heldout.problems,
        samples=k,
        average=average(rewards),
        error=standard_error(rewards),
        by_environment={name: average(of) for name, of in sorted(by_name.items())} if len(by_name) > 1 else {},
        passed={str(few): pass_at(few, k, solved) for few in reported_ks(k)},
        length=statistics.fmean(length for _, length in scored),
        seconds=round(time.monotonic() - started, 3),
    )


class EvaluationJob(Document):
    """What the child process measures: the sets of `pool` with the weights in `folder`."""

    pool: PoolConfig
    folder: Path
    step: int
    engine: EngineConfig


class EvaluationProcess:
    """Measures one policy step at a time in a child process, which gets its job as one JSON file and writes its results
    as another. `stop` makes a measurement in progress fail soon."""

    def __init__(self, config: EvaluationProcessConfig, engine: EngineConfig) -> None:
        self._config, self._engine = config, config.engine or engine
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def __call__(self, pool: PoolConfig, folder: Path, step: int) -> list[SetResult]:
        """Return what `evaluate` does. Raises MusterError if the child fails, takes too long or is stopped."""
        with tempfile.TemporaryDirectory(prefix="muster-evaluation-") as name:
            job, results = Path(name) / "job.json", Path(name) / "results.json"
            document = EvaluationJob(pool=pool, folder=folder.absolute(), step=step, engine=self._engine)
            job.write_text(document.model_dump_json())
            argv = [sys.executable, "-P", "-m", __name__, str(job), str(results), str(os.getpid())]
            seconds, threads = self._config.seconds, self._engine.threads
            run_child("the evaluation", argv, Path(name), self._stopping, seconds, threads, _NICE)
            return _RESULTS.validate_python(parse_json(results.read_bytes()))


@dataclass(frozen=True)
class Candidate:
    """A policy step to measure: its weights and the digest of its manifest."""

    step: int
    folder: Path
    manifest: bytes


class Evaluations:
    """The evaluations of a run, measured one after another on a thread, so that training never waits. A newer step
    replaces one that waits, which is recorded as skipped; the base model and the last step are never skipped. `known`:
    steps measured before a restart."""

    def __init__(
        self,
        pool: PoolConfig,
        pool_id: PoolId,
        account: LocalAccount,
        evaluator: EvaluationProcess,
        known: Iterable[int] = (),
    ) -> None:
        self._pool, self._pool_id, self._account, self._evaluator = pool, pool_id, account, evaluator
        self.known = set(known)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluations")
        self._queue: dict[Candidate, Future[list[SetResult]]] = {}
        self._skipped: list[Evaluation] = []

    def stop(self) -> None:
        """Begin nothing more and end what runs; it is measured after the restart."""
        self._evaluator.stop()
        self._thread.shutdown(wait=False, cancel_futures=True)
        wait([future for future in self._queue.values() if not future.cancelled()], _STOP_SECONDS)
        self._queue.clear()

    def offer(self, candidate: Candidate) -> None:
        """Queue a published policy step if it is due and not known yet."""
        step, last = candidate.step, self._pool.train.steps
        if step in self.known or not self._pool.evaluation.due(step, last):
            return
        self.known.add(step)
        if not candidate.folder.is_dir():
            self._skipped.append(self._evaluation(candidate, skipped="its weights are gone"))
            return
        for waiting, future in list(self._queue.items()):
            if waiting.step not in (0, last) and future.cancel():
                del self._queue[waiting]
                self._skipped.append(self._evaluation(waiting, skipped=f"step {step} came before its turn"))
        self._queue[candidate] = self._thread.submit(self._evaluator, self._pool, candidate.folder, step)

    @property
    def pinned(self) -> set[Path]:
        """Folders that are still needed."""
        return {candidate.folder for candidate, future in self._queue.items() if not future.done()}

    @property
    def idle(self) -> bool:
        """Whether nothing waits, runs or has yet to be collected."""
        return not (self._queue or self._skipped)

    def collect(self) -> list[SignedEvaluation]:
        """Return what was finished or skipped since the last call, signed."""
        done, self._skipped = self._skipped, []
        for candidate, future in list(self._queue.items()):
            if future.done():
                del self._queue[candidate]
                error = future.exception()  # whatever happened to a measurement, training goes on
                if error is not None and not isinstance(error, MusterError):
                    log.error("the evaluation of step %d failed", candidate.step, exc_info=error)
                failure = printable(f"it failed: {error}", 190) if error else ""
                done.append(self._evaluation(candidate, [] if error else future.result(), failure))
        return [sign_evaluation(self._account, self._pool_id, evaluation) for evaluation in done]

    def _evaluation(self, candidate: Candidate, results: Sequence[SetResult] = (), skipped: str = "") -> Evaluation:
        step, manifest, config_hash = candidate.step, candidate.manifest.hex(), self._pool.digest.hex()
        if skipped:
            log.warning("the evaluation of step %d is skipped: %s", step, skipped)
        for result in results:
            log.info("held-out set %s at step %d: %.3f ± %.3f", result.name, step, result.average, result.error)
        now = round(time.time(), 3)
        return Evaluation(
            step=step, manifest=manifest, config_hash=config_hash, time=now, results=list(results), skipped=skipped
        )


def main(job_path: Path, results: Path, parent: int) -> None:
    """Measure what the job says: the child process."""
    die_with_parent(parent)
    from engines.loading import set_threads

    job = EvaluationJob.model_validate_json(job_path.read_bytes())
    set_threads(job.engine.threads)
    measured = evaluate(job.engine.make(), job.pool, job.folder, job.step, job.engine.batch)
    write_atomic(results, _RESULTS.dump_json(measured))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    except MusterError as error:
        sys.exit(str(error))
