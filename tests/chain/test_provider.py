"""Endpoints that are down, busy, wrong, or none at all, and the answers of real providers, played by a fake one."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from chain.client import ChainClient
from chain.rpc import ChainReader, ErrorKind, FailoverProvider, RpcError, meaning, shown
from protocol.errors import ConfigError, UnreachableError
from tests.chain.conftest import SELF, gift
from tests.chain.proxy import Proxy, answering
from tests.conftest import Chain, free_port


def test_an_unreachable_chain_is_named_in_time() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=rf"the chain does not answer at {url} .*check the RPC URL"):
        ChainClient([url], 31337, patience=1.0)
    assert time.monotonic() - began < 20


def test_a_wrong_chain_id_is_named(anvil: Chain) -> None:
    with pytest.raises(ConfigError, match="serves chain 31337, not 8453"):
        ChainClient([anvil.url], 8453)
    for bad in ("ftp://x", "localhost:8545", ""):
        with pytest.raises(ConfigError, match="URL"):
            ChainClient([bad], 31337)
    with pytest.raises(ConfigError, match="no RPC URL"):
        ChainClient([], 31337)


def test_a_web_page_is_not_an_rpc(proxy: Proxy) -> None:
    for page in (b"<html>", b"[" * 500_000, b"", b"1", b"\xff"):
        proxy.answer = lambda body, page=page: (200, page)  # type: ignore[method-assign, misc]
        with pytest.raises(UnreachableError, match=r"not (a )?JSON"):
            ChainClient([proxy.url], 31337, patience=0.3)


def test_keys_in_urls_are_not_shown() -> None:
    assert shown("https://user:secret@host:1/v2/secret?key=secret") == "https://host:1"


def test_it_changes_to_an_endpoint_that_works(chain: Chain, proxy: Proxy) -> None:
    client = ChainClient([proxy.url, chain.url], 31337, chain.account(), poll=0.02)
    proxy.down = True
    assert client.send(gift(5)).block
    assert client.balance(SELF) == 5
    assert client.url == chain.url


def test_an_endpoint_of_another_chain_is_passed_over(chain: Chain, proxy: Proxy) -> None:
    proxy.rule = answering("eth_chainId", {"result": "0x1"})
    client = ChainClient([proxy.url, chain.url], 31337, patience=5.0)
    assert client.head().number == 0
    assert client.url == chain.url


def test_an_endpoint_without_batches_will_do(chain: Chain, proxy: Proxy) -> None:
    forward = proxy.answer

    def no_batches(body):  # type: ignore[no-untyped-def]
        if isinstance(body, list):
            return 200, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no batches"}}'
        return forward(body)

    proxy.answer = no_batches  # type: ignore[method-assign]
    client = ChainClient([proxy.url], 31337, chain.account(), poll=0.02)
    assert client.send(gift()).gas_used == 21000


def test_a_restarted_chain_is_waited_for(chain: Chain) -> None:
    client = chain.client(patience=15)
    client.head()
    chain.kill()
    restart = threading.Timer(1.0, chain.start)
    restart.start()
    try:
        assert client.head().number == 0
    finally:
        restart.join()


def test_an_rpc_error_is_an_error_of_its_own(anvil: Chain) -> None:
    provider = FailoverProvider([anvil.url], 31337)
    (error,) = provider.batch([("eth_nonsense", [])])
    assert isinstance(error, RpcError)
    assert "eth_nonsense" in str(error)
    with pytest.raises(RpcError, match="eth_nonsense"):
        ChainReader(provider).request("eth_nonsense")


CHAIN = 84532
HEAD = {"number": "0x10", "hash": "0x" + "11" * 32, "parentHash": "0x" + "22" * 32, "timestamp": "0x5"}


class Answer(NamedTuple):
    """What a provider answers: HTTP status, JSON-RPC code and message."""

    provider: str
    status: int
    code: int
    message: str


def answers(*rows: tuple[str, int, int, str]) -> list[Answer]:
    return [Answer(*row) for row in rows]


RATE_LIMITS = answers(
    ("Base public", 200, -32016, "over rate limit"),
    ("Base public", 429, -32016, "over rate limit"),
    ("Base public", 503, -32011, "no backend is currently healthy to serve traffic"),
    ("Alchemy", 429, 429, "Your app has exceeded its compute units per second capacity. If you have retries enabled"),
    ("Infura", 429, -32005, "daily request count exceeded, request rate limited"),
    ("Infura", 200, -32005, "project ID request rate exceeded, rate limit"),
    ("QuickNode", 200, -32007, "50/second request limit reached - reduce calls per second or upgrade your account"),
    ("QuickNode", 429, -32029, "Too many requests"),
    ("dRPC", 200, 15, "Too many request, try again later"),
    ("dRPC", 408, 30, "Request timeout on the free tier, please upgrade your tier to the paid one"),
    ("1RPC", 200, -32001, "Exceeded the quota usage"),
    ("Ankr", 200, -32090, "Too many requests, reason: call rate limit exhausted, retry in 10s"),
    ("any", 200, -32097, ""),
    ("Alchemy", 200, -32603, "Internal error"),
    ("any", 200, -32603, "Internal JSON-RPC error."),
    ("dRPC", 200, 0, "no available nodes"),
    ("geth", 200, -32000, "context deadline exceeded"),
    ("any", 200, -32000, "server is busy, please retry later"),
    ("Infura", 200, -32005, "project ID request rate exceeded"),
    ("Cloudflare", 200, -32046, "Cannot fulfill request"),
    ("Alchemy", 200, -32000, "Unable to complete request at this time."),
    ("any", 200, -32000, "We are experiencing high load, please slow down"),
    ("Chainstack", 200, -32600, "You've exceeded the RPS limit available on the current plan"),
    ("any", 200, -32000, "max requests reached"),
)
LAGGING = answers(
    ("geth", 200, -32000, "header not found"),
    ("Alchemy", 200, -32000, "Unknown block"),
    ("Base public", 200, -32019, "block is out of range"),
    ("Erigon", 200, -32000, "block not found: 0x10"),
    ("geth", 200, -32000, "missing trie node 5d3 (path ) state 0x5d3 is not available, not found"),
    ("geth", 200, -32000, "historical state not available in path scheme yet"),
    ("Nethermind", 200, -32001, "could not find block"),
    ("Avalanche", 200, -32000, "cannot query unfinalized data"),
    ("reth", 200, -32603, "state not found for block 5"),
    ("reth", 200, -32001, "state at block #5 is pruned"),
    ("QuickNode", 200, -32001, "resource not found"),
)
LOG_RANGES = answers(
    ("Base public", 413, -32614, "eth_getLogs is limited to a 10,000 range"),
    ("Alchemy", 400, -32602, "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block"),
    ("Alchemy free", 400, -32600, "Under the Free tier plan, you can request up to a 10 block range. Upgrade to PAYG"),
    ("Infura", 200, -32005, "query returned more than 10000 results. Try with this block range [0x1, 0x9]."),
    ("QuickNode", 413, -32614, "eth_getLogs is limited to a 5 range"),
    ("dRPC", 400, 35, "ranges over 10000 blocks are not supported on freetier"),
    ("1RPC", 200, -32000, "eth_getLogs is limited to a 10000 blocks range"),
    ("Ankr", 200, -32062, "Block range is too large"),
    ("PublicNode", 200, -32701, "exceed maximum block range: 50000"),
    ("Coinbase", 200, -32602, "query exceeds max results 20000, retry with the range 1-2"),
    ("Erigon", 200, -32000, "query timeout exceeded"),
    ("geth", 200, -32000, "context deadline exceeded"),
    ("thirdweb", 200, -32005, "Maximum allowed number of requested blocks is 1000"),
    ("Chainstack", 200, -32008, "Response is too big"),
    ("geth", 200, -32003, "response too large"),
    ("op-geth", 200, -32005, "logs matched by query exceeds limit of 10000"),
    ("geth", 200, -32000, "query exceeds limit of 10000 logs"),
)
BATCH_SIZES = answers(
    ("Base public", 413, -32014, "too many RPC calls in batch request"),
    ("dRPC", 500, 31, "Batch of more than 3 requests are not allowed on free tier, to use this feature register"),
    ("geth", 200, -32600, "batch too large"),
    ("Infura", 200, -32600, "batch limit of 10 exceeded"),
    ("Ankr", 200, -32600, 'Too many ["eth_getLogs"] methods in the batch'),
    ("QuickNode", 200, -32007, "batch limit exceeded"),
    ("Erigon", 200, -32000, "batch limit 100 exceeded: 142 requests given"),
    ("Besu", 200, -32602, "Number of requests in batch exceeds --rpc-max-batch-size."),
    ("1RPC", 500, 31, "Batch of more than 3 requests are not allowed on free tier"),
    ("any", 200, -32600, "Batch requests are not supported"),
    ("any", 403, -32600, "batch requests are only available for paid plans"),
    ("any", 200, -32005, "Array of requests is too large"),
    ("any", 200, -32600, "batching is not allowed"),
    ("any", 200, -32600, "JSON-RPC arrays are not supported"),
)
ACCESS = answers(
    ("Alchemy", 401, -32600, "Must be authenticated!"),
    ("Infura", 401, -32600, "invalid project id"),
    ("Ankr", 403, -32052, "API key is not allowed to access blockchain"),
    ("QuickNode", 403, -32600, "unauthorized"),
    ("Alchemy", 200, -32600, "App is inactive"),
    ("any", 200, -32000, "archive state is not available on this tier"),
)
SENDING = [
    (ErrorKind.KNOWN_TRANSACTION, "already known"),
    (ErrorKind.KNOWN_TRANSACTION, "AlreadyKnown"),
    (ErrorKind.KNOWN_TRANSACTION, "Transaction with the same hash was already imported."),
    (ErrorKind.KNOWN_TRANSACTION, "known transaction: 0x12"),
    (ErrorKind.NONCE_USED, "nonce too low: next nonce 5, tx nonce 4"),
    (ErrorKind.NONCE_USED, "OldNonce"),
    (ErrorKind.NONCE_USED, "OldNonce, Current nonce: 5, nonce of rejected tx: 4"),
    (ErrorKind.NONCE_USED, "OwnNonceAlreadyUsed"),
    (ErrorKind.NONCE_USED, "NonceTooLow"),
    (ErrorKind.NONCE_USED, "replacement transaction underpriced"),
    (ErrorKind.NONCE_USED, "ReplacementNotAllowed"),
    (ErrorKind.NONCE_USED, "future transaction tries to replace pending"),
    (ErrorKind.NONCE_USED, "Transaction nonce 5 below sender account nonce 6"),
    (ErrorKind.NO_FUNDS, "lack of funds (0) for max fee (100)"),
    (ErrorKind.BUSY, "txpool is full"),
    (ErrorKind.NO_FUNDS, "insufficient funds for gas * price + value"),
    (ErrorKind.NO_FUNDS, "InsufficientFunds, Balance is 0"),
    (ErrorKind.NO_FUNDS, "Upfront cost exceeds account balance"),
    (ErrorKind.NO_FUNDS, "sender doesn't have enough funds to send tx"),
    (ErrorKind.NO_FUNDS, "insufficient balance for transfer"),
    (ErrorKind.NONCE_USED, "There is another transaction with same nonce in the queue."),
    (ErrorKind.NONCE_USED, "could not replace existing tx"),
    (ErrorKind.LAGGING, "NonceGap, Future nonce. Expected nonce: 5"),
    (ErrorKind.LAGGING, "nonce too high: address 0x12, tx: 9 state: 8"),
    (ErrorKind.OTHER, "transaction underpriced: gas tip cap 1, minimum needed 1000000"),
]


class Endpoint(Proxy):
    """Answers `refusal` to so many requests for `method` as `refusals` says, and sensibly otherwise."""

    def __init__(self) -> None:
        super().__init__("nobody's")
        self.refusal: Answer | None = None
        self.method, self.refusals, self.most, self.batches = "eth_getBlockByNumber", 0, 1000, list[int]()

    def answer(self, body: Any) -> tuple[int, bytes]:
        requests = body if isinstance(body, list) else [body]
        self.batches.append(len(requests))
        refusal = self.refusal
        if refusal is not None and (
            len(requests) > self.most or (self.refusals > 0 and any(one["method"] == self.method for one in requests))
        ):
            self.refusals -= 1
            error = {"code": refusal.code, "message": refusal.message}
            return refusal.status, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        answers = [{"jsonrpc": "2.0", "id": one["id"], "result": self.result(one)} for one in requests]
        return 200, json.dumps(answers if isinstance(body, list) else answers[0]).encode()

    def result(self, request: dict[str, Any]) -> Any:
        return {"eth_chainId": hex(CHAIN), "eth_getBlockByNumber": HEAD, "eth_getLogs": []}[request["method"]]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def reader(endpoint: Endpoint, seconds: float = 5.0) -> ChainReader:
    made = ChainReader(FailoverProvider([endpoint.url], CHAIN, patience=seconds))
    made.provider.check()
    return made


def named(answers: list[Answer]) -> pytest.MarkDecorator:
    ids = [f"{one.provider} {one.code} {one.status}" for one in answers]
    return pytest.mark.parametrize("refusal", answers, ids=ids)


@named(RATE_LIMITS + LAGGING)
def test_a_temporary_refusal_is_retried(endpoint: Endpoint, refusal: Answer) -> None:
    chain = reader(endpoint)
    endpoint.refusal, endpoint.refusals = refusal, 2
    assert chain.head().number == 16


@named(RATE_LIMITS[:4])
def test_a_lasting_rate_limit_ends_in_the_servers_words(endpoint: Endpoint, refusal: Answer) -> None:
    chain = reader(endpoint, 0.2)
    endpoint.refusal, endpoint.refusals = refusal, 1000
    with pytest.raises(UnreachableError) as caught:
        chain.head()
    assert refusal.message[:30] in str(caught.value)


@named(LOG_RANGES)
def test_a_refused_range_of_logs_is_known_as_such(endpoint: Endpoint, refusal: Answer) -> None:
    chain = reader(endpoint)
    endpoint.refusal, endpoint.refusals, endpoint.method = refusal, 1, "eth_getLogs"
    (error,) = chain.batch([("eth_getLogs", [{}])])
    assert isinstance(error, RpcError)
    assert error.kind is ErrorKind.LOG_RANGE
    assert error.message == refusal.message


@pytest.mark.parametrize(
    "message",
    ["block range extends beyond current head block", "invalid block range params", "header not found",
     "One of the blocks specified in filter (fromBlock, toBlock or blockHash) cannot be found."],
)  # fmt: skip
def test_logs_of_blocks_that_a_replica_lacks_are_no_range_too_large(message: str) -> None:
    assert meaning("eth_getLogs", -32000, message, b"") is ErrorKind.LAGGING


def test_a_refusal_by_a_contract_is_known_in_old_spelling() -> None:
    error = RpcError.of("eth_call", {"code": -32015, "message": "VM execution error.", "data": "Reverted 0x08c379a0"})
    assert (error.kind, error.data.hex()) == (ErrorKind.REVERT, "08c379a0")


@named(BATCH_SIZES)
def test_a_refused_batch_is_sent_in_smaller_ones(endpoint: Endpoint, refusal: Answer) -> None:
    chain = reader(endpoint)
    endpoint.refusal, endpoint.most = refusal, 3
    assert [block and block.number for block in chain.blocks(list(range(20)))] == [16] * 20
    assert endpoint.batches[-1] <= 3
    before = len(endpoint.batches)
    chain.blocks([1, 2, 3])
    assert len(endpoint.batches) - before <= 2, "the size is remembered"


@named(ACCESS)
def test_no_access_is_told_at_once_in_the_servers_words(endpoint: Endpoint, refusal: Answer) -> None:
    chain = reader(endpoint, 60.0)
    endpoint.refusal, endpoint.refusals = refusal, 1000
    with pytest.raises(ConfigError) as caught:
        chain.head()
    assert refusal.message in str(caught.value)
    assert "API key" in str(caught.value)


def test_every_provider_that_people_use_is_played() -> None:
    used = {"Base public", "Alchemy", "Infura", "QuickNode", "dRPC", "1RPC", "Ankr"}
    for answers in (RATE_LIMITS, LOG_RANGES):
        assert used <= {answer.provider for answer in answers}


@pytest.mark.parametrize(("kind", "message"), SENDING)
def test_answers_to_a_transaction(kind: ErrorKind, message: str) -> None:
    assert meaning("eth_sendRawTransaction", -32010, message, b"") is kind


def test_the_same_words_about_something_else_mean_something_else() -> None:
    assert meaning("eth_call", -32000, "already known", b"") is ErrorKind.OTHER
    assert meaning("eth_call", 3, "execution reverted: rate limit", b"") is ErrorKind.REVERT
    assert meaning("eth_call", -32603, "internal error", b"\1" * 4) is ErrorKind.REVERT
    assert meaning("eth_maxPriorityFeePerGas", -32601, "rpc method is not whitelisted", b"") is ErrorKind.OTHER
    assert meaning("eth_getLogs", -32601, "this method is not supported at this time", b"") is ErrorKind.OTHER
    assert meaning("eth_call", -32602, "invalid params: array of addresses not allowed", b"") is ErrorKind.OTHER
    assert meaning("eth_sendRawTransaction", -32000, "cannot fulfill request: bad type", b"") is ErrorKind.OTHER
