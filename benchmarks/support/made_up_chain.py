"""A made-up chain of the suite's events, and the JSON-RPC endpoint that serves it, with as many faults as one asks for.

Every event is one that the contracts could emit: nodes join, submit, are settled and claim. A block is a pure function
of its parent and of the branch it lies on, so that a reorganisation gives other files, outcomes and hashes.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from eth_abi.abi import encode

from chain import abi
from chain.deployment import Deployment, Placed, TokenInfo
from chain.indexer.records import Terms, pack_work
from protocol.verdict import Code

CHAIN_ID = 31337
NODES = 1000
TENS = ("commitWindow", "revealWindow", "receiptWindow", "rate", "leverage", "appealWindow")
TERMS = Terms.of(
    dict.fromkeys((*TENS, "juryCommitWindow", "juryRevealWindow"), 10)
    | {
        "committee": 3,
        "drawBlocks": 100,
        "challengeWindow": 20,
        "fee": 100,
        "group": 0,
        "auditRate": 65536,
        "maxLag": 4,
    }
    | {"jury": 5, "juryFee": 50, "minStake": 1000, "maxUnits": 100_000, "appealJury": 0, "inviteOnly": False}
    | {"configHash": b"\1" * 32}
)
PENDING, DISPUTABLE = 40, 40  # files that wait for their outcome; those after them whose refusal is not final


def address(number: int) -> str:
    return abi.checksum(f"0x{number:040x}")


def deployment() -> Deployment:
    """A suite whose contracts have small addresses."""
    placed = {
        name: Placed(address=address(index + 1), abi_sha256=abi.load(name).sha256)
        for index, name in enumerate(abi.CONTRACTS)
    }
    return Deployment(
        network="made-up",
        chain_id=CHAIN_ID,
        genesis="0x" + _digest("genesis").hex(),
        start_block=1,
        deployer=address(99),
        governance=address(99),
        token=TokenInfo(address=placed["MusterToken"].address),
        contracts=placed,
    )


def _digest(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


@cache
def _event(contract: str, name: str) -> tuple[str, str, abi.EventType]:
    """Its contract's address, its topic and its type."""
    kind = next(event for event in abi.load(contract).events.values() if event.name == name)
    return address(abi.CONTRACTS.index(contract) + 1), "0x" + kind.topic.hex(), kind


@dataclass(frozen=True)
class MadeUpBlock:
    """`files`: submitted so far, `settled`: those with an outcome; the logs lack what is the block's."""

    number: int
    hash: bytes
    parent: bytes
    files: int
    settled: int
    logs: tuple[tuple[str, list[str], str], ...]

    def header(self) -> dict[str, Any]:
        return {
            "number": hex(self.number),
            "hash": "0x" + self.hash.hex(),
            "parentHash": "0x" + self.parent.hex(),
            "timestamp": hex(1_000_000 + 2 * self.number),
        }

    def rpc_logs(self) -> list[dict[str, Any]]:
        """As `eth_getLogs` answers."""
        shared = {
            "blockNumber": hex(self.number),
            "blockHash": "0x" + self.hash.hex(),
            "blockTimestamp": hex(1_000_000 + 2 * self.number),
        }
        return [
            {"address": at, "topics": topics, "data": data, "logIndex": hex(index), **shared}
            | {"transactionHash": f"0x{self.number:032x}{index:032x}", "removed": False}
            for index, (at, topics, data) in enumerate(self.logs)
        ]


@dataclass
class MadeUpChain:
    """Blocks from the genesis on; each submits `files` files, of `nodes` nodes in turn, and settles as many older
    ones."""

    files: int = 2
    nodes: int = NODES
    blocks: list[MadeUpBlock] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.blocks:
            self.blocks = [MadeUpBlock(0, bytes.fromhex(deployment().genesis[2:]), bytes(32), 0, 0, ())]

    @property
    def head(self) -> MadeUpBlock:
        return self.blocks[-1]

    def grown(self, count: int) -> "MadeUpChain":
        """This chain, once it has `count` blocks more."""
        self.grow(count)
        return self

    def grow(self, count: int, branch: int = 0) -> None:
        """Mine `count` blocks of a branch."""
        for _ in range(count):
            self.blocks.append(self._next(self.head, branch))

    def fork(self, depth: int, count: int, branch: int) -> None:
        """Replace the last `depth` blocks (never the genesis) by `count` of another branch."""
        del self.blocks[max(1, len(self.blocks) - depth) :]
        self.grow(count, branch)

    def _next(self, parent: MadeUpBlock, branch: int) -> MadeUpBlock:
        number, seed = parent.number + 1, _digest(parent.hash, branch)
        files = parent.files if number == 1 else parent.files + (self.files if branch == 0 else 1 + seed[0] % 4)
        settled = max(parent.settled, files - PENDING)
        logs = tuple(_founding(self.nodes) if number == 1 else _work(parent, files, settled, seed, self.nodes))
        return MadeUpBlock(number, seed, parent.hash, files, settled, logs)


