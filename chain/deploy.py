"""Deploy the suite and the timelock that governs it, from one account with consecutive nonces.

The addresses follow from deployer and first nonce, which are written to `deploy-state.json` before anything is sent. A
second run looks at what exists: it finishes an interrupted deployment, or does nothing.
"""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rlp  # type: ignore[import-untyped]
from eth_utils.address import to_canonical_address, to_checksum_address

from chain import abi
from chain.abi import artifacts_folder
from chain.client import ChainClient
from chain.deployment import Deployment, NetworkConfig, Placed, TokenInfo, known_rpc
from chain.rpc import number
from chain.transactions import Call
from protocol.encoding import canonical_json, keccak, sha256_hex
from protocol.errors import ConfigError, MusterError
from protocol.files import write_atomic
from protocol.waits import wait_for


class Artifact:
    """One compiled contract."""

    def __init__(self, contract: str, document: dict[str, Any]) -> None:
        self.contract = contract
        self._document = document
        self.bytecode = bytes.fromhex(document["bytecode"]["object"].removeprefix("0x"))
        self.runtime_size = len(document["deployedBytecode"]["object"].removeprefix("0x")) // 2

    @classmethod
    def load(cls, contract: str) -> "Artifact":
        """Raises ConfigError when it is not built, or built from other sources than its committed ABI."""
        path = artifacts_folder() / f"{contract}.sol" / f"{contract}.json"
        try:
            document = json.loads(path.read_bytes())
            artifact = cls(contract, document)
        except OSError:
            raise ConfigError(f"{contract} is not compiled ({path} is missing)", "run make contracts") from None
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path} is damaged", "delete contracts/out and run make contracts") from None
        built = abi.parse(contract, document["abi"])
        known = abi.load(contract)
        if set(built.events) != set(known.events) or set(built.functions) != set(known.functions):
            raise ConfigError(f"the build of {contract} differs from its committed ABI", "run make contracts")
        return artifact

    def encode_arguments(self, *arguments: Any) -> bytes:
        constructors = [e for e in self._document["abi"] if e["type"] == "constructor"]
        inputs = constructors[0]["inputs"] if constructors else []
        return abi.Parameters(f"{self.contract}'s constructor", inputs).encode(arguments)

    def gas_limit(self, init_code: bytes) -> int:
        """Return enough gas to create the contract: call data, init code, stored code, and the constructor's own
        writes."""
        return 100_000 + 50 * len(init_code) + 200 * self.runtime_size + 1_500_000

    def verification(self, arguments: bytes) -> dict[str, Any]:
        """For an explorer: the compiler's standard JSON input with literal sources, the compiler version, the name and
        the constructor arguments. Raises ConfigError when the build does not hold its sources."""
        metadata = self._document["metadata"]
        try:
            sources = {name: {"content": entry["content"]} for name, entry in metadata["sources"].items()}
        except KeyError:
            raise ConfigError(f"{self.contract} was compiled without its sources", "run make contracts") from None
        settings = {k: v for k, v in metadata["settings"].items() if k != "compilationTarget"}
        settings["outputSelection"] = {"*": {"*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"]}}
        ((source, name),) = metadata["settings"]["compilationTarget"].items()
        return {
            "compiler": "v" + metadata["compiler"]["version"],
            "contract": f"{source}:{name}",
            "constructor_arguments": arguments.hex(),
            "standard_json_input": {"language": "Solidity", "sources": sources, "settings": settings},
        }


# ---- Deploying


log = logging.getLogger("muster.deploy")
DEPLOYMENT, STATE, VERIFY = "deployment.json", "deploy-state.json", "verify"


@dataclass
class DeploymentProgress:
    """What the state file holds. `placed`: contract → {tx, block} as far as known."""

    network: str
    chain_id: int
    genesis: str
    deployer: str
    first_nonce: int
    start_block: int
    config: str
    placed: dict[str, dict[str, Any]] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        write_atomic(folder / STATE, json.dumps(vars(self), indent=2).encode() + b"\n")


@dataclass(frozen=True)
class Creation:
    """One contract to be created: `exists` when its address holds code already."""

    contract: str
    address: str
    nonce: int
    init_code: bytes = field(repr=False)
    arguments: bytes = field(repr=False)
    gas: int
    exists: bool


