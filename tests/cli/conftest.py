"""What tests of commands share: a deployment to act on, a key, and what is in the way."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from chain.suite import Suite
from cli.pool.config import load_terms
from cli.run.up import LocalFaucet
from protocol.api.run import PoolAccess
from runtime import keystore
from tests.cli.actors import TERMS
from tests.cli.joining import CONFIG, StubService
from tests.cli.muster import Key, Muster, make_key
from tests.conftest import TOKEN, Deployed


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


class WrongChain(BaseHTTPRequestHandler):
    """An RPC of chain 1."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        one = isinstance(asked, dict)
        answers = [{"jsonrpc": "2.0", "id": a["id"], "result": "0x1"} for a in ([asked] if one else asked)]
        body = json.dumps(answers[0] if one else answers).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def wrong_chain() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), WrongChain)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def service() -> Iterator[StubService]:
    stub = StubService()
    yield stub
    stub.server.shutdown()
    stub.server.server_close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; nothing of the developer's environment is seen."""
    for name in ("MUSTER_PROFILE", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("runtime.keystore.SCRYPT_N", keystore.LIGHT_SCRYPT_N)
    return tmp_path


@pytest.fixture
def pool(service: StubService, shared_suite: Deployed, tmp_path: Path) -> int:
    """A pool that anybody may join, whose service is the stub."""
    owner = shared_suite.chain.account()
    suite: Suite = shared_suite.suite(owner)
    faucet = LocalFaucet.of(suite)
    assert faucet is not None
    faucet.tokens(str(owner.address), 500 * TOKEN)
    path = tmp_path / "terms.toml"
    path.write_text(TERMS.replace("invite_only = true", "invite_only = false"))
    number = suite.pools.create_pool(load_terms(path, CONFIG.digest), 500 * TOKEN).send()
    suite.court.announce_service(number, service.url).send()
    service.access = PoolAccess(
        pool=number, rpc=[shared_suite.chain.url], config_hash=CONFIG.digest.hex(),
        deployment=suite.deployment.model_dump_json(),
    )  # fmt: skip
    return number
