"""What is sent and what comes back: calls, receipts."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from chain.jsonrpc import number
from chain.prices import Price
from protocol.errors import UnreachableError

if TYPE_CHECKING:
    from web3.types import TxParams


@dataclass(frozen=True)
class Call:
    """A call of a contract: `label` names it in messages, e.g. `Pools.submit`. An empty `to` creates a contract.
    `pending`: gas is estimated on top of what others have sent and nobody has mined yet, so that all can be in one
    block."""

    to: str
    data: bytes
    label: str
    value: int = 0
    pending: bool = False

    def fields(self, sender: str) -> "TxParams":
        """As an RPC wants it."""
        to = {"to": self.to} if self.to else {}
        return cast("TxParams", to | {"data": "0x" + self.data.hex(), "value": hex(self.value), "from": sender})


@dataclass(frozen=True)
class Receipt:
    """A mined transaction. `logs` as the RPC gives them; `fee` in wei."""

    tx_hash: str
    block: int
    gas_used: int
    fee: int
    contract_address: str | None
    logs: list[dict[str, Any]] = field(repr=False)


@dataclass
class PendingTransaction:
    """A transaction under way: the hashes of all its offers, the newest last; `started` and `priced` (its newest offer)
    in monotonic seconds; `orphaned` counts how often its nonce was found taken without a receipt of ours."""

    call: Call
    gas: int
    price: Price
    nonce: int
    hashes: list[str]
    started: float
    priced: float
    orphaned: int = 0


def receipt_of(raw: dict[str, Any]) -> tuple[Receipt, bool]:
    """A receipt of JSON-RPC, and whether its transaction succeeded. Raises UnreachableError for a malformed one."""
    try:
        used = number(raw["gasUsed"])
        fee = used * number(raw.get("effectiveGasPrice", "0x0")) + number(raw.get("l1Fee") or "0x0")
        made, logs = raw.get("contractAddress"), list(raw["logs"])
        receipt = Receipt(raw["transactionHash"], number(raw["blockNumber"]), used, fee, made, logs)
        return receipt, number(raw["status"]) == 1
    except (KeyError, TypeError, ValueError):
        raise UnreachableError("the chain's endpoint returns a malformed receipt", "check the endpoint") from None