def _log(contract: str, name: str, *indexed: int | str, plain: tuple[Any, ...] = ()) -> tuple[str, list[str], str]:
    at, topic, kind = _event(contract, name)
    words = [int(argument, 16) if isinstance(argument, str) else argument for argument in indexed]
    return at, [topic, *(f"0x{word:064x}" for word in words)], "0x" + encode(kind.plain.types, plain).hex()


def _founding(nodes: int) -> Iterator[tuple[str, list[str], str]]:
    owner = address(5000)
    yield _log("Pools", "PoolCreated", 1, owner, int.from_bytes(b"\1" * 32, "big"), plain=(TERMS.as_tuple(), 9))
    yield _log("Pools", "PoolFunded", 1, owner, plain=(10**15,))
    for node in range(nodes):
        yield _log("Stakes", "NodeRegistered", address(10_000 + node), owner, plain=(5000,))
        yield _log("Pools", "NodeJoined", 1, address(10_000 + node), owner, plain=(0, 10**9))


def _work(
    parent: MadeUpBlock, files: int, settled: int, seed: bytes, nodes: int
) -> Iterator[tuple[str, list[str], str]]:
    """Submissions of sequences up to `files`, outcomes of those up to `settled`, and some claims."""
    for sequence in range(parent.files, files):
        placed = sequence << 104 | pack_work(1, 0, sequence // nodes, _units(sequence), 8)
        node = address(10_000 + sequence % nodes)
        yield _log("Pools", "WorkSubmitted", plain=(node, placed, seed, _digest(sequence, seed)))
    for sequence in range(parent.settled, settled):
        word = int(_code(sequence)) << 240 | 1_000_000 << 208
        words = [0] * (sequence & 15) + [word]
        yield _log("Pools", "FilesSettled", plain=(1 << 32 | sequence & ~15, words))
        yield _log("MusterToken", "Transfer", address(3), address(5000), plain=(10 * _units(sequence),))
    for sequence in range(max(0, parent.settled - DISPUTABLE), max(0, settled - DISPUTABLE)):
        if _code(sequence) is Code.MALFORMED:
            yield _log("Pools", "FileFinalized", plain=(1 << 32 | sequence, int(Code.MALFORMED), 0))


def _code(sequence: int) -> Code:
    return Code.MALFORMED if sequence % 8 == 5 else Code.ACCEPT


def _units(sequence: int) -> int:
    return 100 + sequence % 7


Fault = Callable[[str, list[Any]], dict[str, Any] | None]
"""(method, parameters) → an answer of its own, or None."""


@dataclass
class Endpoint:
    """Answers JSON-RPC for a chain; at most `most` logs at once. `fault` may answer first."""

    chain: MadeUpChain
    most: int = 10_000
    fault: Fault = lambda method, params: None

    def answer(self, body: Any) -> Any:
        """The JSON-RPC document for one of requests."""
        if isinstance(body, list):
            return [self._one(request) for request in body]
        return self._one(body)

    def _one(self, request: dict[str, Any]) -> dict[str, Any]:
        method, params = request["method"], request["params"]
        answer = self.fault(method, params) or self._honest(method, params)
        return {"jsonrpc": "2.0", "id": request["id"], **answer}

    def _honest(self, method: str, params: list[Any]) -> dict[str, Any]:
        blocks = self.chain.blocks
        if method == "eth_chainId":
            return {"result": hex(CHAIN_ID)}
        if method == "eth_getBlockByNumber":
            number = len(blocks) - 1 if params[0] == "latest" else int(params[0], 16)
            return {"result": blocks[number].header() if number < len(blocks) else None}
        query = params[0]
        if "blockHash" in query:
            wanted = bytes.fromhex(query["blockHash"][2:])
            block = next((block for block in reversed(blocks) if block.hash == wanted), None)
            return {"result": block.rpc_logs()} if block else {"error": {"code": -32000, "message": "unknown block"}}
        part = blocks[int(query["fromBlock"], 16) : int(query["toBlock"], 16) + 1]
        if len(part) > 1 and sum(len(block.logs) for block in part) > self.most:
            return {"error": {"code": -32602, "message": f"query returned more than {self.most} results"}}
        return {"result": [log for block in part for log in block.rpc_logs()]}
