"""A pool client that plays in the test's own process."""

from pathlib import Path
from types import SimpleNamespace

from chain.indexer.records import Pool, Step
from chain.indexer.state import State
from protocol.accounts import LocalAccount
from protocol.identity import PoolId
from protocol.seeds import Work
from tests.chain.game import Game


class GamePool:
    """What daemons need of a pool client (the game's pool, or another `pool` of its chain) and of a connection to the
    chain; sends as `account`, or as the game's owner."""

    def __init__(
        self, game: Game, account: LocalAccount | None = None, weights: Path | None = None, pool: int = 0
    ) -> None:
        self.game, self.folder = game, weights
        self.suite = game.deployed.suite(account) if account else game.suite
        self.client, self.projection = self.suite.client, game.projection
        self.pool_id = PoolId(self.client.chain_id, self.suite.pools.address, pool or game.pool)
        self.config = SimpleNamespace(pool=pool or game.pool)
        self.newest_weights = -1

    @property
    def chain(self) -> "GamePool":
        return self

    @property
    def now(self) -> int:
        return self.client.now()

    @property
    def state(self) -> State:
        return self.game.projection.state

    def refresh(self) -> State:
        return self.game.state

    def pool(self) -> Pool:
        return self.state.pools[self.config.pool]

    def seed(self, step: Step) -> bytes | None:
        return self.suite.step_seed(self.config.pool, step)

    def seeds(self, behind: int) -> dict[int, bytes]:
        found = {step.step: self.seed(step) for step in self.pool().steps[-behind - 1 :]}
        return {step: seed for step, seed in found.items() if seed}

    def weights(self, _: Work) -> Path | None:
        return self.folder

    def step_weights(self, step: int, _: int = 5) -> Path | None:
        self.newest_weights = step
        return self.folder

    def close(self) -> None:
        self.client.close()