@dataclass(frozen=True)
class DeploymentPlan:
    """What a deployment would do. `gas` is an upper bound; `cost` in wei at the present price."""

    creations: list[Creation]
    gas: int
    cost: int
    complete: bool

    def lines(self) -> list[str]:
        """For people."""
        out = [f"{s.contract:12} {s.address} {'exists' if s.exists else f'nonce {s.nonce}'}" for s in self.creations]
        return [*out, f"at most {self.gas} gas, {self.cost / 1e18:.6f} ETH"]


def created_address(deployer: str, nonce: int) -> str:
    """Return the address of the contract that an account's transaction `nonce` creates."""
    return str(to_checksum_address(keccak(rlp.encode([to_canonical_address(deployer), nonce]))[12:]))


def plan(client: ChainClient, network: NetworkConfig, folder: Path, *, fresh: bool = False) -> DeploymentPlan:
    """Return what `deploy` would do, without sending or writing anything."""
    _check(client, network)
    progress = _progress(client, network, folder, fresh)
    return _plan(client, network, progress)


def deploy(client: ChainClient, network: NetworkConfig, folder: Path, *, fresh: bool = False) -> Deployment:
    """Bring the suite to exist on the network and write `deployment.json` and explorer inputs to `folder`.

    Idempotent and resumable. Raises ConfigError for a wrong chain, a changed configuration or a nonce used by another
    transaction in between; `fresh` then starts over with new addresses.
    """
    _check(client, network)
    existing = _finished(client, folder) if not fresh else None
    if existing is not None:
        log.info("the suite exists already on %s", network.name)
        return existing
    progress = _progress(client, network, folder, fresh)
    todo = _plan(client, network, progress)
    progress.save(folder)
    _send(client, folder, progress, [s for s in todo.creations if not s.exists])
    deployment = _describe(network, progress, todo.creations)
    deployment.check_chain(client)
    _write_verification(folder / VERIFY, todo.creations)
    deployment.save(folder / DEPLOYMENT)
    return deployment


def _check(client: ChainClient, network: NetworkConfig) -> None:
    if client.chain_id != network.chain_id:
        raise ConfigError(
            f"network {network.name} is chain {network.chain_id}, the client is for {client.chain_id}",
            "use one network",
        )
    token = network.suite.token
    if token is not None and not client.has_code(token):
        raise ConfigError(f"there is no token at {token} on {network.name}", "check the network file")


def _finished(client: ChainClient, folder: Path) -> Deployment | None:
    if not (folder / DEPLOYMENT).exists():
        return None
    deployment = Deployment.load(folder / DEPLOYMENT)
    try:
        deployment.check_chain(client)
    except ConfigError as error:
        log.warning("the deployment in %s is not on this chain: %s", folder, error)
        return None
    return deployment


def _progress(client: ChainClient, network: NetworkConfig, folder: Path, fresh: bool) -> DeploymentProgress:
    genesis = client.block(0)
    genesis_hash = "0x" + (genesis.hash.hex() if genesis else "00" * 32)
    config = sha256_hex(canonical_json(network.suite.model_dump(mode="json")))
    path = folder / STATE
    if path.exists() and not fresh:
        try:
            saved = DeploymentProgress(**json.loads(path.read_bytes()))
        except (ValueError, TypeError):
            raise ConfigError(f"{path} is damaged", "delete it, or deploy with --fresh") from None
        same_chain = (saved.chain_id, saved.genesis) == (client.chain_id, genesis_hash)
        if same_chain and saved.deployer != client.address:
            raise ConfigError(f"{path} was begun by {saved.deployer}", "use that key, or deploy with --fresh")
        if same_chain and saved.config != config:
            raise ConfigError(
                f"the network file or --governance, --guardian changed since {path} was begun",
                "restore them, or use --fresh",
            )
        if same_chain:
            return saved
        log.warning("%s belongs to another chain; starting over", path)
    nonce = _settled_nonce(client)
    head = client.head().number
    return DeploymentProgress(network.name, client.chain_id, genesis_hash, client.address, nonce, head, config)


def _settled_nonce(client: ChainClient) -> int:

    def ready() -> tuple[int] | None:
        latest, pending = (
            number(c)
            for c in client.batch([("eth_getTransactionCount", [client.address, t]) for t in ("latest", "pending")])
        )
        return (latest,) if latest == pending else None

    return wait_for("the deployer's pending transactions", ready, 300.0, hint="look at them in a block explorer")[0]


