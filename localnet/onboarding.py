"""The keys of a run, and how their holders come onto the chain: gas, tokens, bonds, nodes, a pool."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from chain.client import ChainClient
from chain.deployment import Deployment
from chain.indexer.state import group_number
from chain.suite import Suite
from localnet.plan import POOL, STAKE, DemoPlan, budget, pool_terms
from protocol.accounts import LocalAccount
from protocol.config import PoolConfig
from protocol.encoding import TOKEN
from protocol.identity import PoolId
from protocol.waits import wait_for
from runtime import keystore
from runtime.orchestrator_client import OrchestratorClient, join_request


@dataclass(frozen=True)
class RoleKey:
    """A role's key: where it lies, and, in this process only, the open account."""

    keystore: Path
    password_file: Path
    account: LocalAccount

    @property
    def address(self) -> str:
        return str(self.account.address)

    def reference(self) -> dict[str, str]:
        """How a process configuration names this key."""
        return {"keystore": str(self.keystore), "password_file": str(self.password_file)}


class KeyRing(dict[str, RoleKey]):
    """Makes and remembers the keys of a run. Passwords are 32 random bytes, so light scrypt suffices."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> RoleKey:
        path, password_file = self.folder / name / "key.json", self.folder / name / "password"
        password = keystore.create_password_file(password_file)
        if path.exists():
            account = keystore.load(path, password)
        else:
            account = keystore.create(path, password, work_factor=keystore.LIGHT_SCRYPT_N)
        key = self[name] = RoleKey(path, password_file, account)
        return key


def names(plan: DemoPlan) -> list[str]:
    """Every key of a run: those of `payers`, an operator and a node key per node, a key per DiLoCo worker."""
    members = [f"{kind}-{name}" for name in plan.members for kind in ("operator", "node")]
    return [*dict.fromkeys([*payers(plan), *members]), *plan.diloco_workers]


def payers(plan: DemoPlan) -> list[str]:
    """Keys that send transactions: governance, the pool's owner and service, who disputes for honest nodes, an owner
    and voters per validator process, and the node that its service does not relay."""
    out = ["deployer", "owner", "service", "watcher"]
    for validator in plan.validators:
        out += [f"validator-{validator.name}", *voter_names(validator.name, validator.seats)]
    return [*out, f"node-{plan.censored}"] if plan.censored else out


def voter_names(validator: str, seats: int) -> list[str]:
    return [f"voter-{validator}-{i + 1}" for i in range(seats)]


ETHER = 10**18
SPARE = 100 * TOKEN
LOCAL_GROUP = "local"  # the validator group of pools with the terms of chain/networks/terms/local.toml
GUESTS = 8  # nodes beyond the plan's own to which the service can lend a stake
JOIN_SECONDS = 300.0


class Onboarding:
    """One client per key, so that transactions of different keys go out side by side."""

    def __init__(self, plan: DemoPlan, ring: KeyRing) -> None:
        self.plan, self.ring = plan, ring
        self._suites: dict[str, Suite] = {}

    def client(self, name: str) -> ChainClient:
        return ChainClient([self.plan.rpc_url], self.plan.chain_id, self.ring[name].account)

    def suite(self, name: str) -> Suite:
        if name not in self._suites:
            deployment = Deployment.load(self.plan.deployment)
            self._suites[name] = Suite(self.client(name), deployment, check=False)
        return self._suites[name]

    def give_gas(self) -> None:
        """Ether for who pays gas, which a local chain creates on request (a public test network has faucets)."""
        client = self.client("deployer")
        for name in payers(self.plan):
            client.request("anvil_setBalance", [self.ring[name].address, hex(100 * ETHER)])

    def give_tokens(self) -> None:
        """Test tokens minted by governance: what the service lends, bonds, the pool's budget, and some to spare."""
        suite = self.suite("deployer")
        bond = suite.seats.bond()
        amounts = {"owner": budget(self.plan.steps) + SPARE}
        amounts |= {"service": (len(self.plan.members) + GUESTS) * STAKE, "watcher": SPARE}
        amounts |= {f"validator-{v.name}": v.seats * bond + SPARE for v in self.plan.validators}
        side_by_side([suite.token.mint(self.ring[name].address, amount).send for name, amount in amounts.items()])

    def bond(self) -> None:
        """Validators bond their seats, side by side."""
        side_by_side([partial(self._bond, v.name, v.seats) for v in self.plan.validators])

    def _bond(self, name: str, seats: int) -> None:
        """Seats that judge the pool, which exists, and in a network that lasts those of everybody's own."""
        suite = self.suite(f"validator-{name}")
        groups = [POOL, group_number(LOCAL_GROUP)] if self.plan.background else [POOL]
        approval = suite.token.approval(suite.seats.address, seats * suite.seats.bond())
        if approval is not None:
            approval.send()
        for voter in voter_names(name, seats):
            suite.seats.open_seat(self.ring[voter].address, groups).send()

    def join(self, url: str) -> None:
        """Every node joins through the service at `url`, which lends its stake."""
        side_by_side([partial(self._join, url, name) for name in self.plan.members])

    def _join(self, url: str, name: str) -> None:
        node, suite, sponsor = self.ring[f"node-{name}"].account, self.suite(f"node-{name}"), self.ring["service"]
        pool = PoolId(self.plan.chain_id, suite.pools.address, POOL)
        wish = join_request(suite, node, self.ring[f"operator-{name}"].address, sponsor.address, POOL)
        with closing(OrchestratorClient(url, node, pool)) as service:
            wait_for(f"node {name} to join", lambda: service.join(wish).member, JOIN_SECONDS, 1.0, "see its log")

    def create_pool(self, config: PoolConfig) -> int:
        """Escrow the budget and name the service. Returns the pool's number, which seats can opt into."""
        suite = self.suite("owner")
        pool = suite.pools.create_pool(pool_terms(config, self.plan.patience), budget(self.plan.steps)).send()
        suite.court.set_service(pool, self.ring["service"].address).send()
        suite.court.announce_service(pool, self.plan.http_url).send()
        return pool

    def open_pool(self, pool: int) -> None:
        """Let the pool take work, once the seats are drawable."""
        suite = self.suite("owner")
        blocks = suite.seats.epoch_blocks()
        suite.client.wait_for_block((suite.client.head().number // blocks + 1) * blocks)
        suite.pools.review_seats(pool).send()


def side_by_side(jobs: Sequence[Callable[[], object]]) -> None:
    """Do all at once; the first failure is raised after every one has ended."""
    with ThreadPoolExecutor(16) as threads:
        for future in [threads.submit(job) for job in jobs]:
            future.result()
