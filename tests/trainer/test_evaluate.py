"""avg@k and pass@k are the plain averages they stand for."""

import itertools
import math
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.accounts import Account
from protocol.api.work import Evaluation, SetResult
from protocol.config import EnvironmentConfig, EvaluationConfig, EvaluationSet, PoolConfig, TrainConfig
from protocol.errors import MusterError
from protocol.identity import PoolId
from protocol.seeds import heldout_problem
from protocol.waits import wait_for
from runtime.process import EngineConfig
from tests.trainer.helpers import alive
from tests.trainer.solver import SUMS_POOL, Solver
from tests.validator import tiny
from trainer.config import EvaluationProcessConfig
from trainer.reports.evaluate import (
    Candidate,
    EvaluationJob,
    EvaluationProcess,
    Evaluations,
    average,
    evaluate,
    pass_at,
    reported_ks,
    standard_error,
)


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_all_k_subsets_that_hold_a_success(tries: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, tries))
    problems = data.draw(st.lists(st.lists(st.booleans(), min_size=tries, max_size=tries), min_size=1, max_size=4))
    shares = []
    for outcome in problems:
        subsets = list(itertools.combinations(outcome, k))
        shares.append(sum(any(subset) for subset in subsets) / len(subsets))
    expected = sum(shares) / len(shares)
    assert math.isclose(pass_at(k, tries, [sum(outcome) for outcome in problems]), expected, abs_tol=1e-12)


def test_pass_at_k_is_exact_and_refuses_what_it_cannot_tell() -> None:
    assert pass_at(1, 8, [0, 2, 8]) == pytest.approx(10 / 24)
    assert pass_at(500, 1000, [1]) == 0.5, "where floating-point factorials would overflow"
    for k in (0, 9):
        with pytest.raises(ValueError, match="cannot be told from 8 tries"):
            pass_at(k, 8, [1])


def test_the_standard_error_treats_the_tries_of_one_problem_as_one_draw() -> None:
    dice = random.Random(1)
    means = [dice.random() for _ in range(40)]
    once, thrice = [[mean] for mean in means], [[mean] * 3 for mean in means]
    assert standard_error(once) == pytest.approx(standard_error(thrice))
    centre = sum(means) / 40
    assert standard_error(once) == pytest.approx(math.sqrt(sum((m - centre) ** 2 for m in means) / 39 / 40))
    assert standard_error([[1.0, 0.0]]) == 0.0
    assert average([[0.0, 1.0], [1.0, 0.5]]) == 0.625, "over all tries"
    assert [reported_ks(tries) for tries in (1, 2, 8, 12)] == [(1,), (1, 2), (1, 2, 4, 8), (1, 2, 4, 8, 12)]


LONGER = EnvironmentConfig(name="reasoning_gym/chain_sum", params={"min_digits": 6, "max_digits": 6})
SETS = (EvaluationSet(name="own", problems=6, samples=4), EvaluationSet(name="longer", environment=LONGER, problems=3))
CONFIG = SUMS_POOL.model_copy(update={"evaluation": EvaluationConfig(sets=SETS)})
ENDLESS = CONFIG.model_copy(
    update={"evaluation": EvaluationConfig(sets=(EvaluationSet(name="own", problems=100_000),))}
)


@pytest.fixture(scope="module")
def base() -> Path:
    return tiny.model_folder()


def test_average_and_passes_count_the_tries_of_each_problem(base: Path) -> None:
    config = CONFIG.model_copy(update={"evaluation": EvaluationConfig(sets=SETS[:1])})
    seeds = [heldout_problem(config.digest, 0, index) for index in range(6)]
    environments = PoolEnvironments.of(config, base)
    solver = Solver(environments, base, lambda seed, number: number < seeds.index(seed) % 5).know(seeds)
    (result,) = evaluate(solver, config, base, 3)  # type: ignore[arg-type]
    assert (result.name, result.problems, result.samples) == ("own", 6, 4)
    assert result.average == pytest.approx((0 + 1 + 2 + 3 + 4 + 0) / 24)
    assert result.passed["1"] == pytest.approx(result.average)
    assert result.passed["2"] == pytest.approx((0 + 1 / 2 + 5 / 6 + 1 + 1 + 0) / 6)
    assert result.passed["4"] == pytest.approx(4 / 6)
    assert solver.loaded == [base]
    assert len({request.noise_key for request in solver.asked}) == 24


