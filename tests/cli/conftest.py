"""What tests of commands share: a deployment to act on, a key, and what is in the way."""

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from chain.suite import Suite
from protocol.api.run import PoolAccess
from runtime import keystore
from tests.cli.muster import Key, Muster, make_key
from tests.cli.pool_files import CONFIG, TERMS, StubService, create_pool
from tests.conftest import Deployed
from tests.storage.mirror import mirror, send


@pytest.fixture
def muster(tmp_path: Path, shared_suite: Deployed) -> Muster:
    """With a good deployment and a good RPC."""
    return Muster(tmp_path, shared_suite.folder, shared_suite.chain.url)


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return make_key(tmp_path, "key")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


@pytest.fixture
def wrong_chain() -> Iterator[str]:
    """An RPC of chain 1."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        one = isinstance(asked, dict)
        answers = [{"jsonrpc": "2.0", "id": a["id"], "result": "0x1"} for a in ([asked] if one else asked)]
        send(handler, 200, json.dumps(answers[0] if one else answers).encode())

    with mirror(answer) as url:
        yield url


@pytest.fixture
def service() -> Iterator[StubService]:
    stub = StubService()
    with mirror(stub.answer) as stub.url:
        yield stub


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; nothing of the developer's environment is seen."""
    for name in ("MUSTER_PROFILE", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("runtime.keystore.SCRYPT_N", keystore.LIGHT_SCRYPT_N)
    return tmp_path


@pytest.fixture
def suite(shared_suite: Deployed) -> Suite:
    """The contracts as the owner of `pool` uses them."""
    made: Suite = shared_suite.suite(shared_suite.chain.account())
    return made


@pytest.fixture
def pool(service: StubService, shared_suite: Deployed, suite: Suite, tmp_path: Path) -> int:
    """A pool that anybody may join, whose service is the stub."""
    number = create_pool(suite, tmp_path, CONFIG.digest, TERMS.replace("invite_only = true", "invite_only = false"))
    suite.court.announce_service(number, service.url).send()
    service.access = PoolAccess(
        pool=number, rpc=[shared_suite.chain.url], config_hash=CONFIG.digest.hex(),
        deployment=suite.deployment.model_dump_json(),
    )  # fmt: skip
    return number