def _plan(client: ChainClient, network: NetworkConfig, progress: DeploymentProgress) -> DeploymentPlan:
    names = [n for n in abi.CONTRACTS if n != "MusterToken" or network.suite.token is None]
    nonces = {name: progress.first_nonce + i for i, name in enumerate(names)}
    addresses = {name: created_address(progress.deployer, nonce) for name, nonce in nonces.items()}
    if network.suite.token is not None:
        addresses["MusterToken"] = network.suite.token
    arguments = _arguments(network, addresses, network.suite.governance or progress.deployer)
    codes = client.batch([("eth_getCode", [addresses[n], "latest"]) for n in names])
    creations = []
    for name, code in zip(names, codes, strict=True):
        artifact = Artifact.load(name)
        encoded = artifact.encode_arguments(*arguments[name])
        init = artifact.bytecode + encoded
        exists = isinstance(code, str) and len(code) > 2
        creations.append(Creation(name, addresses[name], nonces[name], init, encoded, artifact.gas_limit(init), exists))
    todo = [s for s in creations if not s.exists]
    if todo:
        _check_nonce(client, todo[0])
    gas = sum(s.gas for s in todo)
    return DeploymentPlan(creations, gas, gas * client.gas_price(), not todo)


def _check_nonce(client: ChainClient, first: Creation) -> None:
    nonce = _settled_nonce(client)
    if nonce != first.nonce:
        raise ConfigError(
            f"nonce {first.nonce} of {client.address}, meant for {first.contract}, is gone (next is {nonce})",
            "deploy with --fresh, which makes new addresses",
        )


def _arguments(network: NetworkConfig, addresses: dict[str, str], governor: str) -> dict[str, tuple[Any, ...]]:
    config = network.suite
    suite, timelock = tuple(addresses[name] for name in abi.SUITE), addresses["Timelock"]
    penalties = config.penalties.as_tuple()
    return dict.fromkeys(abi.SUITE, (suite,)) | {
        "MusterToken": (timelock if config.minter == "timelock" else governor,),
        "Params": (timelock, config.min_window, config.block_seconds, config.unbonding, penalties),
        "Seats": (suite, config.bond, config.min_bond, config.epoch_blocks),
        "Timelock": (addresses["Params"], config.timelock_delay, governor, config.guardian or governor),
        "DilocoRuns": (),
    }


def _send(client: ChainClient, folder: Path, progress: DeploymentProgress, todo: list[Creation]) -> None:
    if not todo:
        return
    calls = [(Call("", creation.init_code, f"creation of {creation.contract}"), creation.gas) for creation in todo]
    for creation, receipt in zip(todo, client.send_all(calls), strict=True):
        created = to_checksum_address(receipt.contract_address or "0x" + "00" * 20)
        if created != creation.address:
            raise MusterError(
                f"{creation.contract} was created at {created}, not {creation.address}",
                "another program used the deployer's key: deploy with --fresh",
            )
        progress.placed[creation.contract] = {"tx": receipt.tx_hash, "block": receipt.block}
        progress.save(folder)
        log.info("%s at %s (%d gas)", creation.contract, creation.address, receipt.gas_used)


def _describe(network: NetworkConfig, progress: DeploymentProgress, creations: list[Creation]) -> Deployment:
    contracts = {}
    for creation in creations:
        known = progress.placed.get(creation.contract, {})
        contracts[creation.contract] = Placed(
            address=creation.address,
            abi_sha256=abi.load(creation.contract).sha256,
            tx=known.get("tx", ""),
            block=known.get("block", progress.start_block),
        )
    token = network.suite.token
    if token is not None:
        contracts["MusterToken"] = Placed(address=token, abi_sha256=abi.load("MusterToken").sha256)
    # Others find a network's chain by its name; one that is elsewhere is named in the file.
    services = {} if network.rpc_urls == known_rpc(network.name) else {"rpc": ",".join(network.rpc_urls)}
    return Deployment(
        network=network.name,
        chain_id=progress.chain_id,
        genesis=progress.genesis,
        start_block=progress.start_block,
        deployer=progress.deployer,
        governance=network.suite.governance or progress.deployer,
        token=TokenInfo(address=contracts["MusterToken"].address, ours=token is None),
        contracts=contracts,
        services=services,
    )


def _write_verification(folder: Path, creations: list[Creation]) -> None:
    for creation in creations:
        try:
            document = Artifact.load(creation.contract).verification(creation.arguments)
        except (MusterError, OSError) as error:
            log.warning("no verification input for %s: %s", creation.contract, error)
            continue
        document["address"] = creation.address
        write_atomic(folder / f"{creation.contract}.json", json.dumps(document, indent=1).encode() + b"\n")