def test_the_child_process_measures_what_is_measured_here_in_sets_of_their_own_problems(base: Path) -> None:
    here = evaluate(TransformersEngine(), CONFIG, base, 2)
    assert [one.name for one in here] == ["own", "longer"]
    assert len({heldout_problem(CONFIG.digest, number, index) for number in range(2) for index in range(6)}) == 12
    there = EvaluationProcess(EvaluationProcessConfig(), EngineConfig())(CONFIG, base, 2)
    untimed = [[one.model_copy(update={"seconds": 0.0}) for one in results] for results in (here, there)]
    assert untimed[0] == untimed[1]


def test_a_child_that_fails_says_why_and_one_that_takes_too_long_is_ended(base: Path, tmp_path: Path) -> None:
    with pytest.raises(MusterError, match=r"the evaluation ended with code 1: .*config.json"):
        EvaluationProcess(EvaluationProcessConfig(), EngineConfig())(CONFIG, tmp_path, 0)
    with pytest.raises(MusterError, match="took longer than 0 s"):
        EvaluationProcess(EvaluationProcessConfig(seconds=0.05), EngineConfig())(CONFIG, base, 0)


def test_a_stopped_measurement_ends_at_once(base: Path) -> None:
    process = EvaluationProcess(EvaluationProcessConfig(), EngineConfig())
    threading.Timer(0.3, process.stop).start()
    begun = time.monotonic()
    with pytest.raises(MusterError, match="stopped with the trainer"):
        process(ENDLESS, base, 0)
    assert time.monotonic() - begun < 60


def test_a_child_dies_with_the_trainer(base: Path, tmp_path: Path) -> None:
    """As after kill -9 of the trainer: nobody is left to end the child but itself."""
    job = tmp_path / "job.json"
    job.write_text(EvaluationJob(pool=ENDLESS, folder=base, step=0, engine=EngineConfig()).model_dump_json())
    program = (
        "import os, subprocess, sys, time\n"
        "argv = [sys.executable, '-m', 'trainer.reports.evaluate', *sys.argv[1:], str(os.getpid())]\n"
        "print(subprocess.Popen(argv).pid, flush=True)\n"
        "time.sleep(600)"
    )
    argv = [sys.executable, "-c", program, str(job), str(tmp_path / "results")]
    parent = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(1.0)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_for("the child's end", lambda: not alive(child), 60, poll=0.1)


OWNER = Account.from_key(b"\x07" * 32)
POOL = PoolId(31337, "0x" + "00" * 19 + "99", 1)
EVERY_FIFTH = {"train": TrainConfig(steps=20), "evaluation": EvaluationConfig(every=5)}
EVALUATED = SUMS_POOL.model_copy(update=EVERY_FIFTH)


