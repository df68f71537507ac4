"""What web3's contract classes cost against chain/'s own, per call, without a chain (docs/architecture.md says why).

Keys: `microseconds` of processor time, [ours, web3's] per case; `contract_milliseconds` to make web3's object of the
Pools contract; `import_milliseconds` of processor time of a process that imports chain's modules, or eth_account alone;
`text`: whether each decodes an event whose string is not UTF-8; `batch`: what web3 gives for a batch in which one block
does not exist.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from eth_abi.abi import encode
from web3 import Web3
from web3.providers.base import JSONBaseProvider
from web3.types import RPCEndpoint, RPCResponse

from chain import abi
from chain.logs import accepted
from chain.resources import abi_folder

ADDRESS = Web3.to_checksum_address("0x" + "11" * 20)
HASH = "0x" + "22" * 32
_CPU = "import time, {}; print(time.process_time())"


class Answers(JSONBaseProvider):
    """Gives every method its one answer, at once."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__()
        self.answers = answers

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        return {"jsonrpc": "2.0", "id": 1, "result": self.answers[method]}

    def make_batch_request(self, requests: list[tuple[RPCEndpoint, Any]]) -> list[RPCResponse]:
        return [self.make_request(*one) for one in requests]


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    pools = abi.load("Pools")
    submit, view, event = pools["submit"], pools["accountOf"], _event(pools, "WorkSubmitted")
    topics = [event.topic, *(encode(["uint256"], [n]) for n in (7, int(ADDRESS, 16), 9))]
    data = encode(event.plain.types, [1, b"\1" * 32, b"\2" * 32])
    log = {"address": ADDRESS, "topics": ["0x" + one.hex() for one in topics], "data": "0x" + data.hex()}
    log |= {"blockNumber": "0x5", "blockHash": HASH, "transactionHash": HASH, "transactionIndex": "0x0"}
    log |= {"logIndex": "0x1", "blockTimestamp": "0x1"}
    answer = encode(["uint256"], [1]) * len(view.outputs.components[0]["components"])
    w3 = Web3(Answers({"eth_call": "0x" + answer.hex(), "eth_getLogs": [log]}), middleware=[])
    started = time.process_time()
    contract = w3.eth.contract(address=ADDRESS, abi=json.loads((abi_folder() / "Pools.json").read_text()))
    made = time.process_time() - started
    (formatted,) = w3.eth.get_logs({})
    work = (7, 2, 3, (b"\1" * 32, b"\2" * 32, 500, 8))
    cases: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "encode a call": (lambda: submit.encode(*work), lambda: contract.encode_abi("submit", list(work))),
        "encode a view, decode its answer": (
            lambda: (view.encode(7, ADDRESS), view.decode(answer)),
            lambda: contract.functions.accountOf(7, ADDRESS).call(),
        ),
        "take a log from an answer": (
            lambda: accepted([log], 5, 5, bytes.fromhex(HASH[2:])),
            lambda: w3.eth.get_logs({}),
        ),
        "decode an event": (
            lambda: event.decode(topics, data),
            lambda: contract.events.WorkSubmitted().process_log(formatted),
        ),
    }
    return {
        "microseconds": {name: [_cost(one, quick) for one in pair] for name, pair in cases.items()},
        "contract_milliseconds": round(made * 1e3, 1),
        "import_milliseconds": {name: _import_cost(name) for name in ("chain.client", "eth_account")},
        "text": _text(pools, contract),
        "batch": _batch(),
    }


def _event(pools: abi.Abi, name: str) -> abi.EventType:
    return next(one for one in pools.events.values() if one.name == name)


def _cost(call: Callable[[], Any], quick: bool) -> float:
    """Smallest of five, per call."""
    call()
    count, best = 20 if quick else 500, float("inf")
    for _ in range(5):
        started = time.process_time()
        for _ in range(count):
            call()
        best = min(best, time.process_time() - started)
    return round(best / count * 1e6, 1)


def _import_cost(name: str) -> int:
    taken = [
        float(subprocess.run([sys.executable, "-c", _CPU.format(name)], check=True, capture_output=True).stdout)
        for _ in range(3)
    ]
    return round(min(taken) * 1e3)


def _text(pools: abi.Abi, contract: Any) -> dict[str, bool]:
    event = _event(pools, "MirrorAnnounced")
    words = [encode(["uint256"], [1]) for _ in event.indexed.types]
    data = encode(["bytes" if kind == "string" else kind for kind in event.plain.types], _values(event.plain.types))
    log = {"topics": [event.topic, *words], "data": data, "address": ADDRESS, "blockHash": HASH, "blockNumber": 5}
    log |= {"logIndex": 0, "transactionIndex": 0, "transactionHash": HASH}
    return {
        "ours": _works(lambda: event.decode([event.topic, *words], data)),
        "web3": _works(lambda: contract.events.MirrorAnnounced().process_log(log)),
    }


def _values(types: list[str]) -> list[Any]:
    return [b"\xff\xfe" if kind == "string" else 1 for kind in types]


def _batch() -> str:
    w3 = Web3(Answers({"eth_blockNumber": "0x5", "eth_getBlockByNumber": None}), middleware=[])
    with w3.batch_requests() as batch:
        batch.add(w3.eth.get_block_number())
        batch.add(w3.eth.get_block(9))
        try:
            return str(batch.execute())
        except Exception as error:
            return type(error).__name__


def _works(call: Callable[[], Any]) -> bool:
    try:
        call()
    except Exception:
        return False
    return True
