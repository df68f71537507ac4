"""Evaluations run beside training: in order, bounded, signed, once; what is skipped is recorded."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localnet.plan import DEMO_ENVIRONMENT
from protocol.accounts import Account
from protocol.api.work import Evaluation, SetResult
from protocol.config import EvaluationConfig, PoolConfig
from protocol.errors import IntegrityError, MusterError
from protocol.identity import PoolId
from protocol.training import TrainConfig
from protocol.waits import wait_for
from trainer.evaluate import Candidate, Evaluations
from trainer.tiny_model import tiny_model_config

OWNER = Account.from_key(b"\x07" * 32)
POOL = PoolId(31337, "0x" + "00" * 19 + "99", 1)
CONFIG = PoolConfig(
    name="test",
    model=tiny_model_config(),
    environments=(DEMO_ENVIRONMENT,),
    train=TrainConfig(steps=20),
    evaluation=EvaluationConfig(every=5),
)


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


@contextmanager
def running(evaluator: SlowEvaluator, known: set[int] | None = None) -> Iterator[Evaluations]:
    made = Evaluations(CONFIG, POOL, OWNER, evaluator, known or set())
    made.start()
    try:
        yield made
    finally:
        made.stop()


def candidate(step: int, folder: Path) -> Candidate:
    return Candidate(step, folder, bytes([step]) * 32)


def until_begun(evaluator: SlowEvaluator, *steps: int) -> None:
    wait_for("the evaluations to begin", lambda: evaluator.begun == list(steps) or None, 60, poll=0.01)


def collected(evaluations: Evaluations, count: int) -> list[Evaluation]:
    """The next `count` evaluations, their signatures checked."""
    out: list[Evaluation] = []

    def enough() -> bool | None:
        for signed in evaluations.collect():
            signed.check(POOL, OWNER.address)
            out.append(signed.evaluation)
        return len(out) >= count or None

    wait_for("the evaluations", enough, 60, poll=0.01)
    return out


def test_the_base_model_every_fifth_and_the_last_step_are_measured(tmp_path: Path) -> None:
    evaluator = SlowEvaluator()
    evaluator.gate.release(100)
    with running(evaluator) as made:
        for step in range(21):
            made.offer(candidate(step, tmp_path))
            wait_for("its turn", lambda: not made.pinned or None, 60, poll=0.01)
        found = collected(made, 5)
    assert [one.step for one in found] == evaluator.begun == [0, 5, 10, 15, 20]
    assert [one.results[0].average for one in found] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert {one.config_hash for one in found} == {CONFIG.digest.hex()}
    assert found[1].manifest == "05" * 32


def test_training_never_waits_and_the_newest_step_is_measured_next(tmp_path: Path) -> None:
    evaluator = SlowEvaluator()
    with running(evaluator) as made:
        made.offer(candidate(0, tmp_path))
        until_begun(evaluator, 0)
        for step in range(1, 21):
            made.offer(candidate(step, tmp_path))
        evaluator.gate.release(10)
        found = collected(made, 5)
    assert evaluator.begun == [0, 20]
    skipped = {one.step: one.skipped for one in found if one.skipped}
    assert skipped == {
        5: "step 10 came before its turn",
        10: "step 15 came before its turn",
        15: "step 20 came before its turn",
    }
    assert sorted(one.step for one in found if one.results) == [0, 20]


def test_the_base_model_is_measured_even_when_its_turn_comes_late(tmp_path: Path) -> None:
    evaluator = SlowEvaluator()
    with running(evaluator) as made:
        made.offer(candidate(5, tmp_path))
        until_begun(evaluator, 5)
        made.offer(candidate(0, tmp_path))
        made.offer(candidate(10, tmp_path))
        evaluator.gate.release(10)
        assert [one.step for one in collected(made, 3)] == [5, 0, 10]


def test_what_waits_or_runs_keeps_its_weights(tmp_path: Path) -> None:
    evaluator, folders = SlowEvaluator(), {step: tmp_path / str(step) for step in (0, 5)}
    for folder in folders.values():
        folder.mkdir()
    with running(evaluator) as made:
        for step, folder in folders.items():
            made.offer(candidate(step, folder))
        until_begun(evaluator, 0)
        assert made.pinned == set(folders.values())
        evaluator.gate.release(10)
        collected(made, 2)
        assert made.pinned == set()
        assert made.idle


def test_a_failed_evaluation_is_recorded_and_the_next_one_runs(tmp_path: Path) -> None:
    evaluator = SlowEvaluator()
    evaluator.failure = MusterError("out of memory", "measure less")
    with running(evaluator) as made:
        made.offer(candidate(0, tmp_path))
        evaluator.gate.release()
        assert collected(made, 1)[0].skipped == "it failed: out of memory; measure less"
        evaluator.failure = None
        made.offer(candidate(5, tmp_path))
        evaluator.gate.release()
        assert collected(made, 1)[0].results


def test_a_step_is_measured_once_also_after_a_restart(tmp_path: Path) -> None:
    evaluator = SlowEvaluator()
    evaluator.gate.release(100)
    with running(evaluator, known={0, 5}) as made:
        for step in (0, 5, 10, 10):
            made.offer(candidate(step, tmp_path))
        assert [one.step for one in collected(made, 1)] == [10]
    assert evaluator.begun == [10]


def test_a_step_whose_weights_are_gone_is_recorded_as_skipped(tmp_path: Path) -> None:
    with running(SlowEvaluator()) as made:
        made.offer(candidate(0, tmp_path / "gone"))
        assert collected(made, 1)[0].skipped == "its weights are gone"


def test_stopping_ends_a_measurement_and_leaves_it_for_the_restart(tmp_path: Path) -> None:
    evaluator = SlowEvaluator()
    with running(evaluator) as made:
        made.offer(candidate(0, tmp_path))
        until_begun(evaluator, 0)
    assert made.collect() == []


def test_a_changed_evaluation_is_not_the_owners(tmp_path: Path) -> None:
    evaluator = SlowEvaluator()
    evaluator.gate.release(1)
    with running(evaluator) as made:
        made.offer(candidate(5, tmp_path))
        wait_for("it", lambda: (evaluator.begun and not made.pinned) or None, 60, poll=0.01)
        (signed,) = made.collect()
    forged = signed.model_copy(update={"evaluation": signed.evaluation.model_copy(update={"step": 6})})
    with pytest.raises(IntegrityError, match="the evaluation is signed by"):
        forged.check(POOL, OWNER.address)
    with pytest.raises(IntegrityError, match="the evaluation is signed by"):
        signed.check(PoolId(1, POOL.pools, 1), OWNER.address)
