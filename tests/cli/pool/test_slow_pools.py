"""`muster validator judge` refuses a pool whose programs could take longer than its judges have."""

from collections.abc import Callable

import pytest

from chain.suite import Suite
from protocol.config import EnvironmentConfig
from tests.cli.joining import CONFIG, StubService
from tests.cli.muster import Key, Muster
from tests.cli.pool_files import create_pool
from tests.conftest import Deployed

MakePool = Callable[[float, str], int]


@pytest.fixture
def make_pool(service: StubService, shared_suite: Deployed, muster: Muster) -> MakePool:
    """A pool with such a program, whose service is announced at that URL ("stub": one that has its document)."""
    suite: Suite = shared_suite.suite(shared_suite.chain.account())

    def made(seconds: float, url: str) -> int:
        own = EnvironmentConfig(name="program", label="own", content="ab" * 32, params={"seconds": seconds})
        service.config = CONFIG.model_copy(update={"environments": (own,)})
        number = create_pool(suite, muster.home, service.config.digest)
        if url:
            suite.court.announce_service(number, service.url if url == "stub" else url).send()
        return number

    return made


def test_a_slow_pool_is_refused_in_one_line(muster: Muster, key: Key, make_pool: MakePool) -> None:
    pool = make_pool(0.5, "stub")
    said = muster.refused("validator", "judge", *key.options, "--pool", pool)
    assert f"pool {pool} is refused: own: scoring a lane of 16 files may take 2304 calls of 0.5 s" in said
    assert "its owner can mend that: set `params.seconds` to 0.013 or less" in said


def test_a_quick_one_is_not_and_neither_is_leaving(muster: Muster, key: Key, make_pool: MakePool) -> None:
    said = muster.refused("validator", "judge", *key.options, "--pool", make_pool(0.013, "stub"))
    assert "has 0 tokens and needs 100" in said
    said = muster.refused("validator", "judge", "--stop", *key.options, "--pool", make_pool(0.5, "stub"))
    assert "no seat of yours is left to change" in said


def test_what_could_not_be_looked_at_is_said(muster: Muster, key: Key, make_pool: MakePool) -> None:
    pool = make_pool(0.5, "")
    said = muster.run("validator", "judge", *key.options, "--pool", pool).err
    assert f"pool {pool}: whether it can be judged in time was not checked: its owner announced no service" in said
    assert "has 0 tokens and needs 100" in said
