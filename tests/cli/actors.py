"""What a story told by commands needs besides commands: files for a pool, a node's work, a committee's votes."""

import hashlib
from pathlib import Path

from chain.contracts import WorkItem
from chain.deployment import Deployment
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.state import State
from chain.suite import Suite
from cli.pool.config import load_terms
from cli.run.up import LocalFaucet
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig, WorkConfig
from protocol.verdict import Code, pack
from runtime import keystore
from tests.cli.muster import Key
from tests.conftest import TOKEN, Chain

TERMS = """
rate = "0.001"
fee = "0.01"
jury_fee = "0.1"
min_stake = "200"
leverage = 10
max_units = 4096
committee = 3
jury = 5
appeal_jury = 0
lane_blocks = 1
attest_blocks = 4
max_lag = 4
audit_rate = 65536
draw_blocks = 64
commit_window = 60
reveal_window = 60
challenge_window = 120
appeal_window = 5
jury_commit_window = 60
jury_reveal_window = 60
receipt_window = 15
invite_only = true
"""


def write_pool_files(folder: Path) -> tuple[Path, Path]:
    """A pool's configuration and its terms."""
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    sums, work = EnvironmentConfig(name="reasoning_gym/chain_sum"), WorkConfig(problems_per_file=8)
    config = PoolConfig(name="story", model=ModelConfig(source=str(model)), environments=(sums,), work=work)
    (folder / "pool.json").write_bytes(config.canonical())
    (folder / "terms.toml").write_text(TERMS)
    return folder / "pool.json", folder / "terms.toml"


def create_pool(suite: Suite, folder: Path, digest: bytes, terms: str = TERMS) -> int:
    """The number of a new pool with a configuration of that digest, whose owner gets the budget from the faucet."""
    faucet = LocalFaucet.of(suite)
    assert faucet is not None
    faucet.tokens(str(suite.client.address), 500 * TOKEN)
    path = folder / "terms.toml"
    path.write_text(terms)
    return suite.pools.create_pool(load_terms(path, digest), 500 * TOKEN).send()


class Actors:
    """Acts as the people whose processes are not under test here."""

    def __init__(self, chain: Chain, deployment: Path, folder: Path) -> None:
        self.chain, self.folder = chain, folder
        self.deployment = Deployment.load(deployment)

    def suite(self, key: Key) -> Suite:
        account = keystore.load(key.path, key.password_file.read_text().strip())
        return Suite(self.chain.client(account), self.deployment, check=False)

    def state(self) -> State:
        follower = Follower(self.chain.client(), self.deployment, self.folder / "actors.sqlite")
        try:
            projection = Projection(follower)
            projection.refresh()
            return projection.state
        finally:
            follower.close()

    def submit(self, node: Key, pool: int, units: list[int]) -> None:
        """Files with those units, in one lane, for step 0."""
        pools = self.suite(node).pools
        counter = pools.read("accountOf", pool, node.address)["counter"]
        items = [
            WorkItem(hashlib.sha256(b"root %d" % n).digest(), hashlib.sha256(b"file %d" % n).digest(), count, 4)
            for n, count in enumerate(units)
        ]
        pools.call("submitMany", [item.as_tuple(pool, 0, counter + i) for i, item in enumerate(items)]).send()

    def attest(self, service: Key, pool: int, lane: int) -> None:
        """The service has the bytes of all files of a lane, once it takes no more."""
        self.chain.mine(2)
        self.suite(service).court.attest(pool, lane, self.state().lanes[pool, lane].missing).send()

    def judge(self, voters: list[Key], pool: int, lane: int, codes: list[Code]) -> None:
        """The lane's committee commits, reveals and settles; all members vote `codes`."""
        self.chain.mine(4)
        keys = {key.address: key for key in voters}
        committee = self.suite(voters[0]).court.committee_of((pool, lane, 0))
        assert committee is not None
        word, salt = pack(codes), b"\x07" * 32
        for member, voter in enumerate(committee.voters):
            court = self.suite(keys[voter]).court
            ballot = court.ballot_hash((pool, lane, 0), voter, word, b"\1" * 32, salt)
            court.commit((pool, lane, 0), member, ballot).send()
        for member, voter in enumerate(committee.voters):
            self.suite(keys[voter]).court.reveal((pool, lane, 0), member, word, b"\1" * 32, salt).send()
        state = self.state()
        self.suite(voters[0]).court.settle((pool, lane, 0), state.files_of(state.lanes[pool, lane])).send()
