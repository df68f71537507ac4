"""Networks and deployments: how a new suite is parametrised on a chain, and where an existing suite lives.

A network is a TOML file; a deployment is the JSON file that every other process reads.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from chain import abi
from chain.client import ChainClient, View
from chain.rpc import ChainReader
from protocol.encoding import Document, load_document
from protocol.errors import ConfigError
from protocol.files import write_file
from protocol.signing import checked_address

Address = Annotated[str, AfterValidator(checked_address)]
Hash = Annotated[str, Field(pattern=re.compile(r"^0x[0-9a-f]{64}$"))]


class Placed(Document):
    """One contract; `tx` is empty where it existed before."""

    address: Address
    abi_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    tx: str = Field("", pattern=r"^(0x[0-9a-f]{64})?$")
    block: int = Field(0, ge=0)


class TokenInfo(Document):
    address: Address
    decimals: Literal[9] = 9
    ours: bool = True
    """Whether it is our own test token, whose owner mints."""


class Deployment(Document):
    """A whole suite on one chain. `start_block`: no event of it is older. `genesis`: hash of the chain's block 0.
    `governance` proposed to the suite's timelock when it was deployed."""

    version: Literal[1] = 1
    network: str
    chain_id: int = Field(ge=1)
    genesis: Hash
    start_block: int = Field(ge=0)
    deployer: Address
    governance: Address
    token: TokenInfo
    contracts: dict[str, Placed]
    services: dict[str, str] = Field(default_factory=dict)
    """Public URLs announced with the deployment, e.g. `orchestrator`."""

    def address(self, contract: str) -> str:
        try:
            return self.contracts[contract].address
        except KeyError:
            raise ConfigError(f"the deployment names no {contract}", "deploy again: muster deploy") from None

    def names(self) -> dict[str, str]:
        """Address → contract name."""
        return {placed.address: name for name, placed in self.contracts.items()}

    def save(self, path: Path) -> None:
        """Write atomically, readable by everyone."""
        write_file(path, json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True).encode() + b"\n")

    @classmethod
    def load(cls, path: Path) -> "Deployment":
        """Raises ConfigError for a missing or malformed file, or one made for other contracts than this version's."""
        if not path.exists():
            raise ConfigError(f"cannot read the deployment file {path}", "deploy first, or name the right file")
        deployment = load_document(path, cls)
        deployment.check_abis(str(path))
        return deployment

    def check_abis(self, where: str = "the deployment") -> None:
        """Raise ConfigError unless all contracts are named, with the ABIs of this version of muster."""
        for name in abi.CONTRACTS:
            placed = self.contracts.get(name)
            if placed is None:
                raise ConfigError(f"{where} names no {name}", "deploy again: muster deploy")
            foreign = name == "MusterToken" and not self.token.ours
            if placed.abi_sha256 != abi.load(name).sha256 and not foreign:
                what = f"{where}: {name} was deployed with another ABI than this version of muster has"
                raise ConfigError(what, "use the muster version of that deployment, or deploy again")

    def check_genesis(self, client: ChainReader) -> None:
        """Raise ConfigError unless the chain begins with the deployment's first block."""
        genesis = client.block(0)
        if genesis is not None and "0x" + genesis.hash.hex() != self.genesis:
            raise ConfigError(
                f"{client.url} serves another chain with id {self.chain_id} than the one deployed to",
                "name its RPC URL; if that chain was restarted, `muster init ROLE --pool URL --force` replaces the "
                "deployment of a profile and keeps its keys",
            )

    def check_chain(self, client: ChainClient) -> None:
        """Raise ConfigError unless the chain is the deployment's, holds code at every address, and every contract was
        made for these parameters."""
        if client.chain_id != self.chain_id:
            what = f"the deployment is for chain {self.chain_id}, the client for {client.chain_id}"
            raise ConfigError(what, "use one network")
        self.check_genesis(client)
        deployed = with_code(client, [placed.address for placed in self.contracts.values()])
        for name, placed in self.contracts.items():
            if placed.address not in deployed:
                what = f"there is no {name} at {placed.address} on {client.url}"
                raise ConfigError(what, "check the deployment file and the RPC URL")
        bound = [name for name in self.contracts if "params" in abi.load(name).functions]
        found_params = client.read_many([View(self.address(name), abi.load(name)["params"], ()) for name in bound])
        for name, params in zip(bound, found_params, strict=True):
            if params != self.address("Params"):
                what = f"{name} at {self.address(name)} was made for other parameters"
                raise ConfigError(what, "check the deployment file, and do not stake there")