class SlowEvaluator:
    """Measures when it is let."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.gate = threading.Semaphore(0)
        self.failure: Exception | None = None

    def __call__(self, pool: PoolConfig, folder: Path, step: int) -> list[SetResult]:
        self.begun.append(step)
        self.gate.acquire()
        if self.failure:
            raise self.failure
        return [SetResult(name="held-out", problems=4, samples=1, average=step / 20, error=0, length=3, seconds=0)]

    def stop(self) -> None:
        self.failure = MusterError("stopped")
        self.gate.release(10)


@pytest.fixture
def evaluator() -> SlowEvaluator:
    return SlowEvaluator()


@pytest.fixture
def made(evaluator: SlowEvaluator) -> Iterator[Evaluations]:
    slow: Any = evaluator
    evaluations = Evaluations(EVALUATED, POOL, OWNER, slow, set())
    yield evaluations
    evaluations.stop()


def offer(evaluations: Evaluations, folder: Path, *steps: int) -> None:
    for step in steps:
        evaluations.offer(Candidate(step, folder, bytes([step]) * 32))


def until_begun(evaluator: SlowEvaluator, *steps: int) -> None:
    wait_for("the evaluations to begin", lambda: evaluator.begun == list(steps), 60, poll=0.01)


def collected(evaluations: Evaluations, count: int) -> list[Evaluation]:
    """The next `count` evaluations, their signatures checked."""
    out: list[Evaluation] = []

    def enough() -> bool:
        for signed in evaluations.collect():
            signed.check(POOL, OWNER.address)
            out.append(signed.evaluation)
        return len(out) >= count

    wait_for("the evaluations", enough, 60, poll=0.01)
    return out


def test_the_base_model_every_fifth_and_the_last_step_are_measured(
    tmp_path: Path, made: Evaluations, evaluator: SlowEvaluator
) -> None:
    evaluator.gate.release(100)
    for step in range(21):
        offer(made, tmp_path, step)
        wait_for("its turn", lambda: not made.pinned, 60, poll=0.01)
    found = collected(made, 5)
    assert [one.step for one in found] == evaluator.begun == [0, 5, 10, 15, 20]
    assert [one.results[0].average for one in found] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert {one.config_hash for one in found} == {EVALUATED.digest.hex()}
    assert found[1].manifest == "05" * 32


def test_training_never_waits_and_the_newest_step_is_measured_next(
    tmp_path: Path, made: Evaluations, evaluator: SlowEvaluator
) -> None:
    offer(made, tmp_path, 0)
    until_begun(evaluator, 0)
    offer(made, tmp_path, *range(1, 21))
    evaluator.gate.release(10)
    found = collected(made, 5)
    assert evaluator.begun == [0, 20]
    skipped = {one.step: one.skipped for one in found if one.skipped}
    assert skipped == {step: f"step {step + 5} came before its turn" for step in (5, 10, 15)}
    assert sorted(one.step for one in found if one.results) == [0, 20]


def test_the_base_model_is_measured_even_when_its_turn_comes_late(
    tmp_path: Path, made: Evaluations, evaluator: SlowEvaluator
) -> None:
    offer(made, tmp_path, 5)
    until_begun(evaluator, 5)
    offer(made, tmp_path, 0, 10)
    evaluator.gate.release(10)
    assert [one.step for one in collected(made, 3)] == [5, 0, 10]


def test_what_waits_or_runs_keeps_its_weights(tmp_path: Path, made: Evaluations, evaluator: SlowEvaluator) -> None:
    folders = [tmp_path / "0", tmp_path / "5"]
    for step, folder in zip((0, 5), folders, strict=True):
        folder.mkdir()
        offer(made, folder, step)
    until_begun(evaluator, 0)
    assert made.pinned == set(folders)
    evaluator.gate.release(2)
    collected(made, 2)
    assert made.pinned == set()
    assert made.idle
    offer(made, folders[1], 10)
    until_begun(evaluator, 0, 5, 10)
    made.stop()
    assert made.collect() == [], "what a stop ends is left for the restart"


def test_a_failed_evaluation_is_recorded_and_the_next_one_runs(
    tmp_path: Path, made: Evaluations, evaluator: SlowEvaluator
) -> None:
    evaluator.failure = MusterError("out of memory", "measure less")
    offer(made, tmp_path, 0)
    evaluator.gate.release()
    assert collected(made, 1)[0].skipped == "it failed: out of memory; measure less"
    evaluator.failure = None
    offer(made, tmp_path, 5)
    evaluator.gate.release()
    assert collected(made, 1)[0].results


def test_a_step_is_measured_once_also_after_a_restart(
    tmp_path: Path, made: Evaluations, evaluator: SlowEvaluator
) -> None:
    evaluator.gate.release(100)
    made.known |= {0, 5}
    offer(made, tmp_path, 0, 5, 10, 10)
    assert [one.step for one in collected(made, 1)] == [10]
    offer(made, tmp_path / "gone", 15)
    assert collected(made, 1)[0].skipped == "its weights are gone"
    assert evaluator.begun == [10]
