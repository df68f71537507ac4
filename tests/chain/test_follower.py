"""The event follower: where it goes on, what it refuses and believes, endpoints that give too little, full disks."""

import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import encode

from chain.client import ChainClient
from chain.indexer.follower import Follower
from chain.indexer.logs import Event, accepted
from chain.indexer.store import EventStore
from chain.rpc import ChainReader, FailoverProvider
from chain.transactions import Call
from protocol.errors import ConfigError, MusterError, UnreachableError
from tests.chain.conftest import ALICE, amounts, follow, mint
from tests.chain.proxy import Proxy, answering
from tests.conftest import TOKEN, Deployed


def test_it_goes_on_where_it_stopped(deployed: Deployed, tmp_path: Path) -> None:
    mint(deployed, 1)
    follower = follow(deployed, tmp_path)
    first = follower.poll()
    assert amounts(first.events) == [1]
    assert first.rollback_to is None
    assert follower.poll().events == []
    follower.close()
    mint(deployed, 2)
    follower = follow(deployed, tmp_path)
    assert amounts(list(follower.history())) == [1]
    batch = follower.poll()
    assert amounts(batch.events) == [2]
    (event,) = batch.events
    block = deployed.chain.client().block(event.block)
    assert block is not None
    assert (event.block_hash, event.timestamp) == (block.hash, block.time)
    assert batch.head == follower.head == block.number
    assert follower.time == deployed.chain.client().now()
    assert amounts(list(follower.history())) == [1, 2]


@pytest.mark.parametrize(
    "text", [b"\xff\xfe", b"\x80" * 3000, b"\xed\xa0\x80", b"\0\n"], ids=["bom", "long", "surrogate", "nul"]
)
def test_text_that_is_none_stops_nobody(deployed: Deployed, tmp_path: Path, text: bytes) -> None:
    """Any account may emit a mirror's URL, and the contract does not read it."""
    announce = deployed.suite(deployed.governance).court.announce_mirror(0, 0, "")
    data = announce.data[:4] + encode(["uint256", "uint256", "bytes"], [0, 0, text])
    deployed.suite(deployed.governance).client.send(Call(announce.to, data, "Court.announceMirror"))
    follower = follow(deployed, tmp_path)
    (event,) = [event for event in follower.poll().events if event.name == "MirrorAnnounced"]
    assert event.args["uri"] == text.decode("utf-8", "replace")
    event.args["uri"].encode()


def test_another_chain_is_refused(deployed: Deployed, tmp_path: Path) -> None:
    follower = follow(deployed, tmp_path)
    follower.poll()
    chain = deployed.chain
    chain.kill()
    time.sleep(1.1)
    chain.start()
    with pytest.raises(ConfigError, match="another chain"):
        follower.poll()
    follower.close()
    with pytest.raises(ConfigError, match="another chain"):
        follow(deployed, tmp_path)


def test_a_file_of_another_deployment_is_refused(deployed: Deployed, tmp_path: Path) -> None:
    follow(deployed, tmp_path).close()
    moved = deployed.deployment.model_copy(update={"start_block": 3})
    with pytest.raises(ConfigError, match=r"follows another deployment \(differs in start\)"):
        Follower(deployed.chain.client(), moved, tmp_path / "events.db")


