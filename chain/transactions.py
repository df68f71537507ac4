"""Transactions: priced, signed, sent, tracked until they are mined, and their receipts checked.

A transaction may be dropped, stuck behind a gap, outbid, or mined in a block that a reorganisation removes. While its
receipt is awaited these are repaired. If another transaction took the nonce, the call starts again, because the first
signature can then never be mined.
"""

import logging
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from chain.errors import ContractError, TransactionError
from chain.rpc import BadAnswer, ChainReader, ErrorKind, Request, RpcError, number
from protocol.accounts import LocalAccount
from protocol.errors import ConfigError, MusterError, UnreachableError
from protocol.waits import WAITS

log = logging.getLogger("muster.chain")

SETTING = "MUSTER_MAX_GAS_PRICE"  # Environment variable: the limit in gwei, such as 0.5
GWEI = 10**9
DEFAULT_LIMIT = 10 * GWEI  # Hundreds of times what Base takes on most days
_MOST_GWEI = 10**9


@dataclass(frozen=True)
class Price:
    """Fees of a type 2 transaction, wei per gas."""

    most: int
    tip: int

    def raised(self, floor: "Price") -> "Price":
        """Return a price that replaces a transaction (nodes ask for 10% more), and no less than `floor`."""
        return Price(max(self.most * 5 // 4 + 1, floor.most), max(self.tip * 5 // 4 + 1, floor.tip))


def price_limit() -> int:
    """Return the limit in wei per gas. Raises ConfigError for a setting that is no positive number of gwei."""
    given = os.environ.get(SETTING)
    if given is None:
        return DEFAULT_LIMIT
    try:
        gwei = Decimal(given)
    except InvalidOperation:
        gwei = Decimal("nan")
    if not (gwei.is_finite() and 0 < gwei <= _MOST_GWEI and int(gwei * GWEI) > 0):
        hint = f"set it to one such as 10, or unset {SETTING}"
        raise ConfigError(f"{SETTING} is {given[:40]!r}, no number of gwei", hint)
    return int(gwei * GWEI)


def price_of(block: Any, tip: Any, limit: int) -> Price:
    """Return twice the base fee, so that six full blocks in a row do not price us out, plus the node's suggested tip.
    Raises BadAnswer, for another endpoint to be asked, where there is no block or the price is beyond `limit` wei per
    gas."""
    if isinstance(block, RpcError) or not isinstance(block, dict):
        what = "the chain's endpoint does not return its latest block"
        raise BadAnswer(what, TransactionError(what, "check the endpoint"))
    try:
        base = number(block.get("baseFeePerGas") or "0x3b9aca00")
        suggested = 1_000_000 if isinstance(tip, RpcError) else number(tip)
    except UnreachableError as error:
        raise BadAnswer(error.what, error) from None
    price = Price(2 * base + suggested, suggested)
    if price.most > limit:
        what = f"the chain's endpoint asks {_gwei(price.most)} gwei per gas, the limit is {_gwei(limit)}"
        hint = f"wait, name another RPC URL, or set {SETTING} higher if gas costs that much now"
        raise BadAnswer(what, TransactionError(what, hint))
    return price


def _gwei(wei: int) -> str:
    return f"{Decimal(wei) / GWEI:.6g}"


# Calls and receipts


@dataclass(frozen=True)
class Call:
    """A call of a contract, named by `label` in messages, e.g. `Pools.submit`. An empty `to` creates a contract.
    `pending`: gas is estimated on top of what is not mined yet, so that all can be in one block. `lasting`: it still
    means what it meant after a reorganisation took it off the chain, so it may be mined again."""

    to: str
    data: bytes
    label: str
    value: int = 0
    pending: bool = False
    lasting: bool = True

    def fields(self, sender: str) -> dict[str, Any]:
        """As an RPC wants it."""
        to = {"to": self.to} if self.to else {}
        return to | {"data": "0x" + self.data.hex(), "value": hex(self.value), "from": sender}


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
    """A transaction under way, with the hashes of all its offers. `started`, and `priced` (its newest offer), in
    monotonic seconds; `orphaned` counts how often its nonce was found taken without a receipt of ours."""

    call: Call
    gas: int
    price: Price
    nonce: int
    hashes: list[str]
    started: float
    priced: float
    orphaned: int = 0


def receipt_of(raw: dict[str, Any]) -> tuple[Receipt, bool]:
    """Parse a receipt of JSON-RPC; return it, and whether its transaction succeeded. Raises UnreachableError for a
    malformed one."""
    try:
        used = number(raw["gasUsed"])
        fee = used * number(raw.get("effectiveGasPrice", "0x0")) + number(raw.get("l1Fee") or "0x0")
        created, logs = raw.get("contractAddress"), list(raw["logs"])
        receipt = Receipt(raw["transactionHash"], number(raw["blockNumber"]), used, fee, created, logs)
        return receipt, number(raw["status"]) == 1
    except (KeyError, TypeError, ValueError):
        raise UnreachableError("the chain's endpoint returns a malformed receipt", "check the endpoint") from None


_PRICE_REQUESTS: list[Request] = [("eth_getBlockByNumber", ["latest", False]), ("eth_maxPriorityFeePerGas", [])]
_CHECK_EVERY = 2.0
_SLOWEST_POLL = 1.0
_LOW_BALANCE = 20  # transactions
_REMEMBERED = 256


class Sender:
    """Sends as one account, at prices up to `price_limit`. `bump_after`: seconds until a transaction that is not mined
    is outbid by our own replacement. Thread-safe."""

    def __init__(self, chain: ChainReader, account: LocalAccount, *, poll: float, bump_after: float) -> None:
        self._chain = chain
        self._account = account
        self._poll = poll
        self._bump_after = bump_after
        self._limit = price_limit()
        self._warned = 0.0
        # Held from the choice of a nonce until its transaction was handed to the chain.
        self._lock = threading.RLock()
        self._in_flight: set[int] = set()
        self._sent: OrderedDict[int, tuple[Call, bytes]] = OrderedDict()  # nonce → the last transaction with it

    def send(self, call: Call, gas: int | None = None, timeout: float = 120.0) -> Receipt:
        """Send and wait for the receipt. Raises ContractError when the call would be or was refused, TransactionError
        when it cannot be sent or was not mined within `timeout` seconds (it may be later), UnreachableError when no
        endpoint answers."""
        limit, price = self._prepare(call, gas)
        pending = self._launch(call, limit, price)
        try:
            with WAITS.on(f"{call.label} to be mined"):
                return self._await(pending, timeout)
        finally:
            self._done([pending])

    def send_all(self, calls: Sequence[tuple[Call, int]], timeout: float = 300.0) -> Iterator[Receipt]:
        """Send calls with given gas limits one right after the other, then yield their receipts in order. The first
        failure is raised when its turn comes."""
        _, price = self._prepare(calls[0][0], sum(gas for _, gas in calls))
        all_pending = list[PendingTransaction]()
        try:
            for call, gas in calls:
                all_pending.append(self._launch(call, gas, price))
            for pending in all_pending:
                with WAITS.on(f"{pending.call.label} to be mined"):
                    yield self._await(pending, timeout)
        finally:
            self._done(all_pending)

    # Before

    def _prepare(self, call: Call, gas: int | None) -> tuple[int, Price]:
        requests = [*_PRICE_REQUESTS, ("eth_getBalance", [self._account.address, "latest"])]
        if gas is None:
            at = ["pending"] if call.pending else []
            requests.append(("eth_estimateGas", [call.fields(self._account.address), *at]))
        price, balance, *estimate = self._chain.batch(requests, self._priced)
        if gas is None:
            if isinstance(estimate[0], RpcError):
                raise self._refusal(call, estimate[0])
            # State may change until it is mined: a first vote also draws, a last one settles.
            gas = number(estimate[0]) * 5 // 4 + 30_000
        if not isinstance(balance, RpcError):
            self._check_balance(number(balance), gas * price.most + call.value)
        return gas, price

    def _priced(self, answers: list[Any]) -> list[Any]:
        block, tip, *rest = answers
        return [price_of(block, tip, self._limit), *rest]

    def _check_balance(self, balance: int, need: int) -> None:
        address, ether = self._account.address, balance / 1e18
        if balance < need:
            what = f"{address} has {ether:.6f} ETH for gas and needs {need / 1e18:.6f}"
            raise TransactionError(what, "send some ETH to it")
        if balance < _LOW_BALANCE * need and time.monotonic() - self._warned > 600:
            self._warned = time.monotonic() or 1.0
            enough = "%s has %.6f ETH left, gas for about %d transactions: send more soon"
            log.warning(enough, address, ether, balance // max(need, 1))

    def _refusal(self, call: Call, error: RpcError) -> MusterError:
        if error.reverted:
            return ContractError(call.label, error.data)
        if error.kind is ErrorKind.NO_FUNDS:
            return self._too_poor()
        return TransactionError(f"{call.label} cannot be priced: {error.message}", "check the deployment and arguments")

    def _too_poor(self) -> TransactionError:
        return TransactionError(f"{self._account.address} has too little ETH for gas", "send some ETH to it")

    # Launch

    def _launch(self, call: Call, gas: int, price: Price) -> PendingTransaction:
        # Signatures are deterministic: without a random part, the same call at the same nonce from another program with
        # this key (or at a nonce that the node counts late) would have our hash, and pass for our own transaction.
        gas += secrets.randbelow(4096)
        with self._lock:
            nonce = max(self._in_flight) + 1 if self._in_flight else self._pending_count()
            for _ in range(8):
                raw, tx_hash = self._sign(call, gas, price, nonce)
                if self._broadcast(raw, tx_hash):
                    self._remember(nonce, call, raw)
                    now = time.monotonic()
                    return PendingTransaction(call, gas, price, nonce, [tx_hash], now, now)
                nonce = max(self._pending_count(), nonce + 1)
        what = f"{call.label}: nonces of {self._account.address} keep being taken"
        raise TransactionError(what, "is another program using this key?")

    def _remember(self, nonce: int, call: Call, raw: bytes) -> None:
        self._in_flight.add(nonce)
        self._sent[nonce] = call, raw
        self._sent.move_to_end(nonce)
        while len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)

    def _done(self, transactions: Sequence[PendingTransaction]) -> None:
        with self._lock:
            self._in_flight.difference_update(pending.nonce for pending in transactions)

    def _sign(self, call: Call, gas: int, price: Price, nonce: int) -> tuple[bytes, str]:
        fields: dict[str, Any] = {
            "type": 2,
            "chainId": self._chain.provider.chain_id,
            "nonce": nonce,
            "value": call.value,
            "data": call.data,
            "gas": gas,
            "maxFeePerGas": price.most,
            "maxPriorityFeePerGas": price.tip,
        }
        if call.to:
            fields["to"] = call.to
        signed = self._account.sign_transaction(fields)
        return bytes(signed.raw_transaction), "0x" + bytes(signed.hash).hex()

    def _broadcast(self, raw: bytes, tx_hash: str) -> bool:
        """Hand over; False when the nonce belongs to another transaction: the hash decides, since after a lost answer
        it belongs to this one."""
        try:
            self._chain.number("eth_sendRawTransaction", "0x" + raw.hex())
            return True
        except RpcError as error:
            if error.kind is ErrorKind.KNOWN_TRANSACTION:
                return True
            if error.kind is ErrorKind.NONCE_USED:
                return isinstance(self._chain.batch([("eth_getTransactionByHash", [tx_hash])])[0], dict)
            if error.kind is ErrorKind.NO_FUNDS:
                raise self._too_poor() from None
            raise TransactionError(f"the chain refuses the transaction: {error.message}", tx_hash=tx_hash) from None

    # Until mined

    def _await(self, pending: PendingTransaction, timeout: float) -> Receipt:
        deadline = pending.started + timeout
        next_check, next_log = pending.started + _CHECK_EVERY, pending.started + 10.0
        while True:
            raw = self._receipt(pending)
            if raw is not None:
                receipt, succeeded = receipt_of(raw)
                if not succeeded:
                    raise self._why(pending, receipt)
                return receipt
            now = time.monotonic()
            if now > deadline:
                tx_hash = pending.hashes[-1]
                what = f"{pending.call.label} was not mined within {timeout:.0f} s ({tx_hash})"
                raise TransactionError(what, "it may be later: look before sending it again", tx_hash)
            if now >= next_check:
                self._track(pending)
                next_check = now + _CHECK_EVERY
            if now - pending.priced > self._bump_after:
                self._bump(pending)
            if now >= next_log:
                log.info("waiting for %s to be mined (%s)", pending.call.label, pending.hashes[-1])
                next_log = now + 10.0
            time.sleep(max(self._poll, min(_SLOWEST_POLL, (now - pending.started) / 4)))

    def _receipt(self, pending: PendingTransaction) -> dict[str, Any] | None:
        for answer in self._chain.batch([("eth_getTransactionReceipt", [h]) for h in pending.hashes]):
            if isinstance(answer, dict):
                return answer
        return None

    def _why(self, pending: PendingTransaction, receipt: Receipt) -> ContractError:
        fields = pending.call.fields(self._account.address) | {"gas": hex(pending.gas)}
        for block in (receipt.block - 1, receipt.block):
            answer = self._chain.batch([("eth_call", [fields, hex(block)])])[0]
            if isinstance(answer, RpcError) and answer.data:
                return ContractError(pending.call.label, answer.data, receipt.tx_hash)
        return ContractError(pending.call.label, b"", receipt.tx_hash)

    def _track(self, pending: PendingTransaction) -> None:
        counting = "eth_getTransactionCount", [self._account.address, "latest"]
        count, found_transaction = self._chain.batch([counting, ("eth_getTransactionByHash", [pending.hashes[-1]])])
        if isinstance(count, RpcError) or isinstance(found_transaction, RpcError):
            return
        if number(count) > pending.nonce:
            # Mined between two looks, or its nonce went to another transaction: look once more before concluding.
            pending.orphaned += 1
            if found_transaction is None and pending.orphaned >= 2 and self._receipt(pending) is None:
                self._relaunch(pending)
            return
        pending.orphaned = 0
        with self._lock:
            for nonce in range(max(number(count), pending.nonce - 16), pending.nonce):
                self._refill(nonce, pending.price)
            if found_transaction is None:
                log.warning("%s was dropped by the chain; sending it again", pending.call.label)
                _, raw = self._sent.get(pending.nonce, (None, None))
                if raw is not None:
                    self._broadcast(raw, pending.hashes[-1])

    def _refill(self, nonce: int, price: Price) -> None:
        """Fill a gap before a transaction with what was mined there, or with an empty transaction where that could be
        wrong by now: its sender reads the chain and sends what is right."""
        if nonce in self._in_flight:
            return
        call, raw = self._sent.get(nonce, (None, b""))
        if call is None or not call.lasting:
            raw, _ = self._sign(Call(self._account.address, b"", "filler"), 21_000, price, nonce)
        try:
            self._chain.number("eth_sendRawTransaction", "0x" + raw.hex())
        except (ContractError, RpcError) as error:
            log.debug("nonce %d: %s", nonce, error.what)

    def _relaunch(self, pending: PendingTransaction) -> None:
        log.warning("nonce %d went to another transaction; sending %s again", pending.nonce, pending.call.label)
        self._done([pending])
        limit, price = self._prepare(pending.call, None)
        again = self._launch(pending.call, limit, price)
        pending.nonce, pending.hashes, pending.gas, pending.price = again.nonce, again.hashes, limit, price
        pending.orphaned, pending.priced = 0, again.priced

    def _bump(self, pending: PendingTransaction) -> None:
        pending.priced = time.monotonic()
        try:
            (floor,) = self._chain.batch(_PRICE_REQUESTS, self._priced)
        except TransactionError as error:
            log.warning("%s is offered no more: %s", pending.call.label, error)
            return
        price = pending.price.raised(floor)
        if price.most > self._limit:
            log.warning("%s is not mined at %.3f gwei per gas, the limit", pending.call.label, pending.price.most / 1e9)
            return
        raw, tx_hash = self._sign(pending.call, pending.gas, price, pending.nonce)
        with self._lock:
            try:
                accepted = self._broadcast(raw, tx_hash)
            except TransactionError as error:
                log.debug("fee bump refused: %s", error)
                return
            if accepted:
                log.info("%s is not mined; offering %.3f gwei per gas", pending.call.label, price.most / 1e9)
                self._remember(pending.nonce, pending.call, raw)
                pending.price = price
                pending.hashes.append(tx_hash)

    def _pending_count(self) -> int:
        return self._chain.number("eth_getTransactionCount", self._account.address, "pending")
