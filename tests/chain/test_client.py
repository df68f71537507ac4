"""The chain client against a real chain: what goes wrong is named, mended or survived."""

import logging
import threading
import time
from collections.abc import Iterator

import pytest
from eth_account import Account
from eth_typing import HexStr

from chain.client import ChainClient
from chain.errors import ContractError, TransactionError, decode_revert
from chain.rpc import Rpc, RpcError, shown
from chain.sender import Call
from chain.suite import Suite
from protocol.errors import ConfigError, UnreachableError
from tests.chain.proxy import Proxy
from tests.conftest import GRAINS, Chain, Deployed, free_port

SELF = "0x000000000000000000000000000000000000bEEF"


def gift(wei: int = 1) -> Call:
    return Call(SELF, b"", "gift", wei)


@pytest.fixture
def proxy(chain: Chain) -> Iterator[Proxy]:
    made = Proxy(chain.url)
    yield made
    made.close()


def test_an_unreachable_chain_is_named_in_time() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=rf"the chain does not answer at {url} .*check the RPC URL"):
        ChainClient([url], 31337, patience=1.0)
    assert time.monotonic() - began < 3


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
    assert client.rpc.url == chain.url


@pytest.mark.parametrize("lie", ["0x", "0x12", "0xzz", "0x" + "ff" * 31, 7, None, "x" * 100_000])
def test_an_answer_that_does_not_decode_changes_the_endpoint(deployed: Deployed, lie: object) -> None:
    """What one endpoint says of a contract must not end a process that has another to ask."""
    proxy = Proxy(deployed.chain.url)
    try:
        client = ChainClient([proxy.url, deployed.chain.url], 31337, patience=5.0)
        proxy.rule = lambda request: {"result": lie} if request["method"] == "eth_call" else None
        token = Suite(client, deployed.deployment, check=False).token
        assert token.balance_of(deployed.chain.account().address) == 0
        assert client.rpc.url == deployed.chain.url
    finally:
        proxy.close()


def test_nonsense_from_every_endpoint_is_no_wrong_configuration(deployed: Deployed) -> None:
    proxy = Proxy(deployed.chain.url)
    try:
        client = ChainClient([proxy.url], 31337, patience=0.5)
        token = Suite(client, deployed.deployment, check=False).token
        proxy.rule = lambda request: {"result": "0x12"} if request["method"] == "eth_call" else None
        with pytest.raises(UnreachableError, match=r"MusterToken\.balanceOf does not decode"):
            token.balance_of(SELF)
        proxy.rule = lambda request: {"result": "0x"} if request["method"] == "eth_call" else None
        with pytest.raises(ConfigError, match="there is no MusterToken at"):
            token.balance_of(SELF)
    finally:
        proxy.close()


def test_an_endpoint_of_another_chain_is_passed_over(chain: Chain, proxy: Proxy) -> None:
    proxy.rule = lambda request: {"result": "0x1"} if request["method"] == "eth_chainId" else None
    client = ChainClient([proxy.url, chain.url], 31337, patience=5.0)
    assert client.head().number == 0
    assert client.rpc.url == chain.url


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


def test_refusals_are_decoded(deployed: Deployed) -> None:
    poor = deployed.chain.account()
    suite = deployed.suite(poor)
    with pytest.raises(ContractError) as refused:
        suite.token.mint(poor.address, 1).send()
    assert refused.value.name == "OwnableUnauthorizedAccount"
    assert refused.value.arguments == {"account": poor.address}
    with pytest.raises(ContractError, match=r"Pools.closePool was refused: NotOwner\(\)|NoSuchPool\(\)"):
        suite.pools.close_pool(99).send()
    with pytest.raises(ContractError, match=r"ERC20InsufficientBalance.*get more tokens"):
        suite.seats.open_seat(poor.address).send()


def test_a_mined_revert_tells_its_reason(deployed: Deployed) -> None:
    poor = deployed.chain.account()
    suite = deployed.suite(poor)
    call = suite.token.mint(poor.address, GRAINS)
    with pytest.raises(ContractError) as refused:
        suite.client.send(call, gas=200_000)
    assert refused.value.name == "OwnableUnauthorizedAccount"
    assert refused.value.tx_hash.startswith("0x")
    suite.token.transfer(poor.address, 0).send()


