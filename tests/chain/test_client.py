"""Contracts through the chain client: answers, refusals and their words."""

import random
from string import Formatter

import pytest
from eth_abi.abi import encode

from chain import abi
from chain.client import ChainClient
from chain.errors import CATALOGUE, ContractError, decode_revert
from chain.rpc import ChainReader, FailoverProvider
from chain.suite import Suite
from protocol.errors import ConfigError, UnreachableError
from protocol.seeds import AUDIT_EVERYTHING, audit_sample
from tests.chain.conftest import SELF
from tests.chain.proxy import Proxy, answering
from tests.conftest import TOKEN, Chain, Deployed


@pytest.mark.parametrize("lie", ["0x", "0x12", "0xzz", "0x" + "ff" * 31, 7, None, "x" * 100_000])
def test_an_answer_that_does_not_decode_changes_the_endpoint(deployed: Deployed, proxy: Proxy, lie: object) -> None:
    """What one endpoint says of a contract must not end a process that has another to ask."""
    client = ChainClient([proxy.url, deployed.chain.url], 31337, patience=5.0)
    proxy.rule = answering("eth_call", {"result": lie})
    token = Suite(client, deployed.deployment, check=False).token
    assert token.balance_of(deployed.chain.account().address) == 0
    assert client.url == deployed.chain.url


def test_nonsense_from_every_endpoint_is_no_wrong_configuration(deployed: Deployed, proxy: Proxy) -> None:
    client = ChainClient([proxy.url], 31337, patience=0.5)
    token = Suite(client, deployed.deployment, check=False).token
    proxy.rule = answering("eth_call", {"result": "0x12"})
    with pytest.raises(UnreachableError, match=r"MusterToken\.balanceOf does not decode"):
        token.balance_of(SELF)
    proxy.rule = answering("eth_call", {"result": "0x"})
    with pytest.raises(ConfigError, match="there is no MusterToken at"):
        token.balance_of(SELF)


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
        suite.seats.open_seat(poor.address, [1 << 31]).send()


@pytest.mark.parametrize("message", ["execution reverted", "Transaction execution fails"])
def test_an_endpoint_whose_estimates_lack_the_reason_is_asked_for_it(
    deployed: Deployed, proxy: Proxy, message: str
) -> None:
    """The relay leaves out the one file that a lane is refused for."""
    poor = deployed.chain.account()
    client = ChainClient([proxy.url], 31337, poor)
    proxy.rule = answering("eth_estimateGas", {"error": {"code": -32000, "message": message}})
    with pytest.raises(ContractError) as refused:
        client.estimate(Suite(client, deployed.deployment, check=False).token.mint(poor.address, 1))
    assert refused.value.name == "OwnableUnauthorizedAccount"


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


WORDS: dict[str, list[str]] = CATALOGUE["words"]
ERRORS = {error.where: error for error in abi.all_errors().values()}


def test_every_error_has_words_or_is_known_to_need_none() -> None:
    unspoken = set(CATALOGUE["unspoken"])
    assert not WORDS.keys() & unspoken
    assert set(ERRORS) == WORDS.keys() | unspoken


@pytest.mark.parametrize("name", sorted(WORDS))
def test_words_name_only_what_the_error_says(name: str) -> None:
    of_one_name = [error for error in abi.all_errors().values() if error.where == name]
    named = {field for text in WORDS[name] for _, field, _, _ in Formatter().parse(text) if field is not None}
    assert any(named <= {component["name"] for component in error.components} for error in of_one_name), (
        f"{named} of {of_one_name}"
    )


def test_text_that_is_not_utf8_is_decoded() -> None:
    (event,) = [one for one in abi.load("Court").events.values() if one.name == "MirrorAnnounced"]
    words = [encode(["uint256"], [1]) for _ in event.indexed.types]
    plain = ["bytes" if kind == "string" else kind for kind in event.plain.types]
    data = encode(plain, [b"\xff\xfe" if kind == "bytes" else 1 for kind in plain])
    assert event.decode([event.topic, *words], data)["uri"] == "��"


def test_a_batch_with_one_missing_block_answers_the_others(anvil: Chain) -> None:
    reader = ChainReader(FailoverProvider([anvil.url], 31337))
    genesis, missing = reader.blocks([0, 1 << 40])
    assert genesis is not None
    assert missing is None


CASES, BATCH = 100_000, 1_000


@pytest.mark.slow
def test_contract_and_python_agree_on_a_hundred_thousand_random_rows(deployed: Deployed) -> None:
    rng = random.Random(8)
    suite = deployed.suite()
    sampled = 0
    for _ in range(CASES // BATCH):
        cases = [_case(rng) for _ in range(BATCH)]
        answers = suite.client.read_many([suite.canaries.view("inSample", *case) for case in cases])
        for (seed, sequence, rows, rate, row), answer in zip(cases, answers, strict=True):
            expected = row in audit_sample(seed, sequence, rows, rate)
            assert answer == expected, (seed.hex(), sequence, rows, rate, row)
            sampled += expected
    assert CASES // 10 < sampled < 9 * CASES // 10


def _case(rng: random.Random) -> tuple[bytes, int, int, int, int]:
    """(seed, sequence, rows, rate, row): small and large rates alike, and now and then the always-audited row."""
    rows = rng.choice((1, 2, 7, rng.randint(1, 24)))
    rate = rng.choice((1, rng.randint(1, AUDIT_EVERYTHING), AUDIT_EVERYTHING - 1, AUDIT_EVERYTHING))
    seed = rng.randbytes(8).rjust(32, b"\0")
    return seed, rng.randrange(1 << 28), rows, rate, rng.randrange(rows)
