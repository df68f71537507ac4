"""What web3's contract classes cost against chain/'s own, per call, without a chain (docs/architecture.md says why).

Keys: `microseconds` of processor time, [ours, web3's] per case; `contract_milliseconds` to make web3's object of the
Pools contract. A quick run repeats calls less often.
"""

import json
import time
import timeit
from collections.abc import Callable
from typing import Any

from eth_abi.abi import encode
from web3 import Web3
from web3.providers.base import JSONBaseProvider
from web3.types import RPCEndpoint, RPCResponse

from chain import abi
from chain.abi import abi_folder
from chain.indexer.logs import accepted

ADDRESS = Web3.to_checksum_address("0x" + "11" * 20)
HASH = "0x" + "22" * 32


class Answers(JSONBaseProvider):
    """Gives every method its one answer, at once."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__()
        self.answers = answers

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        return {"jsonrpc": "2.0", "id": 1, "result": self.answers[method]}


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    pools = abi.load("Pools")
    submit, view, event = (
        pools["submit"],
        pools["accountOf"],
        next(one for one in pools.events.values() if one.name == "WorkSubmitted"),
    )
    topics = [event.topic]
    data = encode(event.plain.types, [ADDRESS, 1, b"\1" * 32, b"\2" * 32])
    log = {"address": ADDRESS, "topics": ["0x" + one.hex() for one in topics], "data": "0x" + data.hex()}
    log |= {"blockNumber": "0x5", "blockHash": HASH, "transactionHash": HASH, "transactionIndex": "0x0"}
    log |= {"logIndex": "0x1", "blockTimestamp": "0x1"}
    answer = encode(["uint256"], [1]) * len(view.outputs.components[0]["components"])
    w3 = Web3(Answers({"eth_call": "0x" + answer.hex(), "eth_getLogs": [log]}), middleware=[])
    started = time.process_time()
    contract = w3.eth.contract(address=ADDRESS, abi=json.loads((abi_folder() / "Pools.json").read_text()))
    made = time.process_time() - started
    (formatted,) = w3.eth.get_logs({})
    work = (7, (2 << 64 | 3 << 40 | 500 << 16 | 8, b"\1" * 32, b"\2" * 32))
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
    }


def _cost(call: Callable[[], Any], quick: bool) -> float:
    """Smallest of five, per call."""
    call()
    count = 20 if quick else 500
    return round(min(timeit.repeat(call, number=count, timer=time.process_time)) / count * 1e6, 1)
