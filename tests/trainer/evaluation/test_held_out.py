"""Held-out sets are what the configuration says, the same for everybody; the child process measures the same."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.config import EvaluationConfig, EvaluationSet, PoolConfig, WorkConfig
from protocol.environments import EnvironmentConfig
from protocol.errors import MusterError
from protocol.seeds import heldout_problem
from runtime.process import EngineConfig
from tests.trainer.solver import Solver
from tests.validator import tiny
from trainer.config import EvaluationProcessConfig
from trainer.evaluate import EvaluationJob, EvaluationProcess, evaluate
from trainer.tiny_model import tiny_model_config

SUMS = EnvironmentConfig(name="reasoning_gym/chain_sum", params={"min_digits": 4, "max_digits": 4})
LONGER = EnvironmentConfig(name="reasoning_gym/chain_sum", params={"min_digits": 6, "max_digits": 6})
SETS = (EvaluationSet(name="own", problems=6, samples=4), EvaluationSet(name="longer", environment=LONGER, problems=3))
CONFIG = PoolConfig(
    name="test",
    model=tiny_model_config(),
    environments=(SUMS,),
    work=WorkConfig(max_new_tokens=8, max_prompt_tokens=128),
    evaluation=EvaluationConfig(sets=SETS),
)
ENDLESS = CONFIG.model_copy(
    update={"evaluation": EvaluationConfig(sets=(EvaluationSet(name="own", problems=100_000),))}
)


@pytest.fixture(scope="module")
def base() -> Path:
    return tiny.model_folder()


def test_average_and_passes_count_the_tries_of_each_problem(base: Path) -> None:
    seeds = [heldout_problem(CONFIG.digest, 0, index) for index in range(6)]
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


def test_sets_have_their_own_task_problems_and_noise(base: Path) -> None:
    engine = TransformersEngine()
    first, second = evaluate(engine, CONFIG, base, 0)
    assert (first.name, second.name) == ("own", "longer")
    problems = {heldout_problem(CONFIG.digest, number, index) for number in range(2) for index in range(6)}
    assert len(problems) == 12


def test_the_child_process_measures_what_is_measured_here(base: Path) -> None:
    here = evaluate(TransformersEngine(), CONFIG, base, 2)
    there = EvaluationProcess(EvaluationProcessConfig(), EngineConfig())(CONFIG, base, 2)
    assert [one.model_copy(update={"seconds": 0.0}) for one in there] == [
        one.model_copy(update={"seconds": 0.0}) for one in here
    ]


def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(MusterError, match=r"the evaluation ended with code 1: .*config.json"):
        EvaluationProcess(EvaluationProcessConfig(), EngineConfig())(CONFIG, tmp_path, 0)


def test_a_child_that_takes_too_long_is_ended(base: Path) -> None:
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
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, subprocess, sys, time\n"
            "argv = [sys.executable, '-m', 'trainer.evaluate', *sys.argv[1:], str(os.getpid())]\n"
            "print(subprocess.Popen(argv).pid, flush=True)\n"
            "time.sleep(600)",
            str(job),
            str(tmp_path / "results"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(1.0)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(600):
        if not _alive(child):
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the child outlived the trainer")


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
