"""A relay as a process: what it serves, when, to whom, and what it never does."""

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from storage.keys import object_key
from storage.relay.server import ServeWeights
from storage.weights.manifest import Manifest
from tests.storage.mirror import mirror
from tests.storage.relay.running import RelayProcess, Upstream, relay, wait_for
from tests.storage.weights.folders import OWNER, PUBLISHER, ShardStore, publish
from tests.storage.weights.stepping import Origin

BIG = 600_000


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, ShardStore]:
    """A step of one shard of BIG bytes."""
    folder, store = tmp_path_factory.mktemp("big"), ShardStore()
    (folder / "model.safetensors").write_bytes(bytes(number % 251 for number in range(BIG)))
    return publish(folder, store, PUBLISHER, 0, None, OWNER, shard_size=1 << 20), store


def test_whoever_asks_for_what_is_on_its_way_gets_it_from_one_download(
    big: tuple[Manifest, ShardStore], tmp_path: Path
) -> None:
    manifest, store = big
    key, up = manifest.shards()[0].key, Upstream(store, slice=200_000)
    with mirror(up) as base, relay(tmp_path / "relay", [base], [manifest.digest]) as one, ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(one.get, key), pool.submit(one.get, key, Range="bytes=100000-199999")]
        wait_for("both wait", lambda: one.figures()["transfers"] == 2)
        up.go.release(3)
        whole, part = (answer.result() for answer in asked)
        assert (whole.status_code, whole.content) == (200, store[key])
        assert (part.status_code, part.content) == (206, store[key][100_000:200_000])
        assert up.asked[key] == 1


def test_a_wrong_shard_is_never_sent(big: tuple[Manifest, ShardStore], tmp_path: Path) -> None:
    """The origin lies in the last byte only."""
    manifest, store = big
    key = manifest.shards()[0].key
    up = Upstream(store | {key: store[key][:-1] + b"x"})
    with mirror(up) as base, relay(tmp_path / "r", [base], [manifest.digest], again=300.0) as one:
        for _ in range(2):
            assert one.get(key).status_code == 404
        assert one.figures()["objects"] == 1, "the manifest alone"
        assert up.asked[key] == 1, "it asks upstream again later"


@pytest.mark.parametrize(("asked", "status", "start", "end"), [
    ("bytes=0-", 206, 0, BIG),
    ("bytes=599999-", 206, 599_999, BIG),
    ("bytes=10-19", 206, 10, 20),
    ("bytes=10-99999999", 206, 10, BIG),
    ("bytes=600000-", 416, 0, 0),
    ("bytes=20-10", 400, 0, 0),
    ("bytes=-5", 206, BIG - 5, BIG),
    ("bytes=0-1,5-6", 200, 0, BIG),
    ("bytes=99999999999999999999-", 416, 0, 0),
    ("lines=1-2", 400, 0, 0),
])  # fmt: skip
def test_ranges(ranged: tuple[RelayProcess, str, bytes], asked: str, status: int, start: int, end: int) -> None:
    one, key, data = ranged
    answer = one.get(key, Range=asked)
    assert answer.status_code == status
    if status < 400:
        assert answer.content == data[start:end]
        head = httpx.head(f"{one.url}/{key}", headers={"Range": asked}, trust_env=False, timeout=60)
        assert (head.status_code, head.headers["content-length"]) == (status, str(end - start))


@pytest.fixture(scope="module")
def ranged(
    big: tuple[Manifest, ShardStore], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RelayProcess, str, bytes]]:
    manifest, store = big
    key = manifest.shards()[0].key
    with mirror(Upstream(store)) as base, relay(tmp_path_factory.mktemp("ranged"), [base], [manifest.digest]) as one:
        yield one, key, store[key]


