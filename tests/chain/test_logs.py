"""What of an endpoint's logs is believed, and what a follower makes of nonsense."""

from pathlib import Path
from typing import Any

import pytest

from chain.client import ChainClient
from chain.indexer.follower import Follower
from chain.indexer.logs import accepted
from protocol.errors import UnreachableError
from tests.chain.following import amounts, follow, mint
from tests.chain.proxy import Proxy
from tests.conftest import Deployed

HASH = b"\7" * 32


def log(block: int = 5, index: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "address": "0x" + "11" * 20,
        "topics": ["0x" + "22" * 32],
        "data": "0x",
        "blockNumber": hex(block),
        "blockHash": "0x" + (HASH.hex() if block == 9 else "33" * 32),
        "transactionHash": "0x" + "44" * 32,
        "logIndex": hex(index),
        "blockTimestamp": "0x5",
    } | changes


def test_a_log_is_kept_with_the_members_that_are_used_and_no_others() -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    given = [log(5, 0, removed=False, more=deep, transactionIndex="0x1"), log(5, 1), log(9, 0), log(6, removed=True)]
    assert accepted(given, 5, 9, HASH) == [log(5, 0), log(5, 1), log(9, 0)]
    unstamped = log(5)
    del unstamped["blockTimestamp"]
    assert accepted([unstamped, log(6, blockTimestamp=None)], 5, 9, HASH) == [
        unstamped,
        {name: value for name, value in log(6).items() if name != "blockTimestamp"},
    ]


NONSENSE: dict[str, Any] = {
    "null": None,
    "a text": "0x",
    "numbers": [1],
    "lists": [[]],
    "an empty log": [{}],
    "a null member": [log(topics=None)],
    "a number for a topic": [log(topics=[7])],
    "text that is no hex": [log(data="0xzz")],
    "half a byte": [log(data="0x1")],
    "half a surrogate pair": [log(transactionHash="0x" + "\ud800" * 64)],
    "a short hash": [log(blockHash="0x33")],
    "an object for a hash": [log(transactionHash={})],
    "a huge index": [log(index=1 << 80)],
    "a negative index": [log(logIndex="-0x1")],
    "a huge time": [log(blockTimestamp="0x" + "f" * 64)],
    "another block": [log(10)],
    "the last block with another hash": [log(9, blockHash="0x" + "33" * 32)],
    "the same log twice": [log(5), log(5)],
    "logs out of order": [log(6), log(5)],
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_as_nonsense(answer: Any) -> None:
    with pytest.raises(UnreachableError, match=r"the chain's endpoint (returns|answers)"):
        accepted(answer, 5, 9, HASH)


def test_nonsense_moves_a_follower_to_the_next_endpoint_and_leaves_nothing(
    deployed: Deployed, proxy: Proxy, tmp_path: Path
) -> None:
    mint(deployed, 1)
    client = ChainClient([proxy.url, deployed.chain.url], 31337)
    follower = Follower(client, deployed.deployment, tmp_path / "events.db")
    proxy.rule = lambda request: {"result": [{"x": 1}]} if request["method"] == "eth_getLogs" else None
    with pytest.raises(UnreachableError):
        follower.poll()
    assert list(follower.history()) == []
    assert amounts(follower.poll().events) == [1]
    assert client.url == deployed.chain.url


@pytest.mark.parametrize("block", [{}, [], "0x", {"number": "0x1"}, {"number": {}, "hash": 7}], ids=repr)
def test_a_malformed_block_moves_to_the_next_endpoint(
    deployed: Deployed, proxy: Proxy, tmp_path: Path, block: Any
) -> None:
    follower = follow(deployed, tmp_path)
    client = ChainClient([proxy.url, deployed.chain.url], 31337)
    proxy.rule = lambda request: {"result": block} if request["method"] == "eth_getBlockByNumber" else None
    assert client.head().number == follower.poll().head
    assert client.url == deployed.chain.url
    with pytest.raises(UnreachableError, match="malformed block"):
        ChainClient([proxy.url], 31337, patience=0.3).head()
