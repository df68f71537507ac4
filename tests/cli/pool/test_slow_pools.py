"""`muster validator judge` refuses a pool whose programs could take longer than its judges have."""

from chain.suite import Suite
from protocol.config import EnvironmentConfig
from tests.cli.joining import CONFIG, StubService
from tests.cli.muster import Key, Muster
from tests.cli.pool_files import create_pool
from tests.conftest import Deployed


def test_a_slow_pool_is_refused_in_one_line_but_none_that_is_quick_or_left_or_could_not_be_looked_at(
    service: StubService, shared_suite: Deployed, muster: Muster, key: Key
) -> None:
    suite: Suite = shared_suite.suite(shared_suite.chain.account())

    def made(seconds: float, announced: bool = True) -> int:
        """A pool with such a program."""
        own = EnvironmentConfig(name="program", label="own", content="ab" * 32, params={"seconds": seconds})
        service.config = CONFIG.model_copy(update={"environments": (own,)})
        number = create_pool(suite, muster.home, service.config.digest)
        if announced:
            suite.court.announce_service(number, service.url).send()
        return number

    pool = made(0.5)
    said = muster.refused("validator", "judge", *key.options, "--pool", pool)
    assert f"pool {pool} is refused: own: scoring a lane of 16 files may take 2304 calls of 0.5 s" in said
    assert "its owner can mend that: set `params.seconds` to 0.013 or less" in said
    said = muster.refused("validator", "judge", "--stop", *key.options, "--pool", pool)
    assert "no seat of yours is left to change" in said
    said = muster.refused("validator", "judge", *key.options, "--pool", made(0.013))
    assert "has 0 tokens and needs 100" in said
    pool = made(0.5, announced=False)
    said = muster.run("validator", "judge", *key.options, "--pool", pool).err
    assert f"pool {pool}: whether it can be judged in time was not checked: its owner announced no service" in said
    assert "has 0 tokens and needs 100" in said
