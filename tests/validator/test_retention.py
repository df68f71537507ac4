"""Retained files: on disk whole or not at all, shared out by owner, served only while disputed."""

import hashlib
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from protocol.errors import ConfigError
from storage.keys import MissingObjectError, object_key
from storage.s3 import Bucket
from storage.transfers import download
from tests.chain.game import FEE
from tests.localnet.services.running import ServiceProcess, running, settings_of
from tests.storage.mirror import NEAR
from tests.validator.daemon_world import FAMILY, ValidatorWorld, second_pool
from validator.config import RepublishConfig, ServeConfig
from validator.retention import (
    BYTES_OF_A_FEE,
    BucketServing,
    FileServer,
    RetentionStore,
    Tenant,
    has_room,
    open_serving,
    tenant_of,
)

FILES = [os.urandom(1000) for _ in range(4)]
HASHES = [hashlib.sha256(data).digest() for data in FILES]


def test_a_file_is_kept_until_it_is_dropped_also_through_a_restart(tmp_path: Path) -> None:
    files = RetentionStore(tmp_path, 1 << 20)
    assert files.keep((1, 7), HASHES[0], FILES[0])
    assert files.keep((1, 7), HASHES[0], FILES[0]), "a second time changes nothing"
    (tmp_path / "notes.txt").write_text("not ours")
    again = RetentionStore(tmp_path, 1 << 20)
    assert again.has((1, 7), HASHES[0])
    assert not again.has((1, 7), HASHES[1])
    assert not again.has((2, 7), HASHES[0])
    assert again.read(HASHES[0]) == FILES[0]
    assert again.read(HASHES[1]) is None
    again.drop((1, 7), HASHES[0])
    assert again.read(HASHES[0]) is None
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_reorganisation_puts_another_file_in_a_place_and_maybe_the_first_one_back(tmp_path: Path) -> None:
    """Both are kept, through a kill as well, until the chain has shown twice which one it wants."""
    files = RetentionStore(tmp_path, 1 << 20)
    assert all(files.keep((1, 7), HASHES[number], FILES[number]) for number in (0, 1))
    again = RetentionStore(tmp_path, 1 << 20)
    assert all(again.has((1, 7), HASHES[number]) for number in (0, 1))
    again.drop((1, 7), HASHES[0])
    assert [again.read(HASHES[number]) for number in (0, 1)] == [None, FILES[1]]


def test_a_full_store_says_so_and_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = RetentionStore(tmp_path, 5000)
    assert [files.keep((1, number), HASHES[number], FILES[number]) for number in range(4)] == [True, True, False, False]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1, "said once a minute"
    assert "file 2 of pool 1 IS NOT RETAINED" in errors[0]
    assert "keep_gib" in files.problem
    files.drop((1, 0), HASHES[0])
    assert files.keep((1, 3), HASHES[3], FILES[3])
    assert files.problem == ""
    assert sorted(files.files) == sorted(((1, number), HASHES[number]) for number in (1, 3))


def test_a_disk_that_takes_no_more_is_no_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "files"
    files = RetentionStore(folder, 1 << 20)
    folder.rmdir()
    folder.write_text("in the way")
    assert not files.keep((1, 0), HASHES[0], FILES[0])
    assert "IS NOT RETAINED" in caplog.text


WRITER = """
import hashlib, sys
from pathlib import Path
from validator.retention import RetentionStore
files = RetentionStore(Path(sys.argv[1]), 1 << 30)
for number in range(10_000):
    data = bytes([number % 251]) * 300_000
    files.keep((1, number), hashlib.sha256(data).digest(), data)
    print(number, flush=True)
"""


