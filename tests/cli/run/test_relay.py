"""`muster weights serve` against a real chain: from the URL of a pool's service to a source of its weights."""

import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.api.endpoints import ANNOUNCEMENT, OBJECTS
from protocol.api.work import Announcement, announce
from protocol.errors import MusterError
from runtime import keystore
from runtime.pool_client import PoolClient
from runtime.relay import PoolRelay, serve_as_peer
from runtime.server import HttpServer
from runtime.signed_client import SignedClient
from storage.keys import object_key
from storage.relay.server import ServeWeights
from storage.weights.manifest import Manifest, ManifestScope
from tests.chain.published_pool import PoolService, Published, pool_service
from tests.cli.muster import Muster
from tests.conftest import Deployed, free_port
from tests.storage.mirror import mirror, send
from tests.storage.relay.running import wait_for
from tests.storage.weights.folders import contents, publish


@pytest.fixture
def service() -> Iterator[tuple[PoolService, str]]:
    with pool_service() as made:
        yield made


@pytest.fixture
def published(shared_suite: Deployed, service: tuple[PoolService, str], tmp_path: Path) -> Published:
    made = Published(shared_suite, *service, tmp_path)
    made.publish()
    return made


@contextmanager
def node(published: Published, home: Path, **options: Any) -> Iterator[PoolClient]:
    """A node that has seen the chain; with `serve_weights` it serves, too."""
    client = PoolClient(published.config(home, **options), None)
    client.refresh()
    if "serve_weights" in options:
        serve_as_peer(client, published.owner)
    try:
        yield client
    finally:
        client.close()


def at_a_port(**options: Any) -> ServeWeights:
    return ServeWeights(host="127.0.0.1", port=free_port(), **options)


def test_one_command_serves_a_pool_and_announces_itself(muster: Muster, published: Published, tmp_path: Path) -> None:
    service, port = published.service, free_port()
    root = f"http://127.0.0.1:{port}"
    (tmp_path / "password").write_text("correct horse battery")
    (tmp_path / "password").chmod(0o600)
    account = keystore.create(tmp_path / "key.json", "correct horse battery", work_factor=keystore.LIGHT_SCRYPT_N)
    options = ["--pool", published.url, "--public-url", root, "--host", "127.0.0.1", "--port", str(port)]
    options += ["--home", str(tmp_path / "relay"), "--keystore", str(tmp_path / "key.json")]
    options += ["--password-file", str(tmp_path / "password"), "--allow-private-sources"]
    log = (tmp_path / "log").open("wb")
    command = [sys.executable, "-m", "cli.main", "weights", "serve", *options]
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"HOME": str(tmp_path)})

    def health() -> dict[str, int]:
        return dict(httpx.get(root + "/health", trust_env=False, timeout=60).json())

    def objects(*steps: Manifest) -> int:
        return len(steps) + len({shard.sha256 for step in steps for shard in step.shards()})

    try:
        wait_for("it holds the first step", lambda: health()["objects"] == objects(*published.steps))
        wait_for("it announces itself", lambda: service.announced)
        said = Announcement.model_validate(service.announced[-1])
        said.check(published.pool, time.time())
        assert (said.url, said.address) == (root, account.address)
        assert httpx.get(root + ANNOUNCEMENT, trust_env=False, timeout=60).json() == service.announced[-1]
        published.publish()
        wait_for("it follows the chain", lambda: health()["step"] == 1)
        wait_for("it holds the second", lambda: health()["objects"] == objects(*published.steps))
        before = service.asked.copy()
        fetch = ("weights", "fetch", "--pool", f"{published.number}@{root}", "--cache", tmp_path / "cache")
        got = muster.ok(*fetch, "--json").json
        assert contents(Path(got["folder"])) == contents(published.folder / "v1")
        assert service.asked == before, "the service was not needed"
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(30) == 0, (tmp_path / "log").read_text()
        log.close()


