"""One finished pool for all tests that only read it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.verdict import Code
from tests.conftest import Chain
from tests.dataset.world import SoldWork, contracts_and_bucket
from tests.validator.world import CONFIG


@pytest.fixture(scope="session")
def sold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SoldWork]:
    """Five files of two nodes: three accepted (one of them unsure) for good, one rejected, one accepted but not yet for
    good."""
    folder = tmp_path_factory.mktemp("sold")
    chain = Chain().start()
    try:
        with contracts_and_bucket(chain, folder, CONFIG) as (game, bucket):
            work = SoldWork(game, bucket)
            (_, honest), (_, cheat) = work.game.node(), work.game.node()
            work.begin()
            work.submit(honest, 1)
            lane = work.submit(cheat, 2)
            work.judge(lane, Code.ACCEPT, Code.REJECT_SAMPLING)
            work.submit(honest, 3)
            lane = work.submit(honest, 4)
            work.judge(lane, Code.ACCEPT, Code.UNSURE)
            chain.later(61)
            work.judge(work.submit(honest, 5), Code.ACCEPT)
            yield work
    finally:
        chain.kill()


@pytest.fixture(scope="session")
def exported(sold: SoldWork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the finished pool; not to be changed."""
    folder = tmp_path_factory.mktemp("exports") / "data-set"
    sold.export(folder)
    return folder
