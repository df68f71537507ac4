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
from eth_utils.address import to_canonical_address

from chain import abi
from chain.client import ChainClient
from chain.deployment import Deployment, NetworkConfig, Placed, TokenInfo, known_rpc, with_code
from chain.rpc import number
from chain.transactions import Call
from protocol.encoding import canonical_json, keccak, sha256_hex
from protocol.errors import ConfigError, MusterError
from protocol.files import write_atomic
from protocol.waits import wait_for

log = logging.getLogger("muster.deploy")
DEPLOYMENT, STATE = "deployment.json", "deploy-state.json"


def artifact(contract: str) -> dict[str, Any]:
    """Return what the compiler left of a contract. Raises ConfigError unless it is built, with the committed ABI."""
    path = abi.ARTIFACTS_FOLDER / f"{contract}.sol" / f"{contract}.json"
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        built, known = abi.parse(contract, document["abi"]), abi.load(contract)
    except OSError:
        raise ConfigError(f"{contract} is not compiled ({path} is missing)", "run make contracts") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is damaged", "delete contracts/out and run make contracts") from None
    if set(built.events) != set(known.events) or set(built.functions) != set(known.functions):
        raise ConfigError(f"the build of {contract} differs from its committed ABI", "run make contracts")
    return document


@dataclass(frozen=True)
class Creation:
    """One contract to be created, with enough `gas`; `exists` when its address holds code already."""

    contract: str
    address: str
    nonce: int
    init_code: bytes = field(repr=False)
    gas: int
    exists: bool

    @classmethod
    def of(cls, contract: str, address: str, nonce: int, values: tuple[Any, ...], exists: bool) -> "Creation":
        document = artifact(contract)
        inputs = [entry["inputs"] for entry in document["abi"] if entry["type"] == "constructor"]
        arguments = abi.Parameters(f"{contract}'s constructor", inputs[0] if inputs else []).encode(values)
        init_code = bytes.fromhex(document["bytecode"]["object"].removeprefix("0x")) + arguments
        stored = len(document["deployedBytecode"]["object"].removeprefix("0x")) // 2
        gas = 100_000 + 50 * len(init_code) + 200 * stored + 1_500_000
        return cls(contract, address, nonce, init_code, gas, exists)


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


def plan(client: ChainClient, network: NetworkConfig, folder: Path, *, fresh: bool = False) -> DeploymentPlan:
    """Return what `deploy` would do, without sending or writing anything."""
    _check(client, network)
    return _plan(client, network, _progress(client, network, folder, fresh))


def deploy(client: ChainClient, network: NetworkConfig, folder: Path, *, fresh: bool = False) -> Deployment:
    """Bring the suite to exist on the network and write `deployment.json` to `folder`.

    Idempotent and resumable. Raises ConfigError for a wrong chain, a changed configuration or a nonce used by another
    transaction in between; `fresh` then starts over with new addresses.
    """
    _check(client, network)
    if not fresh and (folder / DEPLOYMENT).exists():
        existing = Deployment.load(folder / DEPLOYMENT)
        try:
            existing.check_chain(client)
            log.info("the suite exists already on %s", network.name)
            return existing
        except ConfigError as error:
            log.warning("the deployment in %s is not on this chain: %s", folder, error)
    progress = _progress(client, network, folder, fresh)
    todo = _plan(client, network, progress)
    progress.save(folder)
    _send(client, folder, progress, [creation for creation in todo.creations if not creation.exists])
    deployment = _describe(network, progress, todo.creations)
    deployment.check_chain(client)
    deployment.save(folder / DEPLOYMENT)
    return deployment


def _check(client: ChainClient, network: NetworkConfig) -> None:
    if client.chain_id != network.chain_id:
        wrong = f"network {network.name} is chain {network.chain_id}, the client is for {client.chain_id}"
        raise ConfigError(wrong, "use one network")
    token = network.suite.token
    if token is not None and not with_code(client, [token]):
        raise ConfigError(f"there is no token at {token} on {network.name}", "check the network file")