def test_what_is_missing_for_a_relay_is_said(muster: Muster, published: Published, tmp_path: Path) -> None:
    assert "pass --pool URL" in muster.refused("weights", "serve")
    order = ("weights", "serve", "--pool", published.url, "--home", tmp_path / "relay")
    assert "pass --keystore" in muster.refused(*order, "--public-url", "http://relay.example")
    assert "not the URL of a service" in muster.refused(
        *order, "--public-url", "ftp://relay.example", "--keystore", tmp_path / "key.json"
    )


def test_a_node_serves_what_it_fetches_and_fetches_it_once(published: Published, tmp_path: Path) -> None:
    """A peer, and a node that has it from there: the service sends each object to one of them."""
    service, account, serve = published.service, published.owner, at_a_port()
    with node(published, tmp_path / "peer", serve_weights=serve) as peer:
        for _ in range(2):
            assert contents(peer.step_weights(0)) == contents(published.folder / "v0")
        url = f"http://127.0.0.1:{serve.port}"
        service.announced = [announce(account, published.pool, url, int(time.time()) + 600).model_dump(mode="json")]
        shards = {f"{OBJECTS}/{shard.key}" for shard in published.steps[0].shards()}
        assert {service.asked[path] for path in shards} == {1}
        for path in shards:
            service.objects.pop(path.removeprefix(OBJECTS + "/"))
        with node(published, tmp_path / "other") as other:
            assert contents(other.step_weights(0)) == contents(published.folder / "v0")
    with pytest.raises(httpx.ConnectError):
        httpx.get(url + "/health", trust_env=False, timeout=60)


def test_a_damaged_file_in_its_own_cache_holds_no_node_up(published: Published, tmp_path: Path) -> None:
    with node(published, tmp_path / "peer", serve_weights=at_a_port()) as peer:
        folder = peer.step_weights(0)
        shutil.rmtree(folder)
        for path in (tmp_path / "peer" / "cache" / "served").rglob("shards/*"):
            path.write_bytes(bytes(path.stat().st_size))
        assert contents(peer.step_weights(0)) == contents(published.folder / "v0")


def test_a_peer_fetches_its_own_weights_without_a_whole_shard_in_memory(published: Published, tmp_path: Path) -> None:
    size, folder = 24 << 20, tmp_path / "large"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(os.urandom(size))
    scope = ManifestScope(published.pool, str(published.owner.address))
    made = publish(folder, published.service, scope, 1, published.steps[0].digest, published.owner)
    published.suite.pools.publish_step(published.number, 1, made.digest).send()
    with node(published, tmp_path / "peer", serve_weights=at_a_port(steps=1)) as peer:
        tracemalloc.start()
        try:
            assert _peak(lambda: peer.step_weights(1)) < size / 2
            peer.config.cache.joinpath(made.digest.hex(), "model.safetensors").unlink()
            assert _peak(lambda: peer.step_weights(1)) < size / 2, "from its own cache"
        finally:
            tracemalloc.stop()
    assert contents(peer.config.cache / made.digest.hex()) == contents(folder)


