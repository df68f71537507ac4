"""Transactions: priced, signed, sent, tracked until they are mined, and their receipts checked.

A transaction may be dropped, stuck behind a gap, outbid, or mined in a block that a reorganisation removes before we
look. While its receipt is awaited all of these are looked for and mended; a nonce taken by somebody else makes the call
start again, because the first signature can then never be mined.
"""

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from web3.types import BlockParams

from chain.errors import ContractError, TransactionError
from chain.jsonrpc import Request, RpcError, number
from chain.nonce import Nonces
from chain.prices import Price, price_limit, price_of
from chain.reader import ChainReader
from chain.transactions import Call, PendingTransaction, Receipt, receipt_of
from protocol.accounts import LocalAccount
from protocol.errors import MusterError
from protocol.waits import WAITS

log = logging.getLogger("muster.chain")
_CHECK_EVERY = 2.0
_LOW_BALANCE = 20


class Sender:
    """Sends as one account. Thread-safe.

    `bump_after`: seconds until a transaction that is not mined is outbid by our own replacement. No offer is beyond
    `chain.prices.price_limit`.
    """

    def __init__(self, chain: ChainReader, account: LocalAccount, *, poll: float, bump_after: float) -> None:
        self._chain = chain
        self._account = account
        self._poll = poll
        self._bump_after = bump_after
        self._limit = price_limit()
        self._nonces = Nonces(lambda: self._count("pending"))
        self._warned = 0.0

    def send(self, call: Call, gas: int | None = None, timeout: float = 120.0) -> Receipt:
        """Send and wait for the receipt.

        Raises ContractError when the call would be or was refused, TransactionError when it cannot be sent or was not
        mined within `timeout` seconds (it may still be later), UnreachableError when no endpoint answers.
        """
        limit, price = self._prepare(call, gas)
        pending = self._launch(call, limit, price)
        try:
            with WAITS.on(f"{call.label} to be mined"):
                return self._await(pending, timeout)
        finally:
            self._nonces.done(pending.nonce)

    def send_all(self, calls: Sequence[tuple[Call, int]], timeout: float = 300.0) -> Iterator[Receipt]:
        """Send calls with given gas limits one right after the other, then yield their receipts in order. For calls
        that depend on one another only by their order; the first failure is raised when its turn comes."""
        _, price = self._prepare(calls[0][0], sum(gas for _, gas in calls))
        all_pending = [self._launch(call, gas, price) for call, gas in calls]
        try:
            for pending in all_pending:
                with WAITS.on(f"{pending.call.label} to be mined"):
                    yield self._await(pending, timeout)
        finally:
            for pending in all_pending:
                self._nonces.done(pending.nonce)

    # ---- Before

    def _prepare(self, call: Call, gas: int | None) -> tuple[int, Price]:
        requests: list[Request] = [
            ("eth_getBlockByNumber", ["latest", False]),
            ("eth_maxPriorityFeePerGas", []),
            ("eth_getBalance", [self._account.address, "latest"]),
        ]
        if gas is None:
            at = ["pending"] if call.pending else []
            requests.append(("eth_estimateGas", [call.fields(self._account.address), *at]))
        price, balance, *estimate = self._chain.batch(requests, self._priced)
        if estimate:
            if isinstance(estimate[0], RpcError):
                raise self._refusal(call, estimate[0])
            # State may change until it is mined: a first vote also draws, a last one settles.
            gas = number(estimate[0]) * 5 // 4 + 30_000
        assert gas is not None
        if not isinstance(balance, RpcError):
            self._check_balance(number(balance), gas * price.most + call.value)
        return gas, price

    def _priced(self, answers: list[Any]) -> list[Any]:
        """Block and tip become a price that may be paid; the rest stays as it is."""
        block, tip, *rest = answers
        return [price_of(block, tip, self._limit), *rest]

    def _check_balance(self, balance: int, need: int) -> None:
        if balance < need:
            raise TransactionError(
                f"{self._account.address} has {balance / 1e18:.6f} ETH for gas and needs {need / 1e18:.6f}",
                "send some ETH to it",
            )
        if balance < _LOW_BALANCE * need and time.monotonic() - self._warned > 600:
            self._warned = time.monotonic() or 1.0
            log.warning(
                "%s has %.6f ETH left, gas for about %d transactions: send more soon",
                self._account.address,
                balance / 1e18,
                balance // max(need, 1),
            )

    def _refusal(self, call: Call, error: RpcError) -> MusterError:
        if error.reverted:
            return ContractError(call.label, error.data)
        if "insufficient funds" in error.message.lower():
            return self._too_poor()
        return TransactionError(f"{call.label} cannot be priced: {error.message}", "check the deployment and arguments")

    def _too_poor(self) -> TransactionError:
        return TransactionError(f"{self._account.address} has too little ETH for gas", "send some ETH to it")

    # ---- Launch

    def _launch(self, call: Call, gas: int, price: Price) -> PendingTransaction:
        # Signatures are deterministic: without a random part, the same call at the same nonce from another program with
        # this key (or at a nonce that the node counts late) would have our hash, and pass for our own transaction.
        gas += secrets.randbelow(4096)
        with self._nonces.lock:
            nonce = self._nonces.next()
            for _ in range(8):
                raw, tx_hash = self._sign(call, gas, price, nonce)
                if self._broadcast(raw, tx_hash):
                    self._nonces.sent(nonce, raw)
                    now = time.monotonic()
                    return PendingTransaction(call, gas, price, nonce, [tx_hash], now, now)
                nonce = self._nonces.after_conflict(nonce)
        raise TransactionError(
            f"{call.label}: nonces of {self._account.address} keep being taken", "is another program using this key?"
        )

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
        """Hand over; False when the nonce belongs to another transaction. A lost answer followed by a retry looks like
        one of our own transactions being known already, so the hash decides."""
        try:
            self._chain.ask("eth_sendRawTransaction", lambda eth: eth.send_raw_transaction(raw))
            return True
        except RpcError as error:
            text = error.message.lower()
            if "already known" in text or "already imported" in text or "known transaction" in text:
                return True
            if "nonce too low" in text or "underpriced" in text or "nonce is too low" in text:
                return isinstance(self._chain.batch([("eth_getTransactionByHash", [tx_hash])])[0], dict)
            if "insufficient funds" in text:
                raise self._too_poor() from None
            raise TransactionError(f"the chain refuses the transaction: {error.message}", tx_hash=tx_hash) from None

    # ---- Until mined

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
                raise TransactionError(
                    f"{pending.call.label} was not mined within {timeout:.0f} s ({pending.hashes[-1]})",
                    "it may be later: look before sending it again",
                    pending.hashes[-1],
                )
            if now >= next_check:
                self._track(pending)
                next_check = now + _CHECK_EVERY
            if now - pending.priced > self._bump_after:
                self._bump(pending)
            if now >= next_log:
                log.info("waiting for %s to be mined (%s)", pending.call.label, pending.hashes[-1])
                next_log = now + 10.0
            time.sleep(self._poll)

    def _receipt(self, pending: PendingTransaction) -> dict[str, Any] | None:
        for answer in self._chain.batch([("eth_getTransactionReceipt", [h]) for h in pending.hashes]):
            if isinstance(answer, dict):
                return answer
        return None

    def _why(self, pending: PendingTransaction, receipt: Receipt) -> ContractError:
        """The reason of a mined revert, by running the call again on the state around its block."""
        fields = pending.call.fields(self._account.address) | {"gas": hex(pending.gas)}
        for block in (receipt.block - 1, receipt.block):
            answer = self._chain.batch([("eth_call", [fields, hex(block)])])[0]
            if isinstance(answer, RpcError) and answer.data:
                return ContractError(pending.call.label, answer.data, receipt.tx_hash)
        return ContractError(pending.call.label, b"", receipt.tx_hash)

    def _track(self, pending: PendingTransaction) -> None:
        """Mend what keeps a transaction from being mined."""
        count, known = self._chain.batch(
            [
                ("eth_getTransactionCount", [self._account.address, "latest"]),
                ("eth_getTransactionByHash", [pending.hashes[-1]]),
            ]
        )
        if isinstance(count, RpcError) or isinstance(known, RpcError):
            return
        if number(count) > pending.nonce:
            # Mined between two looks, or its nonce went to another transaction: look once more before concluding.
            pending.orphaned += 1
            if known is None and pending.orphaned >= 2 and self._receipt(pending) is None:
                self._relaunch(pending)
            return
        pending.orphaned = 0
        with self._nonces.lock:
            for nonce in range(max(number(count), pending.nonce - 16), pending.nonce):
                self._refill(nonce, pending.price)
            if known is None:
                log.warning("%s was dropped by the chain; sending it again", pending.call.label)
                raw = self._nonces.remembered(pending.nonce)
                if raw is not None:
                    self._broadcast(raw, pending.hashes[-1])

    def _refill(self, nonce: int, price: Price) -> None:
        """A nonce below a waiting one that nobody waits for: without it the waiting one can never be mined."""
        if self._nonces.is_in_flight(nonce):
            return
        raw = self._nonces.remembered(nonce)
        if raw is None:
            raw, _ = self._sign(Call(self._account.address, b"", "filler"), 21_000, price, nonce)
        try:
            self._chain.ask("eth_sendRawTransaction", lambda eth: eth.send_raw_transaction(raw))
        except (ContractError, RpcError) as error:
            log.debug("nonce %d: %s", nonce, error.what)

    def _relaunch(self, pending: PendingTransaction) -> None:
        log.warning("nonce %d went to another transaction; sending %s again", pending.nonce, pending.call.label)
        self._nonces.done(pending.nonce)
        limit, price = self._prepare(pending.call, None)
        again = self._launch(pending.call, limit, price)
        pending.nonce, pending.hashes, pending.gas, pending.price = again.nonce, again.hashes, limit, price
        pending.orphaned, pending.priced = 0, time.monotonic()

    def _bump(self, pending: PendingTransaction) -> None:
        pending.priced = time.monotonic()
        asked: list[Request] = [("eth_getBlockByNumber", ["latest", False]), ("eth_maxPriorityFeePerGas", [])]
        try:
            (floor,) = self._chain.batch(asked, self._priced)
        except TransactionError as error:
            log.warning("%s is offered no more: %s", pending.call.label, error)
            return
        price = pending.price.raised(floor)
        if price.most > self._limit:
            log.warning("%s is not mined at %.3f gwei per gas, the limit", pending.call.label, pending.price.most / 1e9)
            return
        raw, tx_hash = self._sign(pending.call, pending.gas, price, pending.nonce)
        with self._nonces.lock:
            try:
                accepted = self._broadcast(raw, tx_hash)
            except TransactionError as error:
                log.debug("fee bump refused: %s", error)
                return
            if accepted:
                log.info("%s is not mined; offering %.3f gwei per gas", pending.call.label, price.most / 1e9)
                self._nonces.sent(pending.nonce, raw)
                pending.price = price
                pending.hashes.append(tx_hash)

    def _count(self, block: BlockParams) -> int:
        return self._chain.number(
            "eth_getTransactionCount", lambda eth: eth.get_transaction_count(self._account.address, block)
        )