def with_code(client: ChainReader, addresses: list[str]) -> set[str]:
    """Return those of `addresses` that hold a contract."""
    codes = client.batch([("eth_getCode", [address, "latest"]) for address in addresses])
    held = zip(addresses, codes, strict=True)
    return {address for address, code in held if isinstance(code, str) and len(code) > 2}


FOLDER = Path(__file__).resolve().parent / "networks"
_TOKEN_BOUND = (1 << 56) - 1


class Penalties(Document):
    """`Params.Values`, in base units; shares in 1/10000. Bounds beyond these are the contract's."""

    slash_bps: int = Field(ge=5000, le=10_000)
    reward_bps: int = Field(ge=0, le=2000)
    malformed: int = Field(ge=0, le=_TOKEN_BOUND)
    minority: int = Field(ge=1, le=_TOKEN_BOUND)
    withheld: int = Field(ge=1, le=_TOKEN_BOUND)
    overturn: int = Field(ge=1, le=_TOKEN_BOUND)
    canary_slash: int = Field(ge=1, le=_TOKEN_BOUND)
    delay_compensation: int = Field(ge=0, le=_TOKEN_BOUND)

    def as_tuple(self) -> tuple[int, ...]:
        """In the order of the struct."""
        return tuple(self.model_dump().values())


class SuiteConfig(Document):
    """Parameters and penalties fixed at deployment (seconds, blocks, base units), and who governs."""

    min_window: int = Field(ge=1, le=86_400)
    block_seconds: int = Field(ge=1, le=60)
    unbonding: int = Field(ge=1, le=7_776_000)
    epoch_blocks: int = Field(ge=2, le=4000)
    bond: int = Field(ge=1, le=_TOKEN_BOUND)
    min_bond: int = Field(ge=1, le=_TOKEN_BOUND)
    penalties: Penalties
    token: Address | None = None
    """An existing token of 9 decimals instead of our test token."""
    timelock_delay: int = Field(ge=1, le=7_776_000)
    """Seconds from proposing to executing what the timelock, owner of the pause, is to do."""
    governance: Address | None = None
    """Proposes to the timelock, cancels and executes; the deployer when absent."""
    guardian: Address | None = None
    """May pause new entries at once, nothing else; governance when absent."""
    minter: Literal["governance", "timelock"] = "governance"
    """Who owns the test token, and so can mint it."""


class NetworkConfig(Document):
    """A network and the suite that is deployed there."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    chain_id: int = Field(ge=1)
    rpc_urls: tuple[str, ...] = Field(min_length=1)
    explorer: str = ""
    suite: SuiteConfig

    def governed_by(self, governance: str | None, guardian: str | None) -> "NetworkConfig":
        """With these addresses in place of the file's, where they are given."""
        given = {"governance": governance, "guardian": guardian}
        suite = self.suite.model_copy(update={name: who for name, who in given.items() if who})
        return self.model_copy(update={"suite": suite})

    @classmethod
    def load(cls, which: str | Path) -> "NetworkConfig":
        """Load a network by the name of a file that comes with muster (`local`, `base-sepolia`), or by path."""
        path = Path(which)
        if path.suffix != ".toml":
            path = FOLDER / f"{which}.toml"
        if not path.exists():
            known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.toml")))
            raise ConfigError(f"there is no network {which}", f"choose one of {known}, or name a .toml file")
        return load_document(path, cls)


def known_rpc(network: str) -> tuple[str, ...]:
    """Return the public RPC URLs of a network that comes with muster; none for another."""
    try:
        return NetworkConfig.load(network).rpc_urls
    except ConfigError:
        return ()
