"""Files for a pool, pools, and what somebody who joins finds of its service."""

from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from chain.suite import Suite
from cli.pool.config import load_terms
from cli.run.up import LocalFaucet
from protocol.api.run import PoolAccess
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig, WorkConfig
from tests.conftest import TOKEN
from tests.storage.mirror import send

TERMS = """
rate = "0.001"
fee = "0.01"
jury_fee = "0.1"
min_stake = "200"
leverage = 10
committee = 3
jury = 5
appeal_jury = 0
max_lag = 4
audit_rate = 65536
draw_blocks = 24
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
    return suite.pools.create_pool(load_terms(path, digest, 4096), 500 * TOKEN).send()


CONFIG = PoolConfig(
    name="up", model=ModelConfig(source="m"), environments=(EnvironmentConfig(name="reasoning_gym/chain_sum"),)
)


@dataclass
class StubService:
    """What `up` asks of a pool's service, whose configuration is `config`."""

    access: PoolAccess | None = None
    config: PoolConfig = CONFIG
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = self.access.model_dump_json().encode() if self.access else b""
        if handler.path.startswith("/v1/objects/configs/"):
            body = self.config.canonical()
        send(handler, 200, body, Content_Type="application/json")
