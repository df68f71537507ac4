"""Leases of a data pool, which buys a number of files and trains nothing."""

from dataclasses import replace

from chain.indexer.records import Status
from orchestrator.scheduler import Grant, QueuedFile, Rule, Wait, decide
from protocol.config import DataConfig
from tests.orchestrator.test_scheduler import EMPTY, A, lease
from tests.validator.world import CONFIG

BUYER = CONFIG.model_copy(update={"data": DataConfig(rollouts=2 * CONFIG.work.rows + 1)})


def test_a_data_pool_gives_as_many_places_as_it_still_buys() -> None:
    """Whichever step files are of, and however often the model is published again; a lost file frees its place, and a
    pool that has everything stands still without granting more."""
    rule = Rule.of(BUYER, lease_seconds=30, lease_limit=600, stall_seconds=60)
    assert (rule.bought, rule.capacity) == (3, 3)
    files = [QueuedFile(n, "0xb", 0, status) for n, status in enumerate((Status.ACCEPTED, Status.PENDING))]
    queue = replace(EMPTY, published=9, usable=9, files=files)
    assert isinstance(decide(rule, queue, A, None, 0.0), Grant)
    full = replace(queue, leases=[lease("0xc", step=2)])
    wait = decide(rule, full, A, None, 1.0)
    assert isinstance(wait, Wait)
    assert "the 3 files that the pool buys are being made" in wait.reason
    assert isinstance(decide(rule, replace(full, files=files[:1]), A, None, 1.0), Grant)
    done = replace(queue, files=[QueuedFile(n, "0xb", n, Status.ACCEPTED) for n in range(3)], changed=0.0)
    wait = decide(rule, done, A, None, 9999.0)
    assert isinstance(wait, Wait)
    assert "the 3 files that the pool buys are accepted" in wait.reason
