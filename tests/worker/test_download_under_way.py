"""A worker whose next weights are still on their way when it asks for work: real chain, real HTTP, real weights."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from orchestrator.scheduling.scheduler import Grant, QueueState, Requester, Rule, decide
from protocol.api.endpoints import OBJECTS
from protocol.api.work import NoLease, WorkLease
from protocol.identity import PoolId
from runtime.entry import Exit
from runtime.pool_client import PoolClient
from runtime.process import ProcessConfig
from storage.weights.manifest import Manifest, ManifestScope
from tests.chain.game import Game, begin
from tests.chain.published_pool import PoolService, pool_service
from tests.conftest import Deployed
from tests.storage.weights.folders import publish
from tests.validator import tiny
from tests.worker.world import ScriptedService, WorkerWorld

RULE = Rule(files_per_step=4, max_off_policy_steps=2, steps=9)
BOUND, CONFIRMED = 60.0, 5


class PublishingWorld(WorkerWorld):
    """A pool with real weights at each step; those of the second come only once `may_come`. `asked_for`: somebody
    wants them."""

    def __init__(self, game: Game, folder: Path, service: PoolService, url: str) -> None:
        self.game, self.folder, self.service = game, folder, service
        self.steps: list[Manifest] = []
        self.asked_for, self.may_come = threading.Event(), threading.Event()
        self._answered, self._held = service.answer, set[str]()
        service.answer = self._answer  # type: ignore[method-assign]
        _, self.account = game.node()
        self.publish()
        game.deployed.deployment.save(folder / "deployment.json")
        self.config = ProcessConfig(
            home=folder / "home",
            cache=folder / "cache",
            deployment=folder / "deployment.json",
            rpc=(game.deployed.chain.url,),
            pool=game.pool,
            orchestrator=url,
            allow_private_sources=True,
        )

    def publish(self) -> None:
        step, known = len(self.steps), set(self.service.objects)
        pool = PoolId(self.game.suite.client.chain_id, self.game.suite.pools.address, self.game.pool)
        scope = ManifestScope(pool, str(self.game.owner.address))
        parent = self.steps[-1].digest if self.steps else None
        made = publish(tiny.model_folder(step), self.service, scope, step, parent, self.game.owner, shard_size=1 << 16)
        if step:
            self._held = {f"{OBJECTS}/{key}" for key in self.service.objects if key.startswith("shards/")} - {
                f"{OBJECTS}/{key}" for key in known
            }
            assert self._held
        self.steps.append(made)
        seed_block = self.game.suite.pools.publish_step(self.game.pool, step, made.digest).send()
        self.game.mine_to(seed_block + CONFIRMED)

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.path in self._held:
            self.asked_for.set()
            self.may_come.wait(BOUND)
        self._answered(handler)


class SchedulingService(ScriptedService):
    """Leases by the scheduler's own rule. Step 1 is published once the first file is uploaded; its weights come once
    the second is; `said`: what the worker had each time a lease was given."""

    def __init__(self, world: PublishingWorld) -> None:
        super().__init__(files=3)
        self.publishing, self.said, self.reached = world, list[tuple[int | None, int]](), dict[str, int]()
        self.end, self.after = time.monotonic() + 2 * BOUND, self._uploaded

    def request_lease(self, counter: int, ready: int | None = None) -> NoLease | WorkLease:
        world, usable = self.publishing, len(self.publishing.steps) - 1
        if counter == 1:
            assert world.asked_for.wait(BOUND), "the next weights are on their way"
        if counter == 2 and ready != 1:
            assert time.monotonic() < self.end, "the next weights have come, and the worker does not say so"
            return NoLease(wait=0.1, reason="the test waits for the download")
        queue = QueueState(usable, usable, usable, (), (), (), {}, {}, self.reached)
        node = Requester("0xa", counter, 0, ready=ready)
        decision = decide(RULE, queue, node, None, 0.0)
        answer = super().request_lease(counter, ready)
        if isinstance(answer, NoLease):
            return answer
        assert isinstance(decision, Grant)
        self.reached["0xa"] = max(decision.lease.step, self.reached.get("0xa", 0))
        self.said.append((ready, decision.lease.step))
        return answer.model_copy(update={"step": decision.lease.step})

    def _uploaded(self) -> None:
        if len(self.uploads) == 1:
            self.publishing.publish()
        elif len(self.uploads) == 2:
            self.publishing.may_come.set()


@pytest.fixture
def world(deployed: Deployed, tmp_path: Path) -> Iterator[PublishingWorld]:
    with pool_service() as (service, url):
        made = PublishingWorld(begin(deployed, tmp_path), tmp_path, service, url)
        yield made
        made.may_come.set()
    tiny.engine().load(tiny.model_folder())


def test_files_of_the_step_that_is_here_are_made_while_the_next_comes(world: PublishingWorld) -> None:
    service = SchedulingService(world)
    worker = world.start(service, PoolClient(world.config, world.account))
    assert worker.run() == Exit.DONE
    assert service.said[1:] == [(0, 0), (1, 1)]
    assert [file.step for file in world.submissions] == [0, 0, 1]
    figures = worker._heartbeat().metrics
    assert figures["swaps"] == 1
    assert figures["weights_overlapped"] > 0
