"""What a hostile worker does to the weights, through the whole exchange: nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diloco import worker as worker_module
from diloco.codec import Tensors
from diloco.config import AdmissionConfig
from diloco.log import expected_at
from diloco.messages import Contribution, Expected, Signed, seal
from diloco.outer import Admitted, OuterState, Payloads, admit, encode_payload, settle
from diloco.state_machine import Schedule
from diloco.store import OwnContribution
from diloco.worker import Worker
from protocol.encoding import sha256_hex
from tests.diloco.samples import shard_entry
from tests.diloco.world import NAMES, DilocoWorld, make_run

BAD = NAMES[3]
Alter = Callable[[Tensors], Tensors]  # of a pseudo-gradient


class TickingClock:
    """Ten seconds pass at every look."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 10
        return self.now


def times(factor: float) -> Alter:
    return lambda gradient: {name: np.float32(factor) * one for name, one in gradient.items()}


def nan(gradient: Tensors) -> Tensors:
    return {name: np.where(one == one.max(), np.float32(np.nan), one) for name, one in gradient.items()}


def body_of(own: OwnContribution) -> Contribution:
    return Signed[Contribution].model_validate_json(own.document).body


class Attack:
    """How worker 3 makes its contribution from outer step 2 on: it alters its weights, or hands in what is not its own
    work of this step. `seen`: the others' newest contributions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, alter: Alter | None = None, what: str = "") -> None:
        self._alter, self._what, self._honest = alter, what, Worker._contribute
        self.seen: dict[str, OwnContribution] = {}
        self._first: OuterState | None = None
        monkeypatch.setattr(worker_module, "encode_payload", self._encode)
        monkeypatch.setattr(Worker, "_contribute", lambda worker, now, share: self._contribute(worker, now, share))

    def _encode(self, state: OuterState, gradient: Tensors, expected: Expected, worker: str, error: Any) -> Any:
        if self._alter is not None and worker == BAD and state.step >= 2:  # by then it is a member, whoever came first
            gradient = self._alter(gradient)
        return encode_payload(state, gradient, expected, worker, error)

    def _contribute(self, worker: Worker, now: Schedule, share: tuple[str, ...]) -> OwnContribution:
        own = self._honest(worker, now, share)
        if worker.address != BAD:
            self.seen[worker.address] = own
            return own
        self._first = self._first or worker.state
        if worker.state.step < 2 or not self._what:
            return own
        victim = self.seen[NAMES[0]]
        if self._what == "document":
            return replace(victim, share=own.share, attempt=own.attempt)
        if self._what == "payload":
            changed, payload = body_of(own).model_copy(update={"shards": body_of(victim).shards}), victim.payload
        else:
            old = Expected(worker.run, self._first.step, self._first.digest.hex(), self._first.layout)
            inner = worker.task.weights()
            gradient = {name: value - inner[name] for name, value in worker.state.weights.items()}
            payload, _ = encode_payload(worker.state, gradient, old, BAD)
            entries = {"shards": [*map(shard_entry, payload)]}
            changed = body_of(own).model_copy(update={"step": old.step, "base": old.base} | entries)
        return replace(own, document=seal(changed, worker.run, worker._account), payload=payload)


def leaves_the_weights(attack: Attack, home: Path, mode: str = "int8") -> bool:
    """Return whether the state after outer step 2, to which worker 3 contributed so, is that of the honest alone."""
    run = make_run(4, "hostile", mode=mode, window_seconds=1000, training_seconds=1000, inner_steps=8)
    world = DilocoWorld(run, home, clock=TickingClock()).begin(0, 1, 2, 3, step=2)
    before = world.coordinator.state
    expected = expected_at(world.coordinator.log, before)
    for _ in range(2000):
        if world.coordinator.state.step > before.step:
            break
        world.turn()
    honest = {worker: own for worker, own in attack.seen.items() if own.base == before.digest.hex()}
    assert sorted(honest) == NAMES[:3]
    files = {sha256_hex(one): one for own in honest.values() for one in own.payload}
    contributions = {worker: body_of(own) for worker, own in honest.items()}
    alone, admitted = settle(Payloads(before, expected, contributions, lambda entry: files[entry.sha256]))
    assert alone is not None
    assert sorted(admitted.weights) == NAMES[:3]
    if BAD in world.coordinator.log.commit.made_of:
        assert (BAD in world.coordinator.excluded) == (BAD not in world.coordinator.log.commit.counted)
    return world.coordinator.state.digest == alone.digest


ALTERED = {  # test_settle.py has more of them, on real pseudo-gradients
    "ten times as long": (times(10), "int8"),
    "flipped": (times(-1), "int8"),
    "flipped and long": (times(-2.5), "sparse"),
    "NaN": (nan, "float32"),
}


@pytest.mark.parametrize("name", ALTERED)
def test_altered_work_moves_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alter, mode = ALTERED[name]
    assert leaves_the_weights(Attack(monkeypatch, alter), tmp_path, mode)


@pytest.mark.parametrize("what", ["stale", "document", "payload"])
def test_what_is_not_its_own_work_moves_nothing(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert leaves_the_weights(Attack(monkeypatch, what=what), tmp_path)


def test_contributions_are_judged_once_in_an_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One hostile worker of three leaves two, which make no step: the coordinator waits, and then begins again."""
    judged: list[int] = []

    def counted(workers: list[str], products: list[list[float]], config: AdmissionConfig) -> Admitted:
        judged.append(len(workers))
        return admit(workers, products, config)

    def last_flips(state: OuterState, gradient: Tensors, expected: Expected, worker: str, error: Any) -> Any:
        altered = times(-1)(gradient) if worker == NAMES[2] else gradient
        return encode_payload(state, altered, expected, worker, error)

    monkeypatch.setattr("diloco.outer.admit", counted)
    monkeypatch.setattr(worker_module, "encode_payload", last_flips)
    seconds = [0.0]
    run = make_run(3, "too-few", window_seconds=1000, training_seconds=1000, inner_steps=8)
    world = DilocoWorld(run, tmp_path, clock=lambda: seconds[0]).begin(0, 1, 2)
    world.hold_before_commit()
    attempt = world.schedule.attempt
    for _ in range(20):
        world.coordinator.turn()
    assert judged == [3]
    assert sorted(world.coordinator.status()["excluded"]) == sorted(run.workers)
    seconds[0] += 1001
    world.coordinator.turn()
    assert (world.schedule.attempt, world.coordinator.state.step) == (attempt + 1, 0)
