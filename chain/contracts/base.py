"""What all contract facades share: where the contract is, how to read it and how to send to it."""

import re
from dataclasses import fields
from typing import Any, TypeVar

from chain import abi
from chain.client import ChainClient, View
from chain.deployment import Deployment
from chain.events import Event
from chain.logs import decode_logs
from chain.sender import Call, Receipt
from protocol.errors import ConfigError
from protocol.eip712 import Domain, checked_address

R = TypeVar("R")
UINT24, UINT32, UINT40, UINT56 = (1 << 24) - 1, (1 << 32) - 1, (1 << 40) - 1, (1 << 56) - 1


class Contract:
    """A contract of a deployment. Methods that send return a Receipt (or what the receipt's events say) and raise
    ContractError with the decoded reason when the contract refuses, ConfigError for arguments that cannot be right."""

    name = ""

    def __init__(self, client: ChainClient, deployment: Deployment) -> None:
        self.client = client
        self.deployment = deployment
        self.address = deployment.address(self.name)
        self.abi = abi.load(self.name)

    def call(self, function: str, *args: Any) -> Call:
        """The call, not yet sent."""
        try:
            data = self.abi[function].encode(*args)
        except ValueError as error:
            raise ConfigError(str(error), "check the arguments") from None
        return Call(self.address, data, f"{self.name}.{function}")

    def send(self, function: str, *args: Any) -> Receipt:
        return self.client.send(self.call(function, *args))

    def view(self, function: str, *args: Any) -> View:
        return View(self.address, self.abi[function], args)

    def read(self, function: str, *args: Any) -> Any:
        return self.client.read(self.view(function, *args))

    def event(self, receipt: Receipt, name: str) -> Event:
        """The first event `name` of this contract in a receipt."""
        for event in decode_logs(receipt.logs, self.deployment, {}):
            if event.key == (self.name, name):
                return event
        raise ConfigError(f"{receipt.tx_hash} did not emit {name}", "check the deployment file")

    def domain(self, name: str) -> Domain:
        """EIP-712 domain of this contract."""
        return Domain(name, "1", self.deployment.chain_id, self.address)


def address(value: str, what: str) -> str:
    """A checked address argument."""
    try:
        return checked_address(value)
    except ValueError as error:
        raise ConfigError(f"{what}: {error}", "copy it again") from None


def integer(value: int, most: int, what: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{what} is {value!r}, not a number from {least} to {most}", "check it")
    return value


def bytes32(value: bytes, what: str) -> bytes:
    if not isinstance(value, bytes) or len(value) != 32:
        raise ConfigError(f"{what} is not 32 bytes", "check it")
    return value


def record(kind: type[R], values: dict[str, Any], **extra: Any) -> R:
    """A dataclass from a struct's members, camelCase to snake_case; members the dataclass lacks are dropped."""
    named = {re.sub(r"(?<!^)([A-Z])", lambda m: "_" + m[1].lower(), k): v for k, v in values.items()} | extra
    wanted = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in named.items() if k in wanted})
