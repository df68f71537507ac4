"""Sending on a real chain: transactions that are lost, stuck, dropped or overtaken are mined once all the same."""

import logging
import threading
import time

import pytest

from chain.client import ChainClient
from chain.errors import TransactionError
from protocol.accounts import Account
from tests.chain.conftest import SELF, gift
from tests.chain.proxy import Proxy
from tests.conftest import Chain


def test_a_lost_answer_is_not_a_second_transaction(chain: Chain, proxy: Proxy) -> None:
    account = chain.account()
    client = ChainClient([proxy.url], 31337, account, poll=0.02)
    proxy.lose = ["eth_sendRawTransaction"]
    client.send(gift(7))
    assert proxy.calls.count("eth_sendRawTransaction") == 2
    assert client.balance(SELF) == 7
    assert int(chain.rpc("eth_getTransactionCount", account.address, "latest"), 16) == 1


def test_threads_share_an_account(chain: Chain) -> None:
    account = chain.account()
    client = chain.client(account)
    failures: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(6):
                client.send(gift(1))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert client.balance(SELF) == 48
    assert int(chain.rpc("eth_getTransactionCount", account.address, "latest"), 16) == 48


def test_two_processes_with_one_key_both_get_through(chain: Chain) -> None:
    """Two clients that know nothing of one another, on blocks that take their time."""
    chain.rpc("evm_setAutomine", False)
    chain.rpc("evm_setIntervalMining", 1)
    account = chain.account()
    clients = [chain.client(account) for _ in range(2)]
    failures: list[Exception] = []

    def work(client: ChainClient) -> None:
        try:
            for _ in range(3):
                client.send(gift(1), timeout=60)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not failures
    assert clients[0].balance(SELF) == 6


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
    account = chain.account()
    chain.rpc("evm_setAutomine", False)
    client = chain.client(account, bump_after=0.3)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(client.send(gift(3), timeout=100)))
    thread.start()
    deadline = time.monotonic() + 60
    prices: set[str] = set()
    while len(prices) < 3 and time.monotonic() < deadline:
        pending = chain.rpc("txpool_content")["pending"].values()
        prices |= {tx["maxFeePerGas"] for txs in pending for tx in txs.values()}
        time.sleep(0.05)
    chain.mine()
    thread.join(60)
    assert len(prices) >= 3
    assert len(done) == 1
    assert client.balance(SELF) == 3


def test_a_dropped_transaction_is_sent_again(chain: Chain) -> None:
    account = chain.account()
    chain.rpc("evm_setAutomine", False)
    client = chain.client(account)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(client.send(gift(4), timeout=100)))
    thread.start()
    deadline = time.monotonic() + 60
    while not chain.rpc("txpool_content")["pending"] and time.monotonic() < deadline:
        time.sleep(0.02)
    chain.rpc("anvil_dropAllTransactions")
    while not chain.rpc("txpool_content")["pending"] and time.monotonic() < deadline:
        time.sleep(0.05)
    chain.mine()
    thread.join(60)
    assert len(done) == 1
    assert client.balance(SELF) == 4


def test_a_chain_that_forgets_gets_its_transactions_back(chain: Chain) -> None:
    """The chain loses a mined transaction while the next one waits: without it the next could never be mined."""
    account = chain.account()
    client = chain.client(account)
    snapshot = chain.rpc("evm_snapshot")
    client.send(gift(10))
    chain.rpc("evm_setAutomine", False)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(client.send(gift(5), timeout=100)))
    thread.start()
    deadline = time.monotonic() + 60
    while not chain.rpc("txpool_content")["pending"] and time.monotonic() < deadline:
        time.sleep(0.02)
    chain.rpc("evm_revert", snapshot)
    chain.rpc("anvil_dropAllTransactions")
    while not done and time.monotonic() < deadline:
        chain.mine()
        time.sleep(0.2)
    thread.join(60)
    assert len(done) == 1
    assert client.balance(SELF) == 15
    assert int(chain.rpc("eth_getTransactionCount", account.address, "latest"), 16) == 2


def test_a_nonce_taken_by_another_program_is_survived(chain: Chain) -> None:
    account = chain.account()
    chain.rpc("evm_setAutomine", False)
    client = chain.client(account, bump_after=60)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(client.send(gift(5), timeout=100)))
    thread.start()
    deadline = time.monotonic() + 60
    while not chain.rpc("txpool_content")["pending"] and time.monotonic() < deadline:
        time.sleep(0.02)
    rival = account.sign_transaction(
        {
            "nonce": 0,
            "to": bytes.fromhex(SELF[2:]),
            "value": 100,
            "gas": 21000,
            "chainId": 31337,
            "maxFeePerGas": 10**11,
            "maxPriorityFeePerGas": 10**10,
            "type": 2,
        }
    )
    chain.rpc("eth_sendRawTransaction", "0x" + bytes(rival.raw_transaction).hex())
    chain.mine()
    while not done and time.monotonic() < deadline:
        chain.mine()
        time.sleep(0.2)
    thread.join(60)
    assert len(done) == 1
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


def test_sends_need_few_round_trips(chain: Chain, proxy: Proxy) -> None:
    client = ChainClient([proxy.url], 31337, chain.account(), poll=0.02)
    client.send(gift())
    proxy.calls.clear()
    client.send(gift())
    assert len(proxy.calls) <= 8
