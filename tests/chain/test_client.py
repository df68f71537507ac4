"""Contracts through the chain client: what they answer, what they refuse, and what an endpoint makes of it."""

import pytest

from chain.client import ChainClient
from chain.errors import ContractError, decode_revert
from chain.suite import Suite
from protocol.errors import ConfigError, UnreachableError
from tests.chain.conftest import SELF
from tests.chain.proxy import Proxy
from tests.conftest import TOKEN, Deployed


@pytest.mark.parametrize("lie", ["0x", "0x12", "0xzz", "0x" + "ff" * 31, 7, None, "x" * 100_000])
def test_an_answer_that_does_not_decode_changes_the_endpoint(deployed: Deployed, lie: object) -> None:
    """What one endpoint says of a contract must not end a process that has another to ask."""
    proxy = Proxy(deployed.chain.url)
    try:
        client = ChainClient([proxy.url, deployed.chain.url], 31337, patience=5.0)
        proxy.rule = lambda request: {"result": lie} if request["method"] == "eth_call" else None
        token = Suite(client, deployed.deployment, check=False).token
        assert token.balance_of(deployed.chain.account().address) == 0
        assert client.url == deployed.chain.url
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


def test_refusals_are_decoded(deployed: Deployed) -> None:
    poor = deployed.chain.account()
    suite = deployed.suite(poor)
    with pytest.raises(ContractError) as refused:
        suite.token.mint(poor.address, 1).send()
    assert refused.value.name == "OwnableUnauthorizedAccount"
    assert refused.value.arguments == {"account": poor.address}
    with pytest.raises(ContractError, match=r"Pools.closePool was refused: .*\[(NotOwner|NoSuchPool)\(\)\]"):
        suite.pools.close_pool(99).send()
    with pytest.raises(ContractError, match=r"ERC20InsufficientBalance.*get more tokens"):
        suite.seats.open_seat(poor.address, [1]).send()


def test_a_mined_revert_tells_its_reason(deployed: Deployed) -> None:
    poor = deployed.chain.account()
    suite = deployed.suite(poor)
    call = suite.token.mint(poor.address, TOKEN)
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


def test_reads_of_a_missing_contract_are_named(deployed: Deployed) -> None:
    placed = deployed.deployment.contracts["Seats"].model_copy(update={"address": SELF})
    wrong = deployed.deployment.model_copy(update={"contracts": deployed.deployment.contracts | {"Seats": placed}})
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
