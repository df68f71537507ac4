"""Fixtures that several areas share: a real local chain, and the suite deployed on it."""

import gzip
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import settings

from chain.client import ChainClient
from chain.deploy import deploy
from chain.deployment import Deployment, NetworkConfig
from chain.suite import Suite
from localnet.ports import claim_port
from localnet.services.chain import find_anvil
from protocol.accounts import Account, LocalAccount
from protocol.http.transport import tls_context

# How long an example takes says more of the machine's load than of our code.
settings.register_profile("muster", deadline=None)
settings.load_profile("muster")

CHAIN_ID = 31337
ETHER = 10**18
TOKEN = 10**9
# Files in this order come before all others. The run of a whole network, whose windows want a processor, is first,
# beside files that mostly wait; then those that take longest, or at the end one process would be alone with them.
FIRST = (
    "e2e/test_short_run.py",
    "localnet/services/test_chain.py",
    "cli/test_story.py",
    "sandbox/test_escapes.py",
    "cli/run/test_up.py",
    "cli/run/test_roles.py",
    "trainer/test_distributed.py",
    "orchestrator/dashboard/test_live.py",
    "chain/test_follower.py",
    "storage/relay/test_relay.py",
    "storage/relay/test_hostile_sources.py",
    "environments/verifiers/test_turns.py",
    "environments/verifiers/test_environment.py",
    "trainer/test_layouts.py",
    "calibration/test_calibrate.py",
    "engines/test_vllm.py",
    "swarm/test_plausibility.py",
    "trainer/test_checkpoint.py",
    "benchmarks/test_swarm.py",
    "cli/run/test_dry_run.py",
    "trainer/test_evaluate.py",
    "trainer/test_train.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(FIRST)))


def free_port() -> int:
    return claim_port()


@dataclass
class Chain:
    """A running anvil. `block_time` None mines a block per transaction."""

    block_time: float | None = None
    state: Path | None = None
    port: int = field(default_factory=free_port)
    chain_id: int = CHAIN_ID
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "Chain":
        command = [str(find_anvil()), "--port", str(self.port), "--chain-id", str(self.chain_id)]
        command += ["--hardfork", "prague", "--accounts", "1", "--quiet"]
        if self.block_time is not None:
            command += ["--block-time", str(self.block_time)]
        if self.state is not None:
            command += ["--load-state", str(self.state)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                self.rpc("eth_chainId")
                return self
            except httpx.HTTPError:
                time.sleep(0.03)
        raise RuntimeError("anvil did not start")

    def rpc(self, method: str, *params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
        answer = httpx.post(self.url, json=body, timeout=100, trust_env=False, verify=tls_context()).json()
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def mine(self, blocks: int = 1) -> None:
        self.rpc("anvil_mine", hex(blocks))

    def later(self, seconds: int) -> None:
        """Move chain time and mine a block."""
        self.rpc("evm_increaseTime", hex(seconds))
        self.mine()

    def fund(self, address: str, wei: int = 1000 * ETHER) -> None:
        self.rpc("anvil_setBalance", address, hex(wei))

    def account(self) -> LocalAccount:
        """A new account with ether for gas."""
        account: LocalAccount = Account.create()
        self.fund(account.address)
        return account

    def client(self, account: LocalAccount | None = None, **options: Any) -> ChainClient:
        return ChainClient([self.url], self.chain_id, account, **({"poll": 0.02} | options))

    def save(self, path: Path) -> None:
        """Write the chain's state, from which the next start goes on."""
        path.write_bytes(gzip.decompress(bytes.fromhex(self.rpc("anvil_dumpState", True)[2:])))
        self.state = path

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass
class Deployed:
    """The suite on a chain. `governance` may mint tokens."""

    chain: Chain
    governance: LocalAccount
    deployment: Deployment
    folder: Path

    def suite(self, account: LocalAccount | None = None) -> Suite:
        return Suite(self.chain.client(account), self.deployment, check=False)

    def rich(self, base_units: int = 10_000 * TOKEN) -> LocalAccount:
        """A new account with ether and tokens."""
        account = self.chain.account()
        self.suite(self.governance).token.mint(account.address, base_units).send()
        return account


@pytest.fixture
def chain() -> Iterator[Chain]:
    """A chain of its own for one test, mining a block per transaction."""
    running = Chain().start()
    yield running
    running.kill()


@pytest.fixture(scope="session")
def anvil() -> Iterator[Chain]:
    """One chain for the whole session: use it only for what does not disturb others."""
    running = Chain().start()
    yield running
    running.kill()


def local(chain: Chain) -> NetworkConfig:
    return NetworkConfig.load("local").model_copy(update={"rpc_urls": (chain.url,)})


def deploy_on(chain: Chain, folder: Path) -> Deployed:
    governance = chain.account()
    deployment = deploy(chain.client(governance), local(chain), folder)
    return Deployed(chain, governance, deployment, folder)


@pytest.fixture(scope="session")
def shared_suite(anvil: Chain, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    """The suite on the session's chain, for tests that make their own accounts and pools."""
    return deploy_on(anvil, tmp_path_factory.mktemp("suite"))


@pytest.fixture
def deployed(chain: Chain, tmp_path: Path) -> Deployed:
    """The suite on a chain of its own."""
    return deploy_on(chain, tmp_path / "suite")
