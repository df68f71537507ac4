"""The chain as roles see it: reading contracts, and sending as one account."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from chain.abi import Function
from chain.errors import ContractError
from chain.rpc import BadAnswer, ChainReader, FailoverProvider, Request, RpcError, number
from chain.transactions import Call, Receipt, Sender
from protocol.accounts import LocalAccount
from protocol.errors import ConfigError, MusterError


class View(NamedTuple):
    """A read of a contract's function."""

    to: str
    function: Function
    args: tuple[Any, ...]


class ChainClient(ChainReader):
    """Reads from a chain and, with an account, sends transactions. Thread-safe.

    The constructor checks that an endpoint answers within `patience` seconds (UnreachableError) and serves `chain_id`
    (ConfigError). Receipts are polled after `poll` seconds, then ever less often; what is not mined `bump_after`
    seconds later is outbid.
    """

    def __init__(
        self,
        rpc_urls: Sequence[str],
        chain_id: int,
        account: LocalAccount | None = None,
        *,
        patience: float = 20.0,
        timeout: float = 15.0,
        poll: float = 0.2,
        bump_after: float = 20.0,
    ) -> None:
        super().__init__(FailoverProvider(rpc_urls, chain_id, timeout=timeout, patience=patience))
        self.chain_id = chain_id
        self.account = account
        self._sender = Sender(self, account, poll=poll, bump_after=bump_after) if account else None
        self.provider.check()

    @property
    def address(self) -> str:
        """The account's checksum address. Raises ConfigError for a read-only client."""
        if self.account is None:
            raise ConfigError("this client has no key", "name a key file")
        return str(self.account.address)

    def read_many(self, views: Sequence[View], block: int | str = "latest") -> list[Any]:
        """Read several views in one round trip and return their decoded answers. Raises ContractError if one
        reverts."""
        at = hex(block) if isinstance(block, int) else block
        calls = [{"to": view.to, "data": "0x" + view.function.encode(*view.args).hex()} for view in views]
        requests: list[Request] = [("eth_call", [call, at]) for call in calls]

        def decoded(answers: list[Any]) -> list[Any]:
            return [_decoded(view, raw) for view, raw in zip(views, answers, strict=True)]

        return self.batch(requests, decoded)

    def simulate(self, call: Call, sender: str | None = None) -> None:
        """Run a call as the account, or another sender, on the present state. Raises ContractError if it is refused."""
        self.request("eth_call", [call.fields(sender or self.address), "latest"], label=call.label)

    def estimate(self, call: Call) -> int:
        """Return the gas that a call would use as the account. Raises ContractError if it would be refused."""
        try:
            return self.request("eth_estimateGas", [call.fields(self.address)], number, call.label)
        except (ContractError, RpcError) as error:
            if not error.data:
                self.simulate(call)  # some endpoints give the contract's reason only here
            raise

    def gas_price(self) -> int:
        """Return the current gas price in wei."""
        return self.number("eth_gasPrice")

    def send(self, call: Call, gas: int | None = None, timeout: float = 120.0) -> Receipt:
        """Send as the account and wait for the receipt; see `Sender.send` for errors."""
        return self._sending(call).send(call, gas, timeout)

    def send_all(self, calls: Sequence[tuple[Call, int]], timeout: float = 300.0) -> Iterator[Receipt]:
        """Send (call, gas limit) pairs at once and yield their receipts in order; see `Sender.send_all`."""
        return self._sending(calls[0][0]).send_all(calls, timeout)

    def _sending(self, call: Call) -> Sender:
        if self._sender is None:
            raise ConfigError(f"{call.label} needs a key", "name a key file")
        return self._sender


def _decoded(view: View, raw: Any) -> Any:
    label = f"{view.function.contract}.{view.function.name}"
    if isinstance(raw, RpcError):
        if raw.reverted:
            raise ContractError(label, raw.data)
        raise MusterError(f"{label}: {raw.message}", "the endpoint may lack that block's state")
    if not isinstance(raw, str) or not raw.startswith("0x"):
        raise BadAnswer(f"it answers {repr(raw)[:80]} to {label}")
    if raw == "0x" and view.function.outputs:
        absent = f"there is no {view.function.contract} at {view.to}"
        raise BadAnswer(absent, ConfigError(absent, "check the deployment file"))
    try:
        return view.function.decode(bytes.fromhex(raw[2:]))
    except (ConfigError, ValueError) as error:
        raise BadAnswer(str(error)) from None
