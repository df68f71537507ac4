"""Judging waits for no download: the weights of each new step come while files of earlier ones are judged."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.api.endpoints import OBJECTS
from protocol.identity import WorkId
from protocol.seeds import Work
from runtime.pool_client import PoolClient
from tests.chain.published_pool import Published, pool_service
from tests.conftest import Deployed
from tests.storage.weights.folders import contents
from validator.judging.pipeline import JudgedWeights

NODE = "0x" + "11" * 20


@pytest.fixture
def published(shared_suite: Deployed, tmp_path: Path) -> Iterator[Published]:
    with pool_service() as (service, url):
        made = Published(shared_suite, service, url, tmp_path)
        made.publish()
        yield made


@pytest.fixture
def client(published: Published, tmp_path: Path) -> Iterator[PoolClient]:
    made = PoolClient(published.config(tmp_path / "validator"), None)
    made.refresh()
    yield made
    made.close()


def work(published: Published, step: int) -> Work:
    return Work(WorkId(published.pool, NODE, step, 0), bytes(32), published.steps[step].digest)


def fetched(published: Published) -> Counter[str]:
    return Counter({path: count for path, count in published.service.asked.items() if path.startswith(OBJECTS)})


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_new_step_is_here_when_its_first_file_is_judged(published: Published, client: PoolClient) -> None:
    weights = JudgedWeights(client, 0.01, lambda: 4)
    assert contents(weights(work(published, 0))) == contents(published.folder / "v0")
    published.publish()
    client.refresh()
    until(lambda: client.newest_weights == 1)
    before = fetched(published)
    assert contents(weights(work(published, 1))) == contents(published.folder / "v1")
    assert fetched(published) == before, "nothing was left to be fetched"


def test_what_was_damaged_since_is_not_judged_with(published: Published, client: PoolClient) -> None:
    weights = JudgedWeights(client, 0.01, lambda: 4)
    weights(work(published, 0))
    published.publish()
    client.refresh()
    until(lambda: client.newest_weights == 1)
    file = client.config.cache / published.steps[1].digest.hex() / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    assert contents(weights(work(published, 1))) == contents(published.folder / "v1")


def test_a_pool_that_asks_for_nothing_costs_nothing(published: Published, client: PoolClient) -> None:
    """Neither one that never had a file for us, nor one that has had none for many steps."""
    weights = JudgedWeights(client, 0.01, lambda: 4)
    time.sleep(0.3)
    assert not fetched(published)
    weights(work(published, 0))
    for _ in range(6):
        published.publish()
    client.refresh()
    time.sleep(0.5)
    keys = {f"{OBJECTS}/manifests/{hashlib.sha256(step.canonical()).hexdigest()}" for step in published.steps[1:]}
    assert not keys & fetched(published).keys()
