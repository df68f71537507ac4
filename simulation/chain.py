"""A chain in this process: the compiled contracts in an EVM (pyrevm), blocks by the virtual clock, forks and a
sequencer that may halt, delay and drop.

The EVM knows the hash of a block by its number alone, so that a fork would change nothing. Contracts are therefore
deployed with BLOCKHASH replaced by BALANCE, byte for byte, and the balance of address n is the hash of block n. The
contract of EIP-2935 reads balances too. Gas is counted but costs nothing.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyrevm
import rlp  # type: ignore[import-untyped]

from protocol.encoding import keccak
from protocol.signing import recover

BLOCK_SECONDS = 4
_REACH, _HISTORY_REACH = 256, 8191  # blocks whose hashes BLOCKHASH and EIP-2935 know
_HISTORY, _HISTORY_OFFSET = "0x0000F90827F1C53a10cb7A02335B175320002935", 1 << 80
# PUSH0 CALLDATALOAD, PUSH11 offset ADD, BALANCE, PUSH0 MSTORE, PUSH1 32 PUSH0 RETURN
_HISTORY_CODE = bytes.fromhex(f"5f356a{_HISTORY_OFFSET:022x}01315f5260205ff3")
_GAS_LIMIT = 60_000_000
_BASE_FEE = 1_000_000
_BLOCKHASH, _BALANCE, _PUSH1, _PUSH32 = 0x40, 0x31, 0x60, 0x7F
_OUTPUT = re.compile(r"output: 0x([0-9a-f]*)")


@dataclass
class Transaction:
    """A decoded type 2 transaction."""

    hash: str
    sender: str
    nonce: int
    tip: int
    most: int
    gas: int
    to: str
    value: int
    data: bytes
    arrived: int = 0

    @classmethod
    def decode(cls, raw: bytes) -> "Transaction":
        """Decode signed bytes. Raises ValueError."""
        fields = rlp.decode(raw[1:])
        unsigned, (parity, r, s) = fields[:9], fields[9:]
        digest = keccak(b"\x02" + rlp.encode(unsigned))
        signature = r.rjust(32, b"\0") + s.rjust(32, b"\0") + bytes([27 + int.from_bytes(parity, "big")])
        nonce, tip, most, gas = (int.from_bytes(field, "big") for field in unsigned[1:5])
        to = "0x" + unsigned[5].hex() if unsigned[5] else ""
        value = int.from_bytes(unsigned[6], "big")
        sender = recover(digest, signature)
        return cls("0x" + keccak(raw).hex(), sender, nonce, tip, most, gas, to, value, unsigned[7])


@dataclass
class Block:
    """A block, and what is needed to withdraw it: the EVM's `checkpoint` and account nonces before it."""

    number: int
    time: int
    parent: str
    hash: str
    checkpoint: Any
    nonces: dict[str, int]
    transactions: list[Transaction] = field(default_factory=list)
    receipts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def logs(self) -> list[dict[str, Any]]:
        return [log for receipt in self.receipts for log in receipt["logs"]]

    def document(self) -> dict[str, Any]:
        return {
            "number": hex(self.number),
            "hash": self.hash,
            "parentHash": self.parent,
            "timestamp": hex(self.time),
            "baseFeePerGas": hex(_BASE_FEE),
            "transactions": [transaction.hash for transaction in self.transactions],
        }


class RpcRefusal(Exception):
    """A JSON-RPC error: its code, message and revert data."""

    def __init__(self, message: str, code: int = -32000, data: str | None = None) -> None:
        super().__init__(message)
        self.document = {"code": code, "message": message} | ({"data": data} if data is not None else {})


class Sequencer:
    """Which waiting transactions a block takes. `halted`: no block is made at all."""

    def __init__(self, random: Random) -> None:
        self.random, self.halted = random, False
        self.delay = self.drop = 0.0  # of each transaction, at each block

    def choose(self, waiting: list[Transaction], nonces: dict[str, int]) -> tuple[list[Transaction], list[Transaction]]:
        """Return what the next block takes, in order, and what is forgotten."""
        taken, dropped = list[Transaction](), list[Transaction]()
        following = dict(nonces)
        for transaction in sorted(waiting, key=lambda one: (one.nonce, -one.tip, one.arrived)):
            if transaction.nonce != following.get(transaction.sender, 0):
                continue
            fate = self.random.random()
            if fate < self.drop:
                dropped.append(transaction)
            elif fate >= self.drop + self.delay:
                taken.append(transaction)
                following[transaction.sender] = transaction.nonce + 1
        return taken, dropped


