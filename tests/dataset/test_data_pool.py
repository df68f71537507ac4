"""A data pool on a real chain: its owner's process publishes the model, lets latecomers in, closes the pool when it has
what it buys; killed and started again at every turn. What it bought is exported and verifies."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.config import DataConfig, PoolConfig
from protocol.errors import ConfigError
from protocol.verdict import Code
from storage.keys import object_key
from storage.s3 import Bucket
from storage.weights.manifest import ManifestScope, unseal
from tests.chain.game_pool import GamePool
from tests.dataset.world import SoldWork, contracts_and_bucket
from tests.trainer.helpers import small_model
from tests.trainer.world import Killed, config_of
from tests.validator.world import CONFIG
from trainer.pool.data_pool import DataBuyer
from trainer.train import TrainerServices

ROLLOUTS = 20
BOUGHT = CONFIG.model_copy(update={"data": DataConfig(rollouts=ROLLOUTS)})


class KeptPool(GamePool):
    """As a keeper sees it."""

    def __init__(self, work: SoldWork, home: Path) -> None:
        super().__init__(work.game)
        self.home = home

    def pool_config(self) -> PoolConfig:
        return BOUGHT


class MortalBucket:
    """Ends the process instead of the upload after `most` of them."""

    def __init__(self, bucket: Bucket, most: int) -> None:
        self._bucket, self._left = bucket, most

    def get(self, key: str, limit: int) -> bytes:
        return self._bucket.get(key, limit)

    def put(self, key: str, data: bytes) -> bool:
        self._left -= 1
        if self._left < 0:
            raise Killed
        return self._bucket.put(key, data)


class Keepers:
    """The owner's process: one after another, each killed after one look, on one home folder."""

    def __init__(self, work: SoldWork, base: Path, home: Path) -> None:
        self.work, self.home = work, home
        self.config = config_of(base, home).model_copy(update={"pool": work.game.pool, "newcomer_seconds": 5})

    def make(self, most: int = 1000, **changes: Any) -> DataBuyer:
        """One that dies instead of its upload after `most` of them."""
        bucket: Any = MortalBucket(self.work.bucket, most)
        fakes: Any = {"client": KeptPool(self.work, self.home), "orchestrator": None, "evaluator": SimpleNamespace()}
        services = TrainerServices(**fakes, bucket=bucket, account=self.work.game.owner, decoy=None)
        return DataBuyer(self.config.model_copy(update=changes), services)

    def look(self, **changes: Any) -> bool:
        return bool(self.make(**changes)._poll())

    def killed_in_publishing(self) -> int:
        """How often it had to be started until one was let live: each dies one upload later than the one before."""
        for most in range(100):
            with suppress(Killed):
                self.make(most)._poll()
                return most
        raise AssertionError("it never lived")

    def until(self, done: Callable[[], bool], looks: int = 4) -> None:
        for _ in range(looks):
            if done():
                return
            self.look()
        assert done()


@pytest.fixture
def bought(tmp_path: Path) -> Iterator[SoldWork]:
    with contracts_and_bucket(tmp_path, BOUGHT) as (game, bucket):
        work = SoldWork(game, bucket, config=BOUGHT)
        work.bucket.put(object_key("configs", BOUGHT.digest), BOUGHT.canonical())
        yield work


def test_a_data_pool_collects_what_it_buys_and_closes(bought: SoldWork, tmp_path: Path) -> None:
    game, base = bought.game, small_model(tmp_path / "base")
    keepers = Keepers(bought, base, tmp_path / "keeper")

    def pool() -> Any:
        return game.state.pools[game.pool]

    assert keepers.killed_in_publishing() >= 3
    assert len(pool().steps) == 1, "so that who wants to can try a dry run before it joins"
    keepers.look(stall_seconds=0)
    assert len(pool().steps) == 1, "nobody is kept waiting"
    _, early = game.node()
    keepers.look()
    assert len(pool().steps) == 1, "others may join in the same moment"
    keepers.look(stall_seconds=0)
    assert len(pool().steps) == 2, "nobody may work for the step before"
    _, late = game.node()
    keepers.look(stall_seconds=0)
    assert len(pool().steps) == 2, "too soon after the step before"
    game.deployed.chain.later(6)
    keepers.until(lambda: len(pool().steps) == 3)
    game.mine_to(pool().steps[2].seed_block + 1)
    scope = ManifestScope(bought.pool_id, game.owner.address)
    files = []
    for step in pool().steps:
        sealed = bought.bucket.get(object_key("manifests", step.manifest))
        files.append(unseal(sealed, step.manifest, scope).files)
        assert all(bought.bucket.size(shard.key) == shard.size for file in files[-1] for shard in file.shards)
    assert files[0] == files[1] == files[2], "the same weights"

    for node, number in ((early, 1), (late, 2)):
        bought.judge(bought.submit(node, number, step=number), Code.ACCEPT)
    bought.judge(bought.submit(early, 3, step=1), Code.REJECT_SAMPLING)
    keepers.look()
    game.deployed.chain.later(61)
    keepers.look()
    assert pool().status == "open", "12 rollouts are not 20"
    for number in (4, 5):
        bought.judge(bought.submit(late, number, step=2), Code.ACCEPT)
    keepers.look()
    assert pool().status == "open", "24 are accepted, 12 of them not for good"
    game.deployed.chain.later(61)
    keepers.until(lambda: pool().status == "closing")
    assert keepers.look(), "it is over"

    stored = bought.export(tmp_path / "data-set")
    assert stored.dataset.totals.rows == 24
    assert set(stored.dataset.manifests) == {"1", "2"}
    assert bought.verify(tmp_path / "data-set").findings.messages == []


def test_settings_that_only_training_uses_are_refused(bought: SoldWork, tmp_path: Path) -> None:
    keepers = Keepers(bought, small_model(tmp_path / "base"), tmp_path / "keeper")
    with pytest.raises(ConfigError, match="no canaries"):
        keepers.make(decoy=keepers.config.key)
