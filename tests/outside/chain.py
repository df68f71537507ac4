"""RPC endpoints as providers run them: a made-up chain, or anvil behind a proxy, that gives the answer of the line."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.support.made_up_chain import CHAIN_ID, Endpoint, Fault, MadeUpChain, deployment
from chain import abi
from chain.client import ChainClient, View
from chain.indexer.follower import Follower
from chain.rpc import ChainReader, FailoverProvider, shown
from chain.transactions import Call
from tests.chain.conftest import SELF, gift
from tests.chain.proxy import Proxy, serve
from tests.conftest import Chain
from tests.outside.lines import Handler, Line

SEND = "eth_sendRawTransaction"
Document = Any
Refuse = Callable[[Document], tuple[int, Document] | None]


@contextmanager
def playing(
    chain: MadeUpChain, fault: Fault = lambda method, params: None, refuse: Refuse = lambda body: None
) -> Iterator[str]:
    """URL of an endpoint of the chain. `fault` may answer single requests, `refuse` whatever is sent at once."""
    endpoint = Endpoint(chain, fault=fault)

    def answer(body: Document) -> tuple[int, bytes]:
        status, document = refuse(body) or (200, endpoint.answer(body))
        return status, json.dumps(document).encode()

    server = serve(answer)
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def proxied() -> Iterator[tuple[Chain, Proxy]]:
    """A real chain, and a proxy in front of it."""
    chain = Chain().start()
    proxy = Proxy(chain.url)
    try:
        yield chain, proxy
    finally:
        proxy.close()
        chain.kill()


def made_up() -> MadeUpChain:
    return MadeUpChain(nodes=4).grown(200)


@contextmanager
def following(url: str, folder: Path) -> Iterator[Follower]:
    reader = ChainReader(FailoverProvider([url], CHAIN_ID, patience=5.0))
    follower = Follower(reader, deployment(), folder / "events.db")
    try:
        yield follower
    finally:
        follower.close()
        reader.close()


def check_events(follower: Follower, chain: MadeUpChain) -> None:
    """Poll once; all events of the chain must be there."""
    follower.poll()
    found = [(event.block, event.log_index) for event in follower.history()]
    assert found == [(block.number, index) for block in chain.blocks for index in range(len(block.logs))]


def _log_range(line: Line, folder: Path) -> None:
    given, chain, sizes = line["input"], made_up(), list[int]()
    most = int(re.findall(r"more than (\d+) blocks", given["when"])[0])

    def fault(method: str, params: list[Any]) -> dict[str, Any] | None:
        if method != given["method"] or "fromBlock" not in params[0]:
            return None
        sizes.append(int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16) + 1)
        return {"error": given["error"]} if sizes[-1] > most else None

    with playing(chain, fault) as url, following(url, folder) as follower:
        check_events(follower, chain)
    refused = [size for size in sizes if size > most]
    assert refused
    assert refused == sorted(set(refused), reverse=True), "what was refused is not asked for again"


def _rate_limit(line: Line, folder: Path) -> None:
    given = line["input"]
    if given["method"] == SEND:
        _busy_when_sent_to(given["error"])
        return
    chain, asked, times = made_up(), list[list[Any]](), list[float]()
    refusals = 2 if given.get("twice") else 1

    def fault(method: str, params: list[Any]) -> dict[str, Any] | None:
        if method != given["method"] or (method == "eth_getBlockByNumber" and params[0] == "0x0"):
            return None
        asked.append(params)
        times.append(time.monotonic())
        return {"error": given["error"]} if len(asked) <= refusals else None

    with playing(chain, fault) as url:
        if given["method"] == "eth_getLogs":
            with following(url, folder) as follower:
                check_events(follower, chain)
        else:
            assert ChainReader(FailoverProvider([url], CHAIN_ID)).head().number == chain.head.number
            assert len(asked) == refusals + 1
    assert asked[1 : refusals + 1] == asked[:1] * refusals
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert min(pauses[:refusals]) > 0.05


def _busy_when_sent_to(error: dict[str, Any]) -> None:
    with proxied() as (chain, proxy):
        account = chain.account()
        client = ChainClient([proxy.url], chain.chain_id, account, poll=0.02)
        proxy.rule = lambda request: (
            {"error": error} if request["method"] == SEND and proxy.calls.count(SEND) == 1 else None
        )
        client.send(gift(7))
        assert proxy.calls.count(SEND) == 2
        assert client.balance(SELF) == 7


def _batch(line: Line, folder: Path) -> None:
    given, chain, sizes = line["input"], made_up(), list[int]()
    most = int(re.findall(r"more than (\d+) requests", given["batch"])[0])

    def refuse(body: Document) -> tuple[int, Document] | None:
        sizes.append(len(body) if isinstance(body, list) else 1)
        return (given["status"], given["answer"]) if sizes[-1] > most else None

    with playing(chain, refuse=refuse) as url, following(url, folder) as follower:
        check_events(follower, chain)
    refused = [size for size in sizes if size > most]
    assert refused
    assert refused == sorted(set(refused), reverse=True), "what was refused is not sent again"


def _lagging(line: Line, folder: Path) -> None:
    given, chain = line["input"], made_up()
    token = deployment().address("MusterToken")
    view = View(token, abi.load("MusterToken")["totalSupply"], ())
    call = Call(token, view.function.encode(), "MusterToken.totalSupply")
    calls: list[Callable[[ChainClient], object]] = [
        lambda client: client.read_many([view]),
        lambda client: client.simulate(call, SELF),
    ]
    for endpoints in range(1, given["endpoints"] + 1):
        for ask in calls:
            asked: list[int] = []
            with ExitStack() as stack:
                faults = [_once(given, number, asked) for number in range(endpoints)]
                urls = [stack.enter_context(playing(chain, fault)) for fault in faults]
                assert ask(ChainClient(urls, CHAIN_ID)) in ([7], None)
            assert asked == [0, endpoints - 1]


def _once(given: dict[str, Any], number: int, asked: list[int]) -> Fault:
    """Endpoint `number` gives the error if it is the first that is asked, and 7 otherwise."""

    def fault(method: str, params: list[Any]) -> dict[str, Any] | None:
        if method != given["method"]:
            return None
        asked.append(number)
        return {"error": given["error"]} if len(asked) == 1 else {"result": f"0x{7:064x}"}

    return fault


def _clients_words(line: Line, folder: Path) -> None:
    """The nonce belongs to our own transaction, whose answer was lost, or to that of another program with our key."""
    given = line["input"]
    lost = given.get("first") == "answer lost"
    with proxied() as (chain, proxy):
        account = chain.account()
        client = ChainClient([proxy.url], chain.chain_id, account, poll=0.02)

        def rule(request: dict[str, Any]) -> dict[str, Any] | None:
            if request["method"] != SEND or proxy.calls.count(SEND) != (2 if lost else 1):
                return None
            if lost:
                return dict(given["then"])
            chain.client(account).send(gift(100))
            return {"error": given["error"]}

        proxy.rule, proxy.lose = rule, [SEND] if lost else []
        client.send(gift(7))
        assert proxy.calls.count(SEND) == 2
        assert client.balance(SELF) == (7 if lost else 107)
        assert int(chain.rpc("eth_getTransactionCount", account.address, "latest"), 16) == (1 if lost else 2)


def _small(line: Line, folder: Path) -> None:
    if line["input"].startswith("http"):
        assert shown(line["input"]) == line["expected"]
        return
    chain, queries = made_up(), list[dict[str, str]]()

    def fault(method: str, params: list[Any]) -> dict[str, Any] | None:
        if method != "eth_getLogs":
            return None
        queries.append(params[0])
        return {"error": {"code": -32602, "message": "invalid params"}} if "blockHash" in params[0] else None

    with playing(chain, fault) as url, following(url, folder) as follower:
        check_events(follower, chain)
        queries.clear()
        chain.grow(1)
        check_events(follower, chain)
        assert queries
        assert all(int(query["toBlock"], 16) == chain.head.number for query in queries)
        chain.fork(3, 4, branch=1)
        check_events(follower, chain)


HANDLERS: dict[str, Handler] = {
    "rpc-logs-limit-as-busy": _log_range,
    "rpc-rate-limit-codes": _rate_limit,
    "rpc-batch-refused": _batch,
    "rpc-lagging-replica": _lagging,
    "rpc-clients-words": _clients_words,
    "rpc-small": _small,
}