def test_a_file_in_use_or_damaged_is_named(deployed: Deployed, tmp_path: Path) -> None:
    follower = follow(deployed, tmp_path)
    with pytest.raises(ConfigError, match="another process uses"):
        follow(deployed, tmp_path)
    follower.close()
    for leftover in tmp_path.glob("events.db-*"):
        leftover.unlink()
    (tmp_path / "events.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match=r"events.db is damaged.*delete it"):
        follow(deployed, tmp_path)


def test_ranges_shrink_to_what_the_endpoint_allows(deployed: Deployed, proxy: Proxy, tmp_path: Path) -> None:
    for base_units in range(1, 6):
        mint(deployed, base_units)
        deployed.chain.mine(40)
    ranges: list[int] = []

    def rule(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "eth_getLogs" or "fromBlock" not in request["params"][0]:
            return None
        query = request["params"][0]
        ranges.append(int(query["toBlock"], 16) - int(query["fromBlock"], 16) + 1)
        too_many = ranges[-1] > 20
        return {"error": {"code": -32602, "message": "query returned more than 10000 results"}} if too_many else None

    proxy.rule = rule
    follower = Follower(ChainClient([proxy.url], 31337), deployed.deployment, tmp_path / "events.db")
    assert amounts(follower.poll().events) == [1, 2, 3, 4, 5]
    assert max(ranges) > 100 > 20 >= ranges[-1]


def test_ranges_shrink_where_a_limit_is_told_as_trouble(deployed: Deployed, proxy: Proxy, tmp_path: Path) -> None:
    mint(deployed, 1)
    deployed.chain.mine(100)

    def rule(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "eth_getLogs" or "fromBlock" not in request["params"][0]:
            return None
        query = request["params"][0]
        too_many = int(query["toBlock"], 16) - int(query["fromBlock"], 16) >= 20
        return {"error": {"code": -32005, "message": "limit exceeded"}} if too_many else None

    proxy.rule = rule
    reader = ChainReader(FailoverProvider([proxy.url], 31337, patience=0.2))
    follower = Follower(reader, deployed.deployment, tmp_path / "events.db")
    events: list[Event] = []
    for _ in range(6):
        with suppress(UnreachableError):
            events += follower.poll().events
    assert amounts(events) == [1]
    reader.close()


@pytest.mark.parametrize("words", ["pruned history", "history of block 5 is pruned"])
def test_nothing_is_lost_when_a_poll_fails_half_way(
    deployed: Deployed, proxy: Proxy, tmp_path: Path, words: str
) -> None:
    for base_units in (1, 2, 3):
        mint(deployed, base_units)
    seen = [0]

    def rule(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] == "eth_getLogs":
            seen[0] += 1
            if seen[0] == 2:
                return {"error": {"code": -32000, "message": words}}
        return None

    proxy.rule = rule
    follower = Follower(ChainClient([proxy.url], 31337), deployed.deployment, tmp_path / "events.db")
    follower._range = 1
    with pytest.raises(MusterError, match=r"gives no logs of block .*full history"):
        follower.poll()
    assert amounts(follower.poll().events) == [1, 2, 3]


def test_it_keeps_up_with_a_long_history(deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = deployed.chain
    suite = deployed.suite(deployed.governance)
    chain.rpc("evm_setAutomine", False)
    call = suite.token.mint(ALICE, TOKEN)
    threads = [threading.Thread(target=lambda: [suite.client.send(call) for _ in range(10)]) for _ in range(10)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        chain.mine()
        time.sleep(0.1)
    chain.mine(1000)
    client, exchanges = chain.client(), list[object]()
    post = client.provider._post

    def noted(url: str, body: object) -> object:
        exchanges.append(body)
        return post(url, body)

    monkeypatch.setattr(client.provider, "_post", noted)
    follower = Follower(client, deployed.deployment, tmp_path / "events.db")
    events = follower.poll().events
    assert amounts(events) == [TOKEN] * 100
    assert len(exchanges) < 20, "not one for each block"


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
    proxy.rule = answering("eth_getLogs", {"result": [{"x": 1}]})
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
    proxy.rule = answering("eth_getBlockByNumber", {"result": block})
    assert client.head().number == follower.poll().head
    assert client.url == deployed.chain.url
    with pytest.raises(UnreachableError, match="malformed block"):
        ChainClient([proxy.url], 31337, patience=0.3).head()


def test_known_blocks_cost_what_is_asked_for_and_not_the_history(tmp_path: Path) -> None:
    store = EventStore(tmp_path / "events.sqlite", {"chain": "1"})
    blocks = [(number, number.to_bytes(32, "big")) for number in range(1, 6001)]
    log = {"logIndex": "0x0", "blockHash": "0x" + "11" * 32}
    store.append([{"blockNumber": hex(number), **log} for number in range(1, 6001, 2)], blocks[5000:])
    known = {number: bytes.fromhex("11" * 32) for number in range(1, 6001, 2)} | dict(blocks[5000:])
    steps, below, found = Counter[str](), 6001, list[tuple[int, bytes]]()
    while part := store.known_blocks(below, 90):
        found += part
        below = part[-1][0]
    assert [number for number, _ in found] == sorted(known, reverse=True)
    store._db.set_progress_handler(lambda: steps.update(["100"]), 100)
    assert len(store.known_blocks(6001, 4)) == 4
    assert steps["100"] < 20
    store.close()


def test_a_power_cut_at_the_first_start_leaves_a_store_that_opens(tmp_path: Path) -> None:
    identity, path = {"chain": "1", "genesis": "0x00", "start": "7"}, tmp_path / "events.sqlite"
    store = EventStore(path, identity)
    database, log = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    for kept in range(0, len(log) + 1, 1024):
        cut = tmp_path / f"{kept}.sqlite"
        cut.write_bytes(database)
        Path(f"{cut}-wal").write_bytes(log[:kept])
        opened = EventStore(cut, identity)
        assert list(opened.logs()) == []
        opened.close()
    store.close()


BIG = {"data": "0x" + "ab" * 200_000}


def big_log(block: int) -> dict[str, str]:
    return {"blockNumber": hex(block), "logIndex": "0x0", "blockHash": "0x" + "11" * 32, **BIG}


def test_what_does_not_fit_is_said_and_stored_later(tmp_path: Path) -> None:
    store = EventStore(tmp_path / "events.sqlite", {"chain": "1"})
    store.append([], [(1, bytes(32))])
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages + 4}")
    for _ in range(2):
        with pytest.raises(
            MusterError, match=r"events\.sqlite cannot be written: .*full; make room on its disk"
        ) as caught:
            store.append([big_log(2)], [(2, bytes(32))])
        assert not isinstance(caught.value, ConfigError), "a process would end by it"
        assert (store.cursor, list(store.logs())) == (1, [])
    store._db.execute("PRAGMA max_page_count = 100000")
    store.append([big_log(2)], [(2, bytes(32))])
    assert (store.cursor, len(list(store.logs()))) == (2, 1)
    store.close()
