"""URLs that strangers choose do not lead into private networks, whatever they are written as."""

import hashlib
import os
import socket
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.accounts import Account
from protocol.api.work import UploadTicket
from protocol.http.reach import ANYWHERE, PUBLIC, Reach, RefusedAddressError, is_public
from protocol.identity import PoolId
from runtime.orchestrator_client import OrchestratorClient
from storage.keys import object_key
from storage.s3 import AccessKey, Presigner, S3Settings
from storage.transfers import HttpObjects, download, http_client, upload
from tests.storage.mirror import mirror, redirect_to, send

DATA = os.urandom(500)
SPELLINGS = "127.0.0.1 localhost 2130706433 0x7f.1 017700000001 [::1] 0 u:p@127.0.0.1 1.1.1.1@127.0.0.1"
KEY = object_key("rollouts", hashlib.sha256(DATA).digest())


def honest(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, DATA)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that were connected to."""
    found: list[str] = []
    connect = socket.create_connection

    def seen(address: tuple[str, int], *args: Any, **options: Any) -> socket.socket:
        found.append(address[0])
        return connect(address, *args, **options)

    monkeypatch.setattr(socket, "create_connection", seen)
    return found


def resolve_to(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[list[str]]]) -> None:
    """Let names resolve to these addresses, one list after the other, the last one for ever."""
    real = socket.getaddrinfo

    def answer(host: str, *args: Any, **options: Any) -> Any:
        if host not in names:
            return real(host, *args, **options)
        turns = names[host]
        addresses = turns.pop(0) if len(turns) > 1 else turns[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


PRIVATE = """
127.0.0.1 127.9.9.9 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 100.100.100.200 192.0.0.192
168.63.129.16 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 198.18.0.1 :: ::1 ::7f00:1 fe80::1 fe80::1%eth0 fec0::1
fc00::1 fd00:ec2::254 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::7f00:1
2002:7f00:1:: 2001:db8::1 ::ffff:0:7f00:1 192.88.99.1 3fff::1
2001:4860::5efe:7f00:1 2001:4860::200:5efe:a00:1 2002:a9fe:a9fe::1
"""


def test_private_and_public_addresses() -> None:
    assert [address for address in PRIVATE.split() if is_public(address)] == []
    public = ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "64:ff9b::101:101"]
    assert [address for address in public if is_public(address)] == public


@pytest.mark.parametrize("host", SPELLINGS.split())
def test_no_spelling_of_this_machine_is_reached(host: str, asked: list[str]) -> None:
    with mirror(honest) as base:
        url = f"http://{host}:{base.rpartition(':')[2]}/{KEY}"
        with pytest.raises(RefusedAddressError, match="private network; if that network is yours"):
            download(url, KEY, 1000, http_client())
    assert asked == []


def test_a_stranger_is_not_followed_inside(asked: list[str]) -> None:
    with mirror(honest) as base:
        objects = HttpObjects([base])
        assert objects(KEY, 1000) == DATA, "the operator named this one"
        asked.clear()
        with pytest.raises(RefusedAddressError):
            objects.elsewhere(f"{base}/{KEY}", KEY, 1000)
        assert asked == []
        allowed = HttpObjects([base], allow_private=True)
        assert allowed.elsewhere(f"{base}/{KEY}", KEY, 1000) == DATA
        objects.close()
        allowed.close()


def test_a_redirect_reaches_the_own_address_and_no_other_private_one(asked: list[str]) -> None:
    with mirror(honest) as bucket:
        with mirror(lambda h: send(h, 307, Location=f"{bucket}/x")) as service:
            objects = HttpObjects([service])
            assert objects(KEY, 1000) == DATA, "service and bucket on one machine need no option"
            objects.close()
    for target in ("169.254.169.254/latest/meta-data", "10.0.0.1", "127.0.0.2:1", "[::1]:1"):
        with mirror(redirect_to(f"http://{target}/", 307)) as service:
            asked.clear()
            with pytest.raises(RefusedAddressError):
                HttpObjects([service])(KEY, 1000)
            assert set(asked) == {"127.0.0.1"}


def test_a_name_is_resolved_once(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    """A name that is public when it is judged and private when it is connected to gains nothing."""
    resolve_to(monkeypatch, {"rebind.example": [["203.0.113.1"], ["127.0.0.1"]]})
    assert not is_public("203.0.113.1"), "a documentation address: nothing answers there"
    monkeypatch.setattr("protocol.http.reach.is_public", lambda address: address == "203.0.113.1")

    def refuse(address: tuple[str, int], *_: Any, **__: Any) -> socket.socket:
        asked.append(address[0])
        raise OSError("nothing listens")

    monkeypatch.setattr(socket, "create_connection", refuse)
    client = http_client(PUBLIC)
    with pytest.raises(httpx.ConnectError):
        client.get("http://rebind.example/")
    assert asked == ["203.0.113.1"]


def test_one_private_address_among_public_ones_is_enough(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    resolve_to(monkeypatch, {"mixed.example": [["1.1.1.1", "127.0.0.1"]]})
    with pytest.raises(RefusedAddressError, match=r"mixed\.example leads to 127\.0\.0\.1"):
        http_client(PUBLIC).get("http://mixed.example/")
    assert asked == []
    assert ANYWHERE.addresses("mixed.example", 80) == ["1.1.1.1", "127.0.0.1"]
    assert Reach(own=("http://127.0.0.1:9", "nonsense", "http://")).addresses("mixed.example", 80)


def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, {"two.example": [["127.0.0.2", "127.0.0.1"]]})
    with mirror(honest) as base:
        url = f"http://two.example:{base.rpartition(':')[2]}/{KEY}"
        client = http_client(ANYWHERE)
        assert download(url, KEY, 1000, client) == DATA
        client.close()


def ticket(endpoint: str) -> UploadTicket:
    settings = S3Settings(endpoint=endpoint, bucket="muster", credentials=Path("unused"))
    return Presigner(settings, AccessKey(access_key="a", secret_key="b")).presign_put(
        KEY, len(DATA), hashlib.sha256(DATA).digest()
    )


def test_a_ticket_does_not_upload_inside(asked: list[str]) -> None:
    inside = ticket("http://169.254.169.254")
    with pytest.raises(RefusedAddressError):
        upload(inside, DATA, http_client())
    account = Account.create()
    pool = PoolId(1, "0x" + "11" * 20, 1)
    service = OrchestratorClient("http://127.0.0.1:1", account, pool, allow_private=False)
    with pytest.raises(RefusedAddressError):
        upload(inside, DATA, service._uploads)
    assert asked == []
    with pytest.raises(httpx.ConnectError):
        service._uploads.put(ticket("http://127.0.0.1:1").url, content=DATA)
    assert asked == ["127.0.0.1"], "the service's own machine"
    service.close()
