"""The failover provider against a real chain: endpoints that are down, busy, wrong, or no endpoints at all."""

import threading
import time

import pytest
from web3.types import RPCEndpoint

from chain.client import ChainClient
from chain.rpc import ChainReader, FailoverProvider, RpcError, shown
from protocol.errors import ConfigError, UnreachableError
from tests.chain.conftest import SELF, gift
from tests.chain.proxy import Proxy
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
    proxy.rule = lambda request: {"result": "0x1"} if request["method"] == "eth_chainId" else None
    client = ChainClient([proxy.url, chain.url], 31337, patience=5.0)
    assert client.head().number == 0
    assert client.url == chain.url


def test_a_busy_endpoint_is_asked_again(chain: Chain, proxy: Proxy) -> None:
    client = ChainClient([proxy.url], 31337)
    answers = iter([{"error": {"code": -32005, "message": "limit exceeded"}}] * 2)
    proxy.rule = lambda request: next(answers, None)
    assert client.head().number == 0


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
    method = RPCEndpoint("eth_nonsense")
    with pytest.raises(RpcError, match="what was asked"):
        ChainReader(provider).ask("what was asked", lambda eth: eth.w3.manager.request_blocking(method, []))