class Chain:
    """The chain and its JSON-RPC. `clock` gives Unix seconds."""

    def __init__(self, chain_id: int, clock: Callable[[], float], random: Random) -> None:
        self.chain_id, self.clock, self.random = chain_id, clock, random
        self.sequencer = Sequencer(random)
        config = pyrevm.CfgEnv(chain_id=chain_id)
        self._evm = pyrevm.EVM(spec_id="PRAGUE", env=pyrevm.Env(cfg=config, block=self._environment(0, int(clock()))))
        self._nonces: dict[str, int] = {}
        self._waiting: dict[str, Transaction] = {}
        self._receipts: dict[str, dict[str, Any]] = {}
        self._transactions: dict[str, Transaction] = {}
        self._reasons: dict[str, str] = {}
        self._arrivals = 0
        self.blocks: list[Block] = []
        self._by_hash: dict[str, Block] = {}
        self.executed = 0
        self._evm.insert_account_info(_HISTORY, pyrevm.AccountInfo(nonce=1, code=_HISTORY_CODE))
        self._append(int(clock()), [])

    @property
    def head(self) -> Block:
        return self.blocks[-1]

    def sender_of(self, tx_hash: str) -> str:
        return self._transactions[tx_hash].sender

    def set_balance(self, address: str, wei: int) -> None:
        self._evm.set_balance(address, wei)

    # Blocks

    def mine(self) -> None:
        """Make one block, unless the sequencer has halted."""
        if self.sequencer.halted:
            return
        taken, dropped = self.sequencer.choose(list(self._waiting.values()), self._nonces)
        for transaction in dropped:
            del self._waiting[transaction.hash]
        self._append(max(int(self.clock()), self.head.time + 1), taken)

    def reorganise(self, depth: int, lose: float) -> int:
        """Replace the newest `depth` blocks by empty ones and one more; each of their transactions is lost with
        probability `lose`, and waits again otherwise. Return how many blocks were replaced."""
        depth = min(depth, len(self.blocks) - 1)
        gone = self.blocks[len(self.blocks) - depth :]
        if not gone:
            return 0
        self._evm.snapshot()
        self._evm.revert(gone[0].checkpoint)
        self._nonces = dict(gone[0].nonces)
        del self.blocks[len(self.blocks) - depth :]
        for block in gone:
            del self._by_hash[block.hash]
            self._set_hash(block.number, 0)
            self._set_hash(block.number + _HISTORY_OFFSET, 0)
            for transaction in block.transactions:
                self._receipts.pop(transaction.hash, None)
                if self.random.random() >= lose:
                    self._waiting[transaction.hash] = transaction
        for block in gone:
            self._append(block.time, [])
        self._append(max(int(self.clock()), self.head.time + 1), [])
        return depth

    def _append(self, time: int, transactions: list[Transaction]) -> None:
        number, parent = len(self.blocks), self.blocks[-1].hash if self.blocks else "0x" + "00" * 32
        if number:
            for offset, reach in ((0, _REACH), (_HISTORY_OFFSET, _HISTORY_REACH)):
                self._set_hash(offset + number - 1, int(parent, 16))
                if number > reach:
                    self._set_hash(offset + number - 1 - reach, 0)
        self._evm.set_block_env(self._environment(number, time))
        block = Block(number, time, parent, "", self._checkpoint(), dict(self._nonces))
        for transaction in transactions:
            self._waiting.pop(transaction.hash, None)
            if transaction.nonce != self._nonces.get(transaction.sender, 0):
                continue
            self._nonces[transaction.sender] = transaction.nonce + 1
            block.transactions.append(transaction)
            block.receipts.append(self._executed(transaction, block))
        hashes = "".join(transaction.hash for transaction in block.transactions)
        content = f"{parent} {number} {time} {hashes} {self.random.random()}"
        block.hash = "0x" + hashlib.sha256(content.encode()).hexdigest()
        index = 0
        for receipt in block.receipts:
            receipt["blockHash"] = block.hash
            for log in receipt["logs"]:
                log |= {"blockHash": block.hash, "logIndex": hex(index)}
                index += 1
        # What another transaction took the nonce of is gone.
        for waiting in [w for w in self._waiting.values() if w.nonce < self._nonces.get(w.sender, 0)]:
            del self._waiting[waiting.hash]
        self.blocks.append(block)
        self._by_hash[block.hash] = block

    def _executed(self, transaction: Transaction, block: Block) -> dict[str, Any]:
        self.executed += 1
        created, failed, logs = None, "", list[Any]()
        try:
            if transaction.to:
                self._call(transaction.sender, transaction.to, transaction.data, transaction.value, transaction.gas)
            else:
                created = self._evm.deploy(transaction.sender, transaction.data, gas=transaction.gas)
                code = with_balance_for_hash(self._evm.get_code(created) or b"")
                self._evm.insert_account_info(created, pyrevm.AccountInfo(nonce=1, code=code))
            logs = self._result.logs
        except RpcRefusal as refusal:
            failed = str(refusal.document.get("data", "0x"))
            self._reasons[transaction.hash] = failed
        common = {"transactionHash": transaction.hash, "blockNumber": hex(block.number), "transactionIndex": "0x0"}
        receipt = common | {
            "status": "0x0" if failed else "0x1",
            "gasUsed": hex(self._result.gas_used),
            "effectiveGasPrice": hex(_BASE_FEE),
            "contractAddress": created,
            "logs": [
                common
                | {
                    "address": log.address.lower(),
                    "topics": list(log.topics),
                    "data": "0x" + log.data[1].hex(),
                    "blockTimestamp": hex(block.time),
                    "removed": False,
                }
                for log in logs
            ],
        }
        self._receipts[transaction.hash] = receipt
        return receipt

    def _call(self, sender: str, to: str, data: bytes, value: int = 0, gas: int = _GAS_LIMIT) -> bytes:
        self._evm.reset_transient_storage()
        try:
            return bytes(self._evm.message_call(sender, to, calldata=data, value=value, gas=gas))
        except RuntimeError as error:
            text = str(error)
            found = _OUTPUT.search(text)
            if found is None:
                raise RpcRefusal(f"execution reverted: {text[:80]}", 3, "0x") from None
            raise RpcRefusal("execution reverted", 3, "0x" + found[1]) from None

    @property
    def _result(self) -> Any:
        return self._evm.result

    def _checkpoint(self) -> Any:
        checkpoint = self._evm.snapshot()
        self._evm.commit()  # lowers the depth again, which limits calls; the checkpoint stays usable
        return checkpoint

    def _undone(self, call: Callable[[], Any]) -> Any:
        """Return what a call returns, and undo what it did."""
        checkpoint = self._evm.snapshot()
        try:
            return call()
        finally:
            self._evm.revert(checkpoint)

    def _environment(self, number: int, time: int) -> Any:
        return pyrevm.BlockEnv(
            number=number, timestamp=time, basefee=0, gas_limit=_GAS_LIMIT, prevrandao=bytes(32), difficulty=0
        )

    def _set_hash(self, number: int, value: int) -> None:
        self._evm.set_balance(f"0x{number:040x}", value)

    # JSON-RPC

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request."""
        document: dict[str, Any] = {"jsonrpc": "2.0", "id": request.get("id")}
        try:
            method: Any = getattr(self, "_" + request["method"], None)
            if method is None:
                raise RpcRefusal(f"the method {request['method']} does not exist", -32601)
            return document | {"result": method(*request["params"])}
        except RpcRefusal as refusal:
            return document | {"error": refusal.document}

    def _eth_chainId(self) -> str:
        return hex(self.chain_id)

    def _eth_blockNumber(self) -> str:
        return hex(self.head.number)

    def _eth_gasPrice(self) -> str:
        return hex(2 * _BASE_FEE)

    def _eth_maxPriorityFeePerGas(self) -> str:
        return hex(_BASE_FEE)

    def _eth_getBalance(self, address: str, _at: str = "latest") -> str:
        return hex(self._evm.get_balance(address))

    def _eth_getCode(self, address: str, _at: str = "latest") -> str:
        code = self._evm.get_code(address) or b""
        return "0x" + code.rstrip(b"\0").hex()

    def _eth_getBlockByNumber(self, which: str, _full: bool = False) -> dict[str, Any] | None:
        if which in ("latest", "pending"):
            return self.head.document()
        number = max(0, self.head.number - 64) if which in ("safe", "finalized") else int(which, 16)
        return self.blocks[number].document() if number < len(self.blocks) else None

    def _eth_getTransactionCount(self, address: str, at: str = "latest") -> str:
        count = self._nonces.get(address, 0)
        if at == "pending":
            waiting = {transaction.nonce for transaction in self._waiting.values() if transaction.sender == address}
            while count in waiting:
                count += 1
        return hex(count)

    def _eth_getTransactionByHash(self, tx_hash: str) -> dict[str, Any] | None:
        known = tx_hash in self._waiting or tx_hash in self._receipts
        return {"hash": tx_hash, "nonce": hex(self._transactions[tx_hash].nonce)} if known else None

    def _eth_getTransactionReceipt(self, tx_hash: str) -> dict[str, Any] | None:
        return self._receipts.get(tx_hash)

    def _eth_sendRawTransaction(self, raw: str) -> str:
        try:
            transaction = Transaction.decode(bytes.fromhex(raw[2:]))
        except (ValueError, IndexError) as error:
            raise RpcRefusal(f"invalid transaction: {error}") from None
        if transaction.hash in self._waiting:
            raise RpcRefusal("already known")
        if transaction.nonce < self._nonces.get(transaction.sender, 0):
            raise RpcRefusal("nonce too low")
        for other in list(self._waiting.values()):
            if (other.sender, other.nonce) == (transaction.sender, transaction.nonce):
                if transaction.tip * 10 < other.tip * 11:
                    raise RpcRefusal("replacement transaction underpriced")
                del self._waiting[other.hash]
        self._arrivals += 1
        transaction.arrived = self._arrivals
        self._waiting[transaction.hash] = self._transactions[transaction.hash] = transaction
        return transaction.hash

    def _eth_call(self, call: dict[str, Any], at: str = "latest") -> str:
        data, sender = bytes.fromhex(call.get("data", "0x")[2:]), call.get("from", "0x" + "00" * 20)
        if at not in ("latest", "pending"):  # state of the past is kept for one question: why a transaction failed
            block = int(at, 16)
            for past in self.blocks[block : block + 2]:
                for transaction in past.transactions:
                    same = (transaction.sender.lower(), transaction.data) == (sender.lower(), data)
                    if same and transaction.hash in self._reasons:
                        raise RpcRefusal("execution reverted", 3, self._reasons[transaction.hash])
            if any(later.transactions for later in self.blocks[block + 1 :]):
                raise RpcRefusal("the state of that block is not kept")
        value = int(call.get("value", "0x0"), 16)
        answer: bytes = self._undone(lambda: self._call(sender, call["to"], data, value))
        return "0x" + answer.hex()

    def _eth_estimateGas(self, call: dict[str, Any], at: str = "latest") -> str:
        def run() -> int:
            if at == "pending":
                for waiting in sorted(self._waiting.values(), key=lambda one: (one.nonce, one.arrived)):
                    try:
                        self._call(waiting.sender, waiting.to, waiting.data, waiting.value, waiting.gas)
                    except RpcRefusal:
                        continue
            data = bytes.fromhex(call.get("data", "0x")[2:])
            if "to" not in call:
                self._evm.deploy(call["from"], data)
            else:
                self._call(call["from"], call["to"], data, int(call.get("value", "0x0"), 16))
            return int(self._result.gas_used)

        return hex(self._undone(run) + 30_000)  # accounts are warm from one transaction to the next here

    def _eth_getLogs(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        if "blockHash" in query:
            block = self._by_hash.get(query["blockHash"])
            if block is None:
                raise RpcRefusal("unknown block")
            blocks = [block]
        else:
            first, last = int(query["fromBlock"], 16), int(query["toBlock"], 16)
            if last > self.head.number:
                raise RpcRefusal("block range extends beyond current head block")
            blocks = self.blocks[first : last + 1]
        wanted = {address.lower() for address in query["address"]}
        return [log for block in blocks for log in block.logs if log["address"] in wanted]


def with_balance_for_hash(code: bytes) -> bytes:
    """Return runtime code whose BLOCKHASH instructions ask for a balance instead."""
    out, at = bytearray(code), 0
    while at < len(code):
        instruction = code[at]
        if instruction == _BLOCKHASH:
            out[at] = _BALANCE
        at += instruction - _PUSH1 + 2 if _PUSH1 <= instruction <= _PUSH32 else 1
    return bytes(out)
