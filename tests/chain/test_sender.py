"""Sending on a real chain: what is lost, stuck, dropped or overtaken is mined once, at a price up to a limit."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chain.client import ChainClient
from chain.errors import TransactionError
from chain.rpc import BadAnswer, RpcError
from chain.transactions import DEFAULT_LIMIT, GWEI, SETTING, Call, Price, price_limit, price_of
from protocol.accounts import Account, LocalAccount
from protocol.errors import ConfigError
from protocol.waits import wait_for
from tests.chain.conftest import SELF, gift
from tests.chain.proxy import Proxy, answering
from tests.conftest import Chain


def pending(chain: Chain) -> list[dict[str, Any]]:
    return [tx for txs in chain.rpc("txpool_content")["pending"].values() for tx in txs.values()]


def count(chain: Chain, account: LocalAccount) -> int:
    """How many transactions of the account are mined."""
    return int(chain.rpc("eth_getTransactionCount", account.address, "latest"), 16)


@contextmanager
def sending(chain: Chain, client: ChainClient, wei: int) -> Iterator[list[object]]:
    """Run the block once a gift that another thread sends is pending, and join that thread: it was mined once. Yields
    its receipts."""
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(client.send(gift(wei), timeout=100)))
    thread.start()
    wait_for("a pending transaction", lambda: bool(pending(chain)), 60, poll=0.02)
    yield done
    thread.join(60)
    assert len(done) == 1


def mine_until(chain: Chain, done: list[object]) -> None:
    def mined() -> bool:
        chain.mine()
        return bool(done)

    wait_for("it to be mined", mined, 60)


def test_a_lost_answer_is_not_a_second_transaction(chain: Chain, proxy: Proxy) -> None:
    account = chain.account()
    client = ChainClient([proxy.url], 31337, account, poll=0.02)
    proxy.lose = ["eth_sendRawTransaction"]
    client.send(gift(7))
    assert proxy.calls.count("eth_sendRawTransaction") == 2
    assert client.balance(SELF) == 7
    assert count(chain, account) == 1


def test_threads_share_an_account_and_two_clients_a_key(chain: Chain) -> None:
    """The clients know nothing of one another."""
    account = chain.account()
    clients = [chain.client(account) for _ in range(2)]
    failures: list[Exception] = []

    def work(client: ChainClient, count: int) -> None:
        try:
            for _ in range(count):
                client.send(gift(1), timeout=60)
        except Exception as error:
            failures.append(error)

    def sent(workers: list[ChainClient], count: int) -> int:
        threads = [threading.Thread(target=work, args=(client, count)) for client in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        assert not failures
        return clients[0].balance(SELF)

    assert sent([clients[0]] * 8, 6) == 48
    assert count(chain, account) == 48
    chain.rpc("evm_setAutomine", False)
    chain.rpc("evm_setIntervalMining", 1)
    assert sent(clients, 3) == 54


def test_no_gas_money_is_said_plainly(chain: Chain, caplog: pytest.LogCaptureFixture) -> None:
    broke = Account.create()
    with pytest.raises(TransactionError, match=r"ETH.*send some"):
        chain.client(broke).send(gift(0))
    chain.fund(broke.address, 10**15 // 4)
    with caplog.at_level(logging.WARNING, "muster.chain"):
        client = chain.client(broke)
        client.send(gift(0))
        client.send(gift(0))
    assert sum("ETH left" in r.message for r in caplog.records) == 1


def test_a_stuck_transaction_is_outbid(chain: Chain) -> None:
    chain.rpc("evm_setAutomine", False)
    client, prices = chain.client(chain.account(), bump_after=0.3), set[str]()

    def outbid_twice() -> bool:
        prices.update(tx["maxFeePerGas"] for tx in pending(chain))
        return len(prices) >= 3

    with sending(chain, client, 3):
        wait_for("three offers", outbid_twice, 60, poll=0.05)
        chain.mine()
    assert client.balance(SELF) == 3


def test_a_dropped_transaction_is_sent_again(chain: Chain) -> None:
    chain.rpc("evm_setAutomine", False)
    client = chain.client(chain.account())
    with sending(chain, client, 4):
        chain.rpc("anvil_dropAllTransactions")
        wait_for("it to be sent again", lambda: bool(pending(chain)), 60, poll=0.05)
        chain.mine()
    assert client.balance(SELF) == 4


def test_a_chain_that_forgets_gets_its_transactions_back(chain: Chain) -> None:
    """The chain loses a mined transaction while the next one waits: without it the next could never be mined."""
    account = chain.account()
    client = chain.client(account)
    snapshot = chain.rpc("evm_snapshot")
    client.send(gift(10))
    chain.rpc("evm_setAutomine", False)
    with sending(chain, client, 5) as done:
        chain.rpc("evm_revert", snapshot)
        chain.rpc("anvil_dropAllTransactions")
        mine_until(chain, done)
    assert client.balance(SELF) == 15
    assert count(chain, account) == 2


def test_what_does_not_last_is_not_mined_again(chain: Chain) -> None:
    """Such as a lane, whose files may be of another seed than their step has since the reorganisation: their nodes
    would pay. The gap that it leaves is filled all the same."""
    account = chain.account()
    client = chain.client(account)
    snapshot = chain.rpc("evm_snapshot")
    client.send(replace(gift(10), lasting=False))
    client.send(gift(20))
    chain.rpc("evm_setAutomine", False)
    with sending(chain, client, 5) as done:
        chain.rpc("evm_revert", snapshot)
        chain.rpc("anvil_dropAllTransactions")
        mine_until(chain, done)
    assert client.balance(SELF) == 25
    assert count(chain, account) == 3


def test_a_nonce_taken_by_another_program_is_survived(chain: Chain) -> None:
    account = chain.account()
    chain.rpc("evm_setAutomine", False)
    client = chain.client(account, bump_after=60)
    fees: dict[str, Any] = {"type": 2, "gas": 21000, "maxFeePerGas": 10**11, "maxPriorityFeePerGas": 10**10}
    rival = fees | {"chainId": 31337, "nonce": 0, "to": bytes.fromhex(SELF[2:]), "value": 100}
    with sending(chain, client, 5) as done:
        signed = account.sign_transaction(rival)
        chain.rpc("eth_sendRawTransaction", "0x" + bytes(signed.raw_transaction).hex())
        mine_until(chain, done)
    assert client.balance(SELF) == 105


def test_a_timeout_leaves_the_client_usable(chain: Chain) -> None:
    client = chain.client(chain.account())
    chain.rpc("evm_setAutomine", False)
    with pytest.raises(TransactionError, match="was not mined within 1 s") as late:
        client.send(gift(1), timeout=1)
    assert late.value.tx_hash
    chain.rpc("evm_setAutomine", True)
    client.send(gift(2))
    assert client.balance(SELF) == 3


def test_a_batch_that_breaks_off_leaves_no_gap_of_nonces(chain: Chain) -> None:
    client = chain.client(chain.account())
    chain.rpc("evm_setAutomine", False)
    with pytest.raises(TransactionError, match="refuses the transaction"):
        list(client.send_all([(gift(1), 21_000), (gift(2), 1)]))
    chain.rpc("anvil_dropAllTransactions")
    chain.rpc("evm_setAutomine", True)
    client.send(gift(3), timeout=30)
    assert client.balance(SELF) == 3


def test_sends_need_few_round_trips(chain: Chain, proxy: Proxy) -> None:
    client = ChainClient([proxy.url], 31337, chain.account(), poll=0.02)
    client.send(gift())
    proxy.calls.clear()
    client.send(gift())
    assert len(proxy.calls) <= 8


GREEDY = 1000 * GWEI


greedy_tip = answering("eth_maxPriorityFeePerGas", {"result": hex(GREEDY)})
greedy_base = answering("eth_getBlockByNumber", {"result": {"number": "0x1", "baseFeePerGas": hex(GREEDY)}})


@pytest.mark.parametrize("lie", [greedy_tip, greedy_base], ids=["tip", "base fee"])
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
    proxy.rule = answering("eth_maxPriorityFeePerGas", {"result": hex(20 * GWEI)})
    monkeypatch.setenv(SETTING, "0.5")
    with pytest.raises(TransactionError, match=r"limit is 0\.5"):
        ChainClient([chain.url], 31337, chain.account(), poll=0.02).send(gift(1))
    monkeypatch.setenv(SETTING, "100")
    receipt = ChainClient([proxy.url], 31337, chain.account(), poll=0.02).send(gift(1))
    assert receipt.fee > 20 * GWEI * receipt.gas_used


def test_a_stuck_transaction_is_outbid_up_to_the_limit(
    chain: Chain, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chain.rpc("evm_setAutomine", False)
    monkeypatch.setenv(SETTING, "4")
    client = chain.client(chain.account(), bump_after=0.05)

    def warned(words: str) -> None:
        wait_for(words, lambda: any(words in record.message for record in caplog.records), 60, poll=0.02)

    with caplog.at_level("WARNING", "muster.chain"), sending(chain, client, 3):
        warned("the limit")
        (offered,) = pending(chain)
        assert int(offered["maxFeePerGas"], 16) <= 4 * GWEI
        # What lies after the transaction waits is not offered either.
        proxy.rule = greedy_base
        client.provider.urls[:] = [proxy.url]
        warned("is offered no more")
        chain.mine()


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


def test_senders_survive_a_chain_that_forgets_its_last_seconds(tmp_path: Path) -> None:
    chain = Chain(block_time=1).start()
    try:
        accounts = [chain.account() for _ in range(2)]
        chain.mine()
        client_list = [chain.client(account, patience=30) for account in accounts]
        done: list[str] = []
        failures: list[Exception] = []
        stop = threading.Event()

        def work(number: int) -> None:
            try:
                while not stop.is_set():
                    done.append(client_list[number].send(Call(SELF, b"", "gift", 1), timeout=60).tx_hash)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n % 2,)) for n in range(4)]
        for thread in threads:
            thread.start()

        def until_sent(more: int) -> None:
            goal = len(done) + more
            wait_for(f"{more} more transactions", lambda: len(done) >= goal or bool(failures), 100)

        for _ in range(2):
            until_sent(4)
            chain.save(tmp_path / "state.json")
            until_sent(4)
            chain.kill()
            time.sleep(1)
            chain.start()
        until_sent(8)
        stop.set()
        for thread in threads:
            thread.join(90)
            assert not thread.is_alive()
        assert not failures
        balance = client_list[0].balance(SELF)
        # Nothing acts twice: every mined transaction is one that somebody was told of, and no nonce was wasted.
        assert sum(count(chain, account) for account in accounts) == balance <= len(done)
        kept = [chain.rpc("eth_getTransactionReceipt", tx_hash) is not None for tx_hash in done]
        assert sum(kept) == balance
        assert all(kept[-4:]), "since its last start it has forgotten nothing"
    finally:
        chain.kill()