def test_only_what_a_manifest_names_is_served_and_asked_for(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("s")
    unnamed = object_key("shards", b"\1" * 32)
    up = Upstream(origin.objects | {unnamed: b"x"})
    with mirror(up) as base, relay(tmp_path / "relay", [base], [origin.manifests[0].digest]) as one:
        for path in (unnamed, "../../s", "..%2f..%2fs", "shards/../../s", "/etc/passwd", "shards/", "", "%00"):
            with socket.create_connection(("127.0.0.1", one.port), timeout=20) as line:
                line.sendall(f"GET /v1/objects/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                assert line.recv(4096).startswith(b"HTTP/1.1 404"), path
        assert httpx.post(one.url + "/" + unnamed, trust_env=False, timeout=60).status_code == 405
        assert set(up.asked) == {object_key("manifests", origin.manifests[0].digest)}


def test_limits_for_one_address(big: tuple[Manifest, ShardStore], tmp_path: Path) -> None:
    manifest, store = big
    key, up = manifest.shards()[0].key, Upstream(store, slice=BIG)
    limits = ServeWeights(rate=0.001, burst=6.0, transfers=1)
    with mirror(up) as base, relay(tmp_path / "relay", [base], [manifest.digest], limits=limits) as one:
        up.go.release()
        assert one.get(key).status_code == 200
        answers = [httpx.get(f"{one.root}/health", trust_env=False, timeout=60).status_code for _ in range(8)]
        assert answers[-1] == 429
        assert answers[0] == 200


def test_a_client_that_takes_nothing_holds_no_memory(tmp_path: Path) -> None:
    """A shard of 64 MB, eight clients that read nothing of it: the relay reads no further than they take."""
    folder, store = tmp_path / "model", ShardStore()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(bytes(64 << 20))
    manifest = publish(folder, store, PUBLISHER, 0, None, OWNER, shard_size=64 << 20)
    key = manifest.shards()[0].key
    with mirror(Upstream(store)) as base, relay(tmp_path / "relay", [base], [manifest.digest]) as one:
        assert one.get(key).status_code == 200
        status = Path(f"/proc/{one.pid}/statm")
        before = int(status.read_text().split()[1]) * 4096
        lines = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(8)]
        for line in lines:
            line.sendall(f"GET /v1/objects/{key} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        wait_for("they are served", lambda: one.figures()["transfers"] == 8)
        time.sleep(1)
        assert int(status.read_text().split()[1]) * 4096 - before < 48 << 20
        for line in lines:
            line.close()
        wait_for("who is gone is forgotten", lambda: one.figures()["transfers"] == 0)


def test_a_killed_relay_checks_what_it_left_before_it_serves_it(origin: Origin, tmp_path: Path) -> None:
    up = Upstream(origin.objects)
    digests = [origin.manifests[0].digest]
    with mirror(up) as base, relay(tmp_path / "relay", [base], digests) as one:
        keys = [shard.key for shard in origin.manifests[0].shards()][:3]
        for key in keys:
            assert one.get(key).content == origin.objects[key]
        one.kill()
        (tmp_path / "relay" / keys[0]).write_bytes(b"poison")
        (tmp_path / "relay" / "shards" / "unknown").write_bytes(b"of no step")
        before = up.asked.copy()
        one.start()
        for key in keys:
            assert one.get(key).content == origin.objects[key]
        assert [up.asked[key] - before[key] for key in keys] == [1, 0, 0]
        assert not (tmp_path / "relay" / "shards" / "unknown").exists()


@pytest.mark.parametrize("damage", ["truncated", "gone"])
def test_what_the_disk_has_lost_is_fetched_anew(big: tuple[Manifest, ShardStore], tmp_path: Path, damage: str) -> None:
    manifest, store = big
    key, up = manifest.shards()[0].key, Upstream(store)
    with mirror(up) as base, relay(tmp_path / "relay", [base], [manifest.digest]) as one:
        for times in (1, 2):
            assert one.get(key).content == store[key]
            assert up.asked[key] == times
            path = tmp_path / "relay" / key
            path.unlink() if damage == "gone" else path.write_bytes(store[key][:1000])


def test_a_full_room_keeps_the_most_wanted_and_serves_the_rest_from_nothing(origin: Origin, tmp_path: Path) -> None:
    digests = [origin.manifests[0].digest]
    with mirror(Upstream(origin.objects)) as base, relay(tmp_path / "relay", [base], digests, room=10_000) as one:
        assert one.status()["bytes"] <= 10_000
        shards = {shard.key: shard.size for shard in origin.manifests[0].shards()}
        answers = {key: one.get(key).status_code for key in shards}
        assert set(answers.values()) == {200, 404}
        assert sum(shards[key] for key, status in answers.items() if status == 200) <= 10_000
        held = sum(path.stat().st_size for path in (tmp_path / "relay").rglob("*") if path.is_file())
        assert held <= 10_000


def test_those_who_take_a_shard_slowly_leave_it_files_to_open(tmp_path: Path) -> None:
    """Each takes a connection and a file, of the few that a system allows a process at first."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "model.safetensors").write_bytes(bytes(24 << 20))
    store = ShardStore()
    manifest = publish(tmp_path / "folder", store, PUBLISHER, 0, None, OWNER)
    shard = manifest.shards()[0]
    with mirror(Upstream(store)) as base, contextlib.ExitStack() as stack:
        limits = ServeWeights(transfers=64)
        one = stack.enter_context(relay(tmp_path / "relay", [base], [manifest.digest], limits=limits, open_files=64))
        assert len(one.get(shard.key).content) == shard.size
        for number in range(40):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", one.port), timeout=10))
            line.sendall(f"GET /v1/objects/{shard.key} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert len(line.makefile("rb").read(4096)) == 4096, f"client {number}"