def _progress(client: ChainClient, network: NetworkConfig, folder: Path, fresh: bool) -> DeploymentProgress:
    """The saved progress if it fits, else a new one from the deployer's next nonce."""
    genesis = client.block(0)
    genesis_hash = "0x" + (genesis.hash.hex() if genesis else "00" * 32)
    config = sha256_hex(canonical_json(network.suite.model_dump(mode="json")))
    path = folder / STATE
    if path.exists() and not fresh:
        try:
            saved = DeploymentProgress(**json.loads(path.read_bytes()))
        except (ValueError, TypeError):
            raise ConfigError(f"{path} is damaged", "delete it, or deploy with --fresh") from None
        if (saved.chain_id, saved.genesis) == (client.chain_id, genesis_hash):
            if saved.deployer != client.address:
                raise ConfigError(f"{path} was begun by {saved.deployer}", "use that key, or deploy with --fresh")
            if saved.config != config:
                wrong = f"the network file or --governance, --guardian changed since {path} was begun"
                raise ConfigError(wrong, "restore them, or use --fresh")
            return saved
        log.warning("%s belongs to another chain; starting over", path)
    nonce, head = _settled_nonce(client), client.head().number
    return DeploymentProgress(network.name, client.chain_id, genesis_hash, client.address, nonce, head, config)


def _settled_nonce(client: ChainClient) -> int:
    """The deployer's nonce once none of its transactions is pending."""

    def ready() -> tuple[int] | None:
        asked = [("eth_getTransactionCount", [client.address, tag]) for tag in ("latest", "pending")]
        latest, pending = map(number, client.batch(asked))
        return (latest,) if latest == pending else None

    return wait_for("the deployer's pending transactions", ready, 300.0, hint="look at them in a block explorer")[0]


def _plan(client: ChainClient, network: NetworkConfig, progress: DeploymentProgress) -> DeploymentPlan:
    names = [n for n in abi.CONTRACTS if n != "MusterToken" or network.suite.token is None]
    nonces = {name: progress.first_nonce + i for i, name in enumerate(names)}
    sender = to_canonical_address(progress.deployer)
    addresses = {name: abi.checksum(keccak(rlp.encode([sender, nonce]))[12:]) for name, nonce in nonces.items()}
    if network.suite.token is not None:
        addresses["MusterToken"] = network.suite.token
    arguments = _arguments(network, addresses, network.suite.governance or progress.deployer)
    deployed = with_code(client, [addresses[name] for name in names])
    creations = [
        Creation.of(name, addresses[name], nonces[name], arguments[name], addresses[name] in deployed) for name in names
    ]
    todo = [creation for creation in creations if not creation.exists]
    if todo and (nonce := _settled_nonce(client)) != todo[0].nonce:
        # All addresses depend on it.
        what = f"nonce {todo[0].nonce} of {client.address}, meant for {todo[0].contract}, is gone (next is {nonce})"
        raise ConfigError(what, "deploy with --fresh, which makes new addresses")
    gas = sum(creation.gas for creation in todo)
    return DeploymentPlan(creations, gas, gas * client.gas_price(), not todo)


def _arguments(network: NetworkConfig, addresses: dict[str, str], governor: str) -> dict[str, tuple[Any, ...]]:
    """Constructor arguments: docs/reference/contracts.md, Deployment."""
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
    calls = [(Call("", creation.init_code, f"creation of {creation.contract}"), creation.gas) for creation in todo]
    for creation, receipt in zip(todo, client.send_all(calls) if calls else (), strict=True):
        created = abi.checksum(receipt.contract_address or "0x" + "00" * 20)
        if created != creation.address:
            what = f"{creation.contract} was created at {created}, not {creation.address}"
            raise MusterError(what, "another program used the deployer's key: deploy with --fresh")
        progress.placed[creation.contract] = {"tx": receipt.tx_hash, "block": receipt.block}
        progress.save(folder)
        log.info("%s at %s (%d gas)", creation.contract, creation.address, receipt.gas_used)


def _describe(network: NetworkConfig, progress: DeploymentProgress, creations: list[Creation]) -> Deployment:
    def placed(name: str, address: str, **created: Any) -> Placed:
        return Placed(address=address, abi_sha256=abi.load(name).sha256, **created)

    unknown = {"tx": "", "block": progress.start_block}
    known = {creation.contract: progress.placed.get(creation.contract, unknown) for creation in creations}
    contracts = {
        creation.contract: placed(creation.contract, creation.address, **known[creation.contract])
        for creation in creations
    }
    token = network.suite.token
    if token is not None:
        contracts["MusterToken"] = placed("MusterToken", token)
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