def _peak(work: Callable[[], object]) -> int:
    """Bytes that Python holds at most while it works, besides those that it held before."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    work()
    return tracemalloc.get_traced_memory()[1] - before


def test_announced_sources_that_are_hostile_or_private(published: Published, tmp_path: Path) -> None:
    """Poisoned peers change nothing; without leave for private networks they are not even asked."""
    service, asked = published.service, Counter[str]()

    def poisoned(handler: BaseHTTPRequestHandler) -> None:
        asked[handler.path] += 1
        send(handler, 200, b"poison" * 100)

    with mirror(poisoned) as bad:
        until = int(time.time()) + 600
        good = announce(published.owner, published.pool, bad, until).model_dump(mode="json")
        forged = good | {"address": "0x" + "11" * 20, "url": "http://forged.example"}
        service.announced = [forged, good]
        for private in (True, False):
            config = published.config(tmp_path / f"{private}").model_copy(update={"allow_private_sources": private})
            client = PoolClient(config, None)
            client.refresh()
            assert contents(client.step_weights(0)) == contents(published.folder / "v0")
            assert not any("forged" in name for name in client.sources.spread.stats)
            client.close()
            assert bool(asked) == private
            asked.clear()


def test_a_strangers_service_is_asked_at_public_addresses_only(published: Published, tmp_path: Path) -> None:
    config = published.config(tmp_path / "home").model_copy(update={"allow_private_sources": False})
    client = PoolClient(config, None, announced=True)
    client.refresh()
    with pytest.raises(MusterError, match="private network"):
        client.step_weights(0)
    client.close()
    assert not published.service.asked


def test_steps_that_are_no_longer_wanted_go(published: Published, tmp_path: Path) -> None:
    """Retention: the newest steps, as many as configured; restarted, the relay fetches nothing again."""
    for _ in range(3):
        published.publish()
    kept = {object_key("manifests", step.digest) for step in published.steps[-2:]}
    kept |= {shard.key for step in published.steps[-2:] for shard in step.shards()}

    def fetched() -> set[str]:
        """What a relay asks the service for until it holds these."""
        serve = at_a_port(steps=2)
        config = published.config(tmp_path / f"home{serve.port}", serve_weights=serve)
        client = PoolClient(config.model_copy(update={"cache": tmp_path / "cache"}), None)
        client.refresh()
        before = published.service.asked.copy()
        relay = PoolRelay(client, serve, None)
        relay.start()
        wait_for("all is here", lambda: relay.cache.held()[0] == len(kept))
        relay.stop()
        client.close()
        files = {f"{path.parent.name}/{path.name}" for path in relay.cache.folder.rglob("*") if path.is_file()}
        assert files == kept
        return {path for path, count in published.service.asked.items() if count > before[path] and OBJECTS in path}

    assert {f"{OBJECTS}/{key}" for key in kept} <= fetched()
    assert fetched() == set()


def test_the_oldest_steps_are_left_out_first(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        published.publish()
    newest = published.steps[-2:]
    monkeypatch.setattr("runtime.relay.MAX_NAMED", sum(len(one.every_shard()) for one in newest))
    serve = at_a_port()
    client = PoolClient(published.config(tmp_path / "home", serve_weights=serve), None)
    client.refresh()
    relay = PoolRelay(client, serve, None)
    for _ in range(2):
        before = published.service.asked.copy()
        relay._name()
        assert {one.step for one, _ in relay._manifests.values()} == {one.step for one in newest}
    assert published.service.asked == before, "what was left out is not fetched again"
    relay.stop()
    client.close()


@pytest.mark.parametrize(
    ("name", "owner", "method"),
    [
        ("serving", HttpServer, "serve"),
        ("following the pool", PoolRelay, "once"),
        ("announcing", SignedClient, "post"),
    ],
)
def test_each_thread_is_supervised(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, owner: type, method: str
) -> None:
    """Whatever ends one of them, it begins again, and the status says so meanwhile."""
    port, killed = free_port(), list[str]()
    serve = ServeWeights(host="127.0.0.1", port=port, public_url=f"http://127.0.0.1:{port}")
    client = PoolClient(published.config(tmp_path / "home", serve_weights=serve), None)
    client.refresh()
    relay = PoolRelay(client, serve, published.owner)
    whole = getattr(owner, method)

    def die_once(*given: Any, **named: Any) -> Any:
        if not killed:
            killed.append(name)
            raise SystemExit(3)
        return whole(*given, **named)

    monkeypatch.setattr(owner, method, die_once)
    monkeypatch.setattr("runtime.relay.RESTART_SECONDS", 1.0)
    relay.start()
    wait_for("the failure is told", lambda: name in relay.app.status()["problems"])
    health = f"http://127.0.0.1:{port}/health"
    wait_for("it works again", lambda: httpx.get(health, trust_env=False, timeout=60).json()["problems"] == {})
    wait_for("it announces itself", lambda: published.service.announced)
    relay.stop()
    client.close()