def test_unknown_revert_data_is_shown() -> None:
    assert decode_revert(b"") == ("", {})
    assert decode_revert(b"\1\2\3\4\5") == ("Unknown", {"data": "0x0102030405"})
    assert decode_revert(bytes.fromhex("4e487b71") + (0x11).to_bytes(32, "big")) == ("Panic", {"reason": "overflow"})
    assert decode_revert(bytes.fromhex("08c379a0") + b"\xff" * 9)[0] == "Unknown"


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
    thread = threading.Thread(target=lambda: done.append(client.send(gift(3), timeout=30)))
    thread.start()
    deadline = time.monotonic() + 20
    prices: set[str] = set()
    while len(prices) < 3 and time.monotonic() < deadline:
        pending = chain.rpc("txpool_content")["pending"].values()
        prices |= {tx["maxFeePerGas"] for txs in pending for tx in txs.values()}
        time.sleep(0.05)
    chain.mine()
    thread.join(20)
    assert len(prices) >= 3
    assert len(done) == 1
    assert client.balance(SELF) == 3


def test_a_dropped_transaction_is_sent_again(chain: Chain) -> None:
    account = chain.account()
    chain.rpc("evm_setAutomine", False)
    client = chain.client(account)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(client.send(gift(4), timeout=30)))
    thread.start()
    deadline = time.monotonic() + 10
    while not chain.rpc("txpool_content")["pending"] and time.monotonic() < deadline:
        time.sleep(0.02)
    chain.rpc("anvil_dropAllTransactions")
    assert not chain.rpc("txpool_content")["pending"]
    while not chain.rpc("txpool_content")["pending"] and time.monotonic() < deadline:
        time.sleep(0.05)
    chain.mine()
    thread.join(20)
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
    thread = threading.Thread(target=lambda: done.append(client.send(gift(5), timeout=30)))
    thread.start()
    deadline = time.monotonic() + 15
    while not chain.rpc("txpool_content")["pending"] and time.monotonic() < deadline:
        time.sleep(0.02)
    chain.rpc("evm_revert", snapshot)
    chain.rpc("anvil_dropAllTransactions")
    while not done and time.monotonic() < deadline:
        chain.mine()
        time.sleep(0.2)
    thread.join(20)
    assert len(done) == 1
    assert client.balance(SELF) == 15
    assert int(chain.rpc("eth_getTransactionCount", account.address, "latest"), 16) == 2


def test_a_nonce_taken_by_another_program_is_survived(chain: Chain) -> None:
    account = chain.account()
    chain.rpc("evm_setAutomine", False)
    client = chain.client(account, bump_after=60)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(client.send(gift(5), timeout=30)))
    thread.start()
    deadline = time.monotonic() + 15
    while not chain.rpc("txpool_content")["pending"] and time.monotonic() < deadline:
        time.sleep(0.02)
    rival = account.sign_transaction(
        {
            "nonce": 0,
            "to": HexStr(SELF),
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
    thread.join(20)
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


def test_reads_of_a_missing_contract_are_named(deployed: Deployed) -> None:
    placed = deployed.deployment.contracts["Seats"].model_copy(update={"address": SELF})
    wrong = deployed.deployment.model_copy(update={"contracts": deployed.deployment.contracts | {"Seats": placed}})
    from chain.suite import Suite

    with pytest.raises(ConfigError, match="there is no Seats at"):
        Suite(deployed.chain.client(), wrong, check=False).seats.bond()
    with pytest.raises(ConfigError, match="there is no Seats at"):
        Suite(deployed.chain.client(), wrong)


def test_arguments_are_checked_before_they_are_sent(deployed: Deployed) -> None:
    suite = deployed.suite(deployed.governance)
    with pytest.raises(ConfigError, match="wrong checksum"):
        suite.token.transfer(deployed.governance.address.swapcase().replace("0X", "0x"), 1)
    with pytest.raises(ConfigError, match="not a number"):
        suite.token.mint(deployed.governance.address, -1)
    with pytest.raises(ConfigError, match="not 32 bytes"):
        suite.pools.publish_step(1, 0, b"short")
    with pytest.raises(ConfigError, match="needs a key"):
        deployed.suite().token.mint(deployed.governance.address, 1).send()


def test_an_rpc_error_is_an_error_of_its_own(anvil: Chain) -> None:
    with pytest.raises(RpcError, match="eth_nonsense"):
        Rpc([anvil.url], 31337).call("eth_nonsense")


def test_sends_need_few_round_trips(chain: Chain, proxy: Proxy) -> None:
    client = ChainClient([proxy.url], 31337, chain.account(), poll=0.02)
    client.send(gift())
    proxy.calls.clear()
    client.send(gift())
    assert len(proxy.calls) <= 8
