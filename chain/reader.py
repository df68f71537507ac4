"""Questions to the chain: one at a time in web3's words, or several in one exchange."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from eth_abi.exceptions import DecodingError
from web3 import Web3
from web3.eth import Eth
from web3.exceptions import ContractLogicError, Web3Exception, Web3RPCError
from web3.types import RPCEndpoint

from chain.errors import ContractError
from chain.jsonrpc import BadAnswer, Request, RpcError, number, revert_data
from chain.provider import FailoverProvider
from protocol.errors import MusterError, UnreachableError
from protocol.waits import wait_for

_MALFORMED = (Web3Exception, DecodingError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What web3's formatters raise for answers of another shape than they expect."""

T = TypeVar("T")


@dataclass(frozen=True)
class Block:
    """`hash` and `parent` (the hash of the block before) 32 bytes, `time` Unix seconds."""

    number: int
    hash: bytes
    time: int
    parent: bytes


class ChainReader:
    """Reads through `provider`; `w3` is a web3 instance over the same endpoints, without middleware. Thread-safe.

    All raise UnreachableError when no endpoint answers (sensibly) in time.
    """

    def __init__(self, provider: FailoverProvider) -> None:
        self.provider = provider
        self.w3 = Web3(provider, middleware=[])
        self.batch = provider.batch

    @property
    def url(self) -> str:
        """The endpoint in use, without credentials."""
        return self.provider.url

    def ask(self, label: str, question: Callable[[Eth], T]) -> T:
        """The answer to one question, such as `lambda eth: eth.get_code(address)`; `label` names it in errors. Raises
        ContractError when a contract refuses, RpcError for other errors of the endpoint."""

        def answer(_url: str) -> T:
            try:
                return question(self.w3.eth)
            except ContractLogicError as error:
                raise ContractError(label, revert_data(error.data)) from None
            except Web3RPCError as error:
                raise _rpc_error(label, error) from None
            except _MALFORMED as error:
                raise BadAnswer(f"a malformed answer to {label}: {str(error)[:200]}") from None

        return self.provider.ask(answer)

    def number(self, label: str, question: Callable[[Eth], int]) -> int:
        """As `ask`, for a number below 2²⁵⁶."""

        def checked(eth: Eth) -> int:
            value = question(eth)
            if type(value) is not int or not 0 <= value < 1 << 256:
                raise ValueError(f"{repr(value)[:80]} is not a number")
            return value

        return self.ask(label, checked)

    def block(self, which: int | str = "latest") -> Block | None:
        """A block by number or tag; None when it does not exist (yet)."""
        return self.blocks([which])[0]

    def blocks(self, which: Sequence[int | str]) -> list[Block | None]:
        """Several blocks in one exchange."""
        at = [hex(one) if isinstance(one, int) else one for one in which]
        requests: list[Request] = [("eth_getBlockByNumber", [one, False]) for one in at]
        return self.batch(requests, lambda answers: [_block(raw) for raw in answers])

    def head(self) -> Block:
        """The latest block."""
        block = self.block("latest")
        if block is None:
            raise UnreachableError(f"{self.url} has no latest block", "wait until the node has synced")
        return block

    def now(self) -> int:
        """Chain time: the latest block's."""
        return self.head().time

    def balance(self, address: str) -> int:
        """Wei."""
        return self.number("eth_getBalance", lambda eth: eth.get_balance(Web3.to_checksum_address(address)))

    def has_code(self, address: str) -> bool:
        return bool(self.ask("eth_getCode", lambda eth: eth.get_code(Web3.to_checksum_address(address))))

    def wait_for_block(self, wanted: int, timeout: float = 120.0) -> Block:
        """The head, once it is at or past block `wanted`."""

        def ready() -> Block | None:
            head = self.head()
            return head if head.number >= wanted else None

        return wait_for(f"block {wanted}", ready, timeout, poll=0.25, hint="is the chain producing blocks?")

    def request(self, method: str, params: Sequence[Any]) -> Any:
        """The result of a JSON-RPC method that web3 has no function for."""
        return self.w3.manager.request_blocking(RPCEndpoint(method), list(params))

    def close(self) -> None:
        self.provider.close()


def _rpc_error(label: str, error: Web3RPCError) -> MusterError:
    raw: Any = (error.rpc_response or {}).get("error") or {"code": 0, "message": str(error)}
    plain = RpcError(label, raw["code"], raw["message"], revert_data(raw.get("data")))
    return ContractError(label, plain.data) if plain.reverted else plain


def _block(raw: Any) -> Block | None:
    """A block of JSON-RPC; None for null. Raises BadAnswer."""
    if raw is None or isinstance(raw, RpcError):
        return None
    try:
        block_hash, parent = (bytes.fromhex(raw[name][2:]) for name in ("hash", "parentHash"))
        found = Block(number(raw["number"]), block_hash, number(raw["timestamp"]), parent)
    except (KeyError, TypeError, UnreachableError, ValueError):
        raise BadAnswer("a malformed block") from None
    if max(found.number, found.time) >= 1 << 62 or {len(found.hash), len(found.parent)} != {32}:
        raise BadAnswer("a malformed block")
    return found