def test_a_kill_leaves_whole_files_only(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = [int(next(writer.stdout)) for _ in range(5)]
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    (tmp_path / ".1-99-x.parquet.0a0b0c0d.tmp").write_bytes(b"half")
    files = RetentionStore(tmp_path, 1 << 30)
    kept = files.files
    assert {(1, number) for number in said} <= {place for place, _ in kept}, "what it said to be kept is"
    for _, digest in kept:
        data = files.read(digest)
        assert data is not None
        assert hashlib.sha256(data).digest() == digest
    assert not list(tmp_path.glob(".*")), "what was half written is cleared away"


MIB = 1 << 20
LIMIT = 20 << 30
COST = 1600


class SharedStore:
    """Bytes held for each tenant, and how many files that were."""

    def __init__(self) -> None:
        self.held: dict[Tenant, int] = {}
        self.files = 0

    def takes(self, tenant: Tenant, size: int) -> bool:
        return has_room(LIMIT, list(self.held.items()), tenant, size)

    def fill(self, tenants: list[Tenant], size: int) -> None:
        """Each of these in turn keeps as many files of `size` bytes as it can."""
        for tenant in tenants:
            while self.takes(tenant, size):
                self.held[tenant] = self.held.get(tenant, 0) + size
                self.files += 1

    def bytes_of(self, chosen: bool) -> int:
        return sum(size for tenant, size in self.held.items() if tenant.chosen == chosen)


def names(count: int, word: str = "", fee: int = 1) -> list[Tenant]:
    """One owner of pools of a family, under so many names."""
    return [Tenant(f"0x{word}{number}", chosen=False, fee=fee) for number in range(count)]


def test_an_owner_with_many_pools_has_one_share(tmp_path: Path) -> None:
    def owner_of(pool: int) -> Tenant:
        return Tenant("honest" if pool == 9 else "hostile", chosen=True)

    files, data = RetentionStore(tmp_path, 8000, owner_of), [os.urandom(1000) for _ in range(9)]
    for pool in range(8):
        files.keep((pool, 0), sha256(data[pool]).digest(), data[pool])
    assert len(files.files) == 4
    assert [files.keep((9, number), sha256(data[8]).digest(), data[8]) for number in range(3)] == [True, True, False]


def test_an_owner_under_many_names_leaves_room_for_whoever_pays_more_for_a_byte() -> None:
    store, hostile, honest = SharedStore(), names(12), Tenant("honest", chosen=False)
    store.fill(hostile, 8 * MIB)
    assert not any(store.takes(name, 8 * MIB) for name in hostile)
    assert store.takes(honest, 2 * MIB), "a small file at the least fee"
    assert store.takes(replace(honest, fee=4), 8 * MIB), "a large one at four times that"
    assert not store.takes(honest, 8 * MIB), "not what pays as little as theirs"


def test_to_be_in_anothers_way_costs_what_it_pays_itself() -> None:
    """With the best choice of sizes, largest first, an enemy pays more than 1,600 least fees of each seat before files
    of 2 MiB find no room."""
    store = SharedStore()
    for size in (8 * MIB, 4 * MIB, 2 * MIB):
        store.fill(names(12, f"{size}-"), size)
    assert not store.takes(Tenant("honest", chosen=False), 2 * MIB)
    assert store.files > COST


def test_families_together_have_half_and_what_was_chosen_keeps_its_own() -> None:
    store = SharedStore()
    store.fill(names(12, fee=10**6), 64 * MIB)
    assert 0 < store.bytes_of(chosen=False) <= LIMIT // 2
    store.fill([Tenant("chosen", chosen=True)], 64 * MIB)
    assert store.bytes_of(chosen=True) > LIMIT // 5


def test_a_store_too_small_for_a_file_takes_none_and_one_byte_fits() -> None:
    tenant = Tenant("one", chosen=False)
    assert not has_room(0, [], tenant, 1)
    assert has_room(8, [], tenant, 1)
    assert not has_room(LIMIT, [], tenant, BYTES_OF_A_FEE)


def test_who_a_pools_files_belong_to_is_read_from_the_chain(world: ValidatorWorld) -> None:
    game = world.game
    least = game.state.params["withheldPenalty"] // 100
    assert tenant_of(game.state, game.pool) == Tenant(game.owner.address, True, FEE, least)
    assert not tenant_of(game.state, 99).chosen
    other = second_pool(world, family=FAMILY)
    found = tenant_of(other.state, other.pool)
    assert (found.owner, found.chosen) == (other.owner.address, False)


def test_a_disputed_file_goes_into_the_validators_bucket(tmp_path: Path) -> None:
    with running(ServiceProcess("s3", tmp_path / "data")) as service:
        settings, key = settings_of(service), object_key("rollouts", HASHES[0])
        serving = BucketServing(RepublishConfig(**settings.model_dump(), public_url="https://seat.example/"))
        assert serving.url(HASHES[0]) == f"https://seat.example/{key}"
        for _ in range(2):  # a kill before the announcement has it shown again
            serving.show(HASHES[0], FILES[0])
        assert Bucket(settings).get(key) == FILES[0]


def test_without_a_place_it_says_what_that_can_cost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config: Any = SimpleNamespace(serve=None, republish=None)
    assert open_serving(config, RetentionStore(tmp_path, 1)) is None
    assert "FINED unless they can show it" in caplog.text


@pytest.mark.parametrize("url", ["ftp://x", "x", "https://x/?a=b", "https://" + "x" * 500, "https://x/#a"])
def test_a_base_that_could_not_be_announced_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        ServeConfig(listen="127.0.0.1:1", public_url=url)


LARGE = random.Random(8).randbytes(200_000)
LARGE_DIGEST = hashlib.sha256(LARGE).digest()
KEY = object_key("rollouts", LARGE_DIGEST)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    store = RetentionStore(tmp_path, 1 << 30)
    assert store.keep((1, 1), LARGE_DIGEST, LARGE)
    serving = FileServer(ServeConfig(listen="127.0.0.1:0", public_url="https://seat.example/"), store)
    serving.shown = frozenset({LARGE_DIGEST})
    try:
        yield serving
    finally:
        serving.close()


def connected(serving: FileServer, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", serving.port), timeout=20, source_address=(source, 0))


def answer(serving: FileServer, request: bytes, source: str = "127.0.0.1") -> tuple[bytes, bytes]:
    """The head and the body that a raw request gets, from a client's address of the loopback network."""
    with connected(serving, source) as connection:
        connection.sendall(request)
        data = bytearray()
        with suppress(ConnectionResetError, TimeoutError):
            while part := connection.recv(1 << 16):
                data += part
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    return head, body


def get(target: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: x", "Connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def test_it_serves_what_is_disputed_by_its_hash(server: FileServer) -> None:
    base = f"http://127.0.0.1:{server.port}"
    assert server.url(LARGE_DIGEST) == f"https://seat.example/{KEY}"
    for prefix in ("", "/behind/a/proxy"):
        assert download(f"{base}{prefix}/{KEY}", KEY, len(LARGE), NEAR) == LARGE
    server.shown = frozenset()
    with pytest.raises(MissingObjectError):
        download(f"{base}/{KEY}", KEY, len(LARGE), NEAR)


@pytest.mark.parametrize(
    "target",
    [
        f"/../{KEY}x", "/rollouts/../../etc/passwd", "/etc/passwd", f"/{KEY.upper()}", "/", f"/{KEY}%00", f"/{KEY}/",
        f"/{object_key('shards', LARGE_DIGEST)}", f"/{object_key('rollouts', b'x' * 32)}", "/rollouts/" + "a" * 5000,
        "//{folder}/1-1-" + LARGE_DIGEST.hex() + ".parquet", "/rollouts/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        f"/{KEY}?x=../../etc/passwd&".replace(KEY, "rollouts/..%2f"), "http://elsewhere/etc/passwd", "/rollouts\\..\\x",
    ],
)  # fmt: skip
def test_no_path_leads_to_anything_else(target: str, server: FileServer, tmp_path: Path) -> None:
    head, body = answer(server, get(target.replace("{folder}", str(tmp_path))))
    assert head.startswith(b"HTTP/1.1 404 "), head
    assert b"root" not in body


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (get(f"/{KEY}", "Content-Length: 0", method="POST"), b"405"),
        (get(f"/{KEY}", "Content-Length: 9", method="PUT"), b"405"),
        (get(f"/{KEY}", method="TRACE"), b"405"),
        (get(f"/{KEY}", method="CONNECT"), b"405"),
        (get(f"/{KEY}\xff"), b"400"),
        (b"\0" * 9000, b"400"),
        (get(f"/{KEY}", "Range: bytes=5-1"), b"400"),
        (get(f"/{KEY}", "Range: bytes=a-b"), b"400"),
        (get(f"/{KEY}", "Range: pages=0-1"), b"400"),
        (get(f"/{KEY}", f"Range: bytes={len(LARGE)}-"), b"416"),
        (get(f"/{KEY}", "Range: bytes=" + "9" * 5000 + "-"), b"400"),
    ],
)
def test_hostile_requests_are_refused_and_stop_nothing(request_: bytes, code: bytes, server: FileServer) -> None:
    head, _ = answer(server, request_)
    assert head == b"" or head.split(b" ")[1] == code, head[:200]
    assert answer(server, get(f"/{KEY}"))[1] == LARGE


def test_ranges_give_at_most_the_file_and_a_client_can_go_on_where_it_stopped(server: FileServer) -> None:
    head, body = answer(server, get(f"/{KEY}", f"Range: bytes={len(LARGE) - 10}-"))
    assert (head.split(b" ")[1], body) == (b"206", LARGE[-10:])
    many = ",".join(f"{2 * number}-{2 * number}" for number in range(8000))
    overlapping = ",".join(["0-"] * 8000)
    for ranges in (many, overlapping):
        head, body = answer(server, get(f"/{KEY}", f"Range: bytes={ranges}"))
        assert len(body) <= len(LARGE), "a small request asks for no more than one that names no range"
    assert answer(server, get(f"/{KEY}", method="HEAD"))[1] == b""


def test_a_link_in_the_store_leads_nowhere(server: FileServer, tmp_path: Path) -> None:
    """Neither one that takes a file's place while the process runs, nor one that lies there when it starts."""
    secret, (path,) = tmp_path.parent / f"{tmp_path.name}-secret", tmp_path.iterdir()
    secret.write_bytes(b"a key")
    path.unlink()
    path.symlink_to(secret)
    head, body = answer(server, get(f"/{KEY}"))
    assert (head.split(b" ")[1], b"a key" in body) == (b"404", False)
    (tmp_path / f"1-2-{'ab' * 32}.parquet").symlink_to(tmp_path / "nowhere")
    (tmp_path / f"1-3-{'ab' * 32}.parquet").mkdir()
    assert RetentionStore(tmp_path, 1 << 20).files == {}


def test_one_address_has_a_bounded_part_of_the_connections_and_many_leave_room(server: FileServer) -> None:
    """Four addresses could once keep every juror from the file."""
    idle = [connected(server) for _ in range(8)]
    time.sleep(0.2)
    assert answer(server, get(f"/{KEY}")) == (b"", b"")
    idle += [connected(server, f"127.0.0.{number}") for number in range(2, 8) for _ in range(8)]
    assert answer(server, get(f"/{KEY}"), "127.0.0.9")[1] == LARGE
    for connection in idle:
        connection.close()
    time.sleep(0.2)
    assert answer(server, get(f"/{KEY}"))[1] == LARGE


def test_an_address_that_cannot_be_listened_at(server: FileServer, tmp_path: Path) -> None:
    for listen in (f"127.0.0.1:{server.port}", "nowhere", "127.0.0.1:99999"):
        with pytest.raises(ConfigError, match="cannot listen"):
            FileServer(ServeConfig(listen=listen, public_url="https://x"), RetentionStore(tmp_path, 1))
