"""A worker that changes from one policy step to the next between two files, on a real chain."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from protocol.api.work import NoLease, WorkLease
from protocol.errors import UnreachableError
from protocol.seeds import Work
from runtime.entry import Exit
from runtime.pool_client import PoolClient
from runtime.weights_ahead import WeightsAhead, WorkClock
from tests.chain.game_pool import GamePool
from tests.validator import tiny
from tests.worker.world import ScriptedService, WorkerWorld
from worker.daemon import Worker


class TwoSteps(ScriptedService):
    """The second file is of the step that is published once the first is handed in; it is leased once the worker says
    that its weights are ready."""

    def __init__(self, world: WorkerWorld) -> None:
        super().__init__(files=2)
        self.after = lambda: world.game.publish() if len(self.uploads) == 1 else None

    def request_lease(self, counter: int, ready: int | None = None) -> NoLease | WorkLease:
        answer = super().request_lease(counter, ready)
        if isinstance(answer, WorkLease) and counter == 1:
            if ready != 1:
                return NoLease(wait=0.1, reason="not yet")
            return answer.model_copy(update={"step": 1})
        return answer


class FetchingPool(GamePool):
    """`ahead`: where steps that are fetched ahead are; `asked`: steps that the worker had to wait for."""

    def __init__(self, *given: Any, ahead: Path) -> None:
        super().__init__(*given)
        self.ahead, self.asked = ahead, list[int]()
        self.before: Callable[[], object] = lambda: None

    def step_weights(self, step: int, keep: int = 5) -> Path | None:
        self.before()
        super().step_weights(step, keep)
        return self.ahead

    def weights(self, work: Work) -> Path | None:
        self.asked.append(work.id.step)
        return super().weights(work)


def worked(world: WorkerWorld, ahead: Path) -> tuple[FetchingPool, Worker]:
    """A worker that made a file of step 0 and one of step 1, which lay at `ahead` by then."""
    pool = FetchingPool(world.game, world.account, tiny.model_folder(), ahead=ahead)
    worker = world.start(TwoSteps(world), pool)
    assert worker.run() == Exit.DONE
    assert [file.step for file in world.submissions] == [0, 1]
    return pool, worker


def test_the_next_weights_are_here_when_they_are_needed(world: WorkerWorld) -> None:
    pool, worker = worked(world, tiny.model_folder())
    assert 1 not in pool.asked, "nothing was fetched between the two files"
    figures = worker._heartbeat().metrics
    assert figures["swaps"] == 1
    assert figures["swap_reload"] > 0
    assert figures["swap_pause"] < figures["swap_reload"] + 0.2
    assert worker._heartbeat().weights == 1


def test_weights_that_vanished_meanwhile_are_fetched_again(world: WorkerWorld, tmp_path: Path) -> None:
    pool, _ = worked(world, tmp_path / "gone")
    assert 1 in pool.asked


def test_a_step_whose_weights_cannot_be_had_is_left_for_the_next_one(world: WorkerWorld) -> None:
    """Such as those that their owner no longer has: the lease of the step would keep its node for many steps."""

    class Newest(ScriptedService):
        def request_lease(self, counter: int, ready: int | None = None) -> NoLease | WorkLease:
            answer = super().request_lease(counter, ready)
            newest = len(self.world.game.state.pools[self.world.game.pool].steps) - 1
            return answer.model_copy(update={"step": newest}) if isinstance(answer, WorkLease) else answer

    class Lost(GamePool):
        def weights(self, work: Work) -> Path | None:
            if work.id.step:
                return super().weights(work)
            if self.pool().step == 0:
                self.game.publish()
            elif time.monotonic() > began + 20:
                worker.stop()
            raise UnreachableError("no source has it")

        def step_weights(self, step: int, _: int = 5) -> Path | None:
            raise UnreachableError("no source has it")

    began = time.monotonic()
    worker = world.start(Newest(files=1), Lost(world.game, world.account, tiny.model_folder()))
    assert worker.run() == Exit.DONE
    assert [file.step for file in world.submissions] == [1]


def test_a_fetch_under_way_is_waited_for_and_not_repeated(world: WorkerWorld, tmp_path: Path) -> None:
    """Whoever needs the weights now takes what comes: fetching them as well would read and hash every byte again."""
    pool, may_end = FetchingPool(world.game, world.account, tmp_path, ahead=tmp_path), threading.Event()
    pool.before = may_end.wait
    pool.refresh()
    ahead = WeightsAhead(cast(PoolClient, pool), 0.01)
    ahead.start()
    manifest = pool.pool().steps[0].manifest
    while ahead._coming != manifest:
        time.sleep(0.005)
    assert ahead.folder(manifest) is None
    threading.Timer(0.2, may_end.set).start()
    assert ahead.wait(manifest) == tmp_path
    assert ahead.wait(bytes(32)) is None
    ahead.stop()


def test_a_step_stays_ready_when_the_next_one_comes(world: WorkerWorld, tmp_path: Path) -> None:
    """A step is published sooner than files may be made of it: the one before is still to be changed to."""
    pool = FetchingPool(world.game, world.account, tmp_path, ahead=tmp_path)
    ahead = WeightsAhead(cast(PoolClient, pool), 0.01)
    for _ in range(5):
        ahead._look()
        world.game.publish()
        pool.refresh()
    ready = [ahead.folder(step.manifest) is not None for step in pool.pool().steps]
    assert ready == [False, False, True, True, True, False], "of the last, nothing was fetched yet"


def test_what_was_made_meanwhile_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr("runtime.weights_ahead.time.monotonic", lambda: now[0])
    clock = WorkClock()
    with clock.working():
        now[0] = 12.0
        assert clock.seconds(now[0]) == 2.0
        now[0] = 13.0
    now[0] = 20.0
    assert clock.seconds(now[0]) == 3.0


def test_whoever_joins_fetches_at_once(world: WorkerWorld, tmp_path: Path) -> None:
    """Not after the first pause between two looks."""
    pool = FetchingPool(world.game, world.account, tmp_path, ahead=tmp_path)
    pool.refresh()
    asked = threading.Event()
    pool.before = asked.set
    ahead = WeightsAhead(cast(PoolClient, pool), 3600.0)
    ahead.start()
    assert asked.wait(60)
    ahead.stop()
