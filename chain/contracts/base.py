"""What all contract facades share: where the contract is, how to read it and how to send to it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from chain import abi
from chain.client import ChainClient, View
from chain.deployment import Deployment
from chain.events import Event
from chain.logs import decode_logs
from chain.transactions import Call, Receipt
from protocol import eip712
from protocol.accounts import LocalAccount
from protocol.errors import ConfigError

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class ContractCall(Call, Generic[R]):
    """A call with checked arguments, not yet sent. The client can simulate and price it like any `Call`; `send` does
    all that the call needs and returns what it is for.

    `result` reads that from the receipt. `grains` leave the sender's account. `approval`, for a call whose contract
    takes them by allowance: the call that lets it take so many grains, None if it may already.
    """

    client: ChainClient = field(repr=False)
    result: Callable[[Receipt], R] = field(repr=False)
    grains: int = 0
    approval: Callable[[int], "ContractCall[Receipt] | None"] | None = field(default=None, repr=False)

    def send(self) -> R:
        """Approve if need be, send, and wait until mined. Raises ContractError with the decoded reason when the
        contract refuses; other errors: see `ChainClient.send`."""
        approval = self.approval(self.grains) if self.approval and self.grains else None
        if approval is not None:
            approval.send()
        return self.result(self.client.send(self))


class Contract:
    """A contract of a deployment. Methods that change it return a `ContractCall`; views read at once. Both raise
    ConfigError for arguments that do not fit the ABI."""

    name = ""

    def __init__(self, client: ChainClient, deployment: Deployment) -> None:
        self.client = client
        self.deployment = deployment
        self.address = deployment.address(self.name)
        self.abi = abi.load(self.name)

    def call(self, function: str, *args: Any) -> ContractCall[Receipt]:
        """A call of any function by its name in the ABI."""
        data, label = self.abi[function].encode(*args), f"{self.name}.{function}"
        return ContractCall(self.address, data, label, client=self.client, result=lambda receipt: receipt)

    def _returning(self, call: ContractCall[Any], event: str, argument: str) -> ContractCall[int]:
        """The call, whose result is a number in the event that it emits."""
        return replace(call, result=lambda receipt: int(self.event(receipt, event).args[argument]))

    def view(self, function: str, *args: Any) -> View:
        return View(self.address, self.abi[function], args)

    def read(self, function: str, *args: Any) -> Any:
        return self.client.read_many([self.view(function, *args)])[0]

    def event(self, receipt: Receipt, name: str) -> Event:
        """The first event `name` of this contract in a receipt."""
        for event in decode_logs(receipt.logs, self.deployment):
            if event.key == (self.name, name):
                return event
        raise ConfigError(f"{receipt.tx_hash} did not emit {name}", "check the deployment file")

    def signed(self, account: LocalAccount, domain: str, struct: str, *values: eip712.Value) -> bytes:
        """The account's EIP-712 signature of a struct, in the domain of that name of this contract."""
        at = eip712.Domain(domain, "1", self.deployment.chain_id, self.address)
        return eip712.sign(account, eip712.digest(at, struct, *values))


def record(kind: type[R], values: dict[str, Any], **extra: Any) -> R:
    """A dataclass from a struct's members, camelCase to snake_case; members the dataclass lacks are dropped."""
    named = {re.sub(r"(?<!^)([A-Z])", lambda m: "_" + m[1].lower(), k): v for k, v in values.items()} | extra
    wanted = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in named.items() if k in wanted})
