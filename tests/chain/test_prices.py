"""What an endpoint says of the price of gas is paid up to a limit of one's own, and no further."""

import threading
from typing import Any

import pytest

from chain.client import ChainClient
from chain.errors import TransactionError
from chain.rpc import BadAnswer, RpcError
from chain.transactions import DEFAULT_LIMIT, GWEI, SETTING, Price, price_limit, price_of
from protocol.errors import ConfigError
from tests.chain.conftest import SELF, gift
from tests.chain.proxy import Proxy
from tests.conftest import Chain

GREEDY = 1000 * GWEI


def greedy_tip(request: dict[str, Any]) -> dict[str, Any] | None:
    return {"result": hex(GREEDY)} if request["method"] == "eth_maxPriorityFeePerGas" else None


def greedy_base(request: dict[str, Any]) -> dict[str, Any] | None:
    if request["method"] != "eth_getBlockByNumber":
        return None
    return {"result": {"number": "0x1", "baseFeePerGas": hex(GREEDY)}}


@pytest.mark.parametrize("lie", [greedy_tip, greedy_base])
def test_a_lying_endpoint_makes_nobody_burn_its_ether(chain: Chain, proxy: Proxy, lie: Any) -> None:
    account = chain.account()
    client = ChainClient([proxy.url], 31337, account, poll=0.02)
    before = client.balance(account.address)
    proxy.rule = lie
    with pytest.raises(TransactionError, match=rf"asks \d+ gwei per gas, the limit is 10.*{SETTING}"):
        client.send(gift(0))
    assert client.balance(account.address) == before
    assert "eth_sendRawTransaction" not in proxy.calls


def test_another_endpoint_is_asked_instead(chain: Chain, proxy: Proxy) -> None:
    proxy.rule = greedy_tip
    client = ChainClient([proxy.url, chain.url], 31337, chain.account(), poll=0.02)
    client.send(gift(5))
    assert client.balance(SELF) == 5


def test_the_limit_is_a_setting(chain: Chain, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.rule = lambda request: {"result": hex(20 * GWEI)} if "Priority" in request["method"] else None
    monkeypatch.setenv(SETTING, "0.5")
    with pytest.raises(TransactionError, match=r"limit is 0\.5"):
        ChainClient([chain.url], 31337, chain.account(), poll=0.02).send(gift(1))
    monkeypatch.setenv(SETTING, "100")
    receipt = ChainClient([proxy.url], 31337, chain.account(), poll=0.02).send(gift(1))
    assert receipt.fee > 20 * GWEI * receipt.gas_used


def test_a_stuck_transaction_is_outbid_up_to_the_limit(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chain.rpc("evm_setAutomine", False)
    monkeypatch.setenv(SETTING, "4")
    client = chain.client(chain.account(), bump_after=0.05)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(client.send(gift(3), timeout=60)))
    with caplog.at_level("WARNING", "muster.chain"):
        thread.start()
        seen = threading.Event()
        while not any("the limit" in record.message for record in caplog.records) and thread.is_alive():
            seen.wait(0.02)
        (offered,) = [tx for txs in chain.rpc("txpool_content")["pending"].values() for tx in txs.values()]
        assert int(offered["maxFeePerGas"], 16) <= 4 * GWEI
        # What lies after the transaction waits is not offered either.
        proxy = Proxy(chain.url)
        proxy.rule = greedy_base
        client.provider.urls[:] = [proxy.url]
        while not any("is offered no more" in record.message for record in caplog.records) and thread.is_alive():
            seen.wait(0.02)
        chain.mine()
        thread.join(30)
        proxy.close()
    assert len(done) == 1


@pytest.mark.parametrize("given", ["", "much", "-1", "0", "nan", "inf", "1e-10", "1e10"])
def test_a_limit_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(SETTING, given)
    with pytest.raises(ConfigError, match=SETTING):
        price_limit()


def test_limits_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    assert price_limit() == DEFAULT_LIMIT == 10 * GWEI
    monkeypatch.setenv(SETTING, "0.1")
    assert price_limit() == GWEI // 10
    block = {"baseFeePerGas": hex(3)}
    assert price_of(block, "0x2", limit=8) == Price(8, 2)
    with pytest.raises(BadAnswer):
        price_of(block, "0x2", limit=7)


@pytest.mark.parametrize(
    ("block", "tip"),
    [(None, "0x1"), ([], "0x1"), (RpcError("", 0, "no", b""), "0x1"), ({"baseFeePerGas": 7}, "0x1"), ({}, None)],
)
def test_what_is_no_price_is_a_bad_answer(block: Any, tip: Any) -> None:
    with pytest.raises(BadAnswer) as caught:
        price_of(block, tip, DEFAULT_LIMIT)
    assert caught.value.verdict is not None
