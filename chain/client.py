"""The chain as roles see it: reads, blocks, and sending as one account."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eth_account.signers.local import LocalAccount

from chain.abi import Function
from chain.errors import ContractError
from chain.rpc import BadAnswer, Rpc, RpcError, number
from chain.sender import Call, Receipt, Sender
from protocol.errors import ConfigError, MusterError, UnreachableError
from protocol.waits import wait_for


@dataclass(frozen=True)
class Block:
    """`hash` and `parent` 32 bytes, `time` Unix seconds."""

    number: int
    hash: bytes
    parent: bytes
    time: int


@dataclass(frozen=True)
class View:
    """A read of a contract's function."""

    to: str
    function: Function
    args: tuple[Any, ...]

    @property
    def label(self) -> str:
        return f"{self.function.contract}.{self.function.name}"


class ChainClient:
    """Reads from a chain and, with an account, sends transactions. Thread-safe.

    The constructor checks that an endpoint answers within `patience` seconds (UnreachableError) and serves `chain_id`
    (ConfigError). Receipts are polled every `poll` seconds.
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
        self.rpc = Rpc(rpc_urls, chain_id, timeout=timeout, patience=patience)
        self.chain_id = chain_id
        self.account = account
        self._sender = Sender(self.rpc, account, poll=poll, bump_after=bump_after) if account else None
        self.rpc.check()

    @property
    def address(self) -> str:
        """The account's checksum address. Raises ConfigError for a read-only client."""
        if self.account is None:
            raise ConfigError("this client has no key", "name a key file")
        return str(self.account.address)

    # ---- Reading

    def read(self, view: View, block: int | str = "latest") -> Any:
        """The decoded answer of one view. Raises ContractError if it reverts."""
        return self.read_many([view], block)[0]

    def read_many(self, views: Sequence[View], block: int | str = "latest") -> list[Any]:
        """Decoded answers of several views in one round trip."""
        at = hex(block) if isinstance(block, int) else block
        calls = [("eth_call", [{"to": v.to, "data": "0x" + v.function.encode(*v.args).hex()}, at]) for v in views]

        def decoded(answers: list[Any]) -> list[Any]:
            return [self._answer(view, raw) for view, raw in zip(views, answers, strict=True)]

        return self.rpc.batch(calls, decoded)

    def block(self, which: int | str = "latest") -> Block | None:
        """A block by number or tag; None when it does not exist (yet)."""
        at = hex(which) if isinstance(which, int) else which
        return parse_block(self.rpc.call("eth_getBlockByNumber", at, False))

    def head(self) -> Block:
        """The latest block."""
        block = self.block("latest")
        if block is None:
            raise UnreachableError(f"{self.rpc.url} has no latest block", "wait until the node has synced")
        return block

    def now(self) -> int:
        """Chain time: the latest block's."""
        return self.head().time

    def balance(self, address: str) -> int:
        """Wei."""
        return number(self.rpc.call("eth_getBalance", address, "latest"))

    def has_code(self, address: str) -> bool:
        return len(self.rpc.call("eth_getCode", address, "latest")) > 2

    def wait_for_block(self, wanted: int, timeout: float = 120.0) -> Block:
        """The head, once it is at or past block `wanted`."""

        def ready() -> Block | None:
            head = self.head()
            return head if head.number >= wanted else None

        return wait_for(f"block {wanted}", ready, timeout, poll=0.25, hint="is the chain producing blocks?")

    # ---- Sending

    def send(self, call: Call, gas: int | None = None, timeout: float = 120.0) -> Receipt:
        """Send as the account and wait for the receipt; see `Sender.send` for errors."""
        if self._sender is None:
            raise ConfigError(f"{call.label} needs a key", "name a key file")
        return self._sender.send(call, gas, timeout)

    def send_all(self, calls: Sequence[tuple[Call, int]], timeout: float = 300.0) -> Iterator[Receipt]:
        """Send (call, gas limit) pairs at once and yield their receipts in order; see `Sender.send_all`."""
        if self._sender is None:
            raise ConfigError(f"{calls[0][0].label} needs a key", "name a key file")
        return self._sender.send_all(calls, timeout)

    def simulate(self, call: Call) -> None:
        """Run a call without sending it. Raises ContractError if it would be refused."""
        answer = self.rpc.batch([("eth_call", [call.fields(self.address), "latest"])])[0]
        if isinstance(answer, RpcError):
            raise ContractError(call.label, answer.data)

    def estimate(self, call: Call, block: str = "latest") -> int:
        """Gas that a call would use; on the block `pending` where what was sent before it is mined first. Raises
        ContractError if it would be refused there."""
        answer = self.rpc.batch([("eth_estimateGas", [call.fields(self.address), block])])[0]
        if isinstance(answer, RpcError):
            raise ContractError(call.label, answer.data)
        return number(answer)

    def close(self) -> None:
        self.rpc.close()

    def _answer(self, view: View, raw: Any) -> Any:
        if isinstance(raw, RpcError):
            if raw.data or "revert" in raw.message.lower():
                raise ContractError(view.label, raw.data)
            raise MusterError(f"{view.label}: {raw.message}", "the endpoint may lack that block's state")
        if not isinstance(raw, str) or not raw.startswith("0x"):
            raise BadAnswer(f"it answers {repr(raw)[:80]} to {view.label}")
        if raw == "0x" and view.function.outputs:
            absent = f"there is no {view.function.contract} at {view.to}"
            raise BadAnswer(absent, ConfigError(absent, "check the deployment file"))
        try:
            return view.function.decode(bytes.fromhex(raw[2:]))
        except (ConfigError, ValueError) as error:
            raise BadAnswer(str(error)) from None


def parse_block(raw: Any) -> Block | None:
    """A block of JSON-RPC; None for null."""
    if raw is None or isinstance(raw, RpcError):
        return None
    try:
        return Block(
            number(raw["number"]),
            bytes.fromhex(raw["hash"][2:]),
            bytes.fromhex(raw["parentHash"][2:]),
            number(raw["timestamp"]),
        )
    except (KeyError, TypeError, ValueError):
        raise UnreachableError("the chain's endpoint returns a malformed block", "check the endpoint") from None
