"""Relays that lie, break or run out of room, beside one that does not: the step comes all the same.

What else a hostile source may do is in tests/storage: test_spread.py, test_resume.py, weights/test_delta_attacks.py.
"""

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest

from protocol.accounts import Account
from storage.keys import object_key
from storage.sources import MultiSource
from storage.transfers import HttpObjects
from storage.weights.fetch import fetch
from storage.weights.manifest import seal
from tests.storage.mirror import Answer, mirror, send
from tests.storage.relay.running import RelayProcess, Upstream, relay
from tests.storage.weights.folders import PUBLISHER, contents
from tests.storage.weights.stepping import Origin


@contextlib.contextmanager
def bases(*sources: str | Answer) -> Iterator[tuple[MultiSource, list[str]]]:
    """URLs of relays, and mirrors that answer so; asked in this order while nothing is known of them."""
    with contextlib.ExitStack() as stack:
        urls = [one if isinstance(one, str) else stack.enter_context(mirror(one)) for one in sources]
        objects = HttpObjects(urls, timeout=10.0)
        stack.callback(objects.close)
        each = objects.each()
        yield MultiSource({f"{number}": each[url] for number, url in enumerate(urls)}), urls


def came(origin: Origin, sources: MultiSource, cache: Path, step: int = 0) -> bool:
    manifest = origin.manifests[step].digest
    folder = fetch(manifest, sources, cache, PUBLISHER, step)
    return contents(folder) == contents(origin.folders[step])


def test_a_relay_behind_a_poisoned_upstream(origin: Origin, tmp_path: Path) -> None:
    """It sends nothing that it cannot check, and keeps nothing of it; beside a good upstream it has everything."""
    poisoned = {key: data if key.startswith("manifests/") else bytes(len(data)) for key, data in origin.objects.items()}
    digests = [origin.manifests[0].digest]
    with mirror(Upstream(poisoned)) as bad, mirror(Upstream(origin.objects)) as good:
        with relay(tmp_path / "relay", [bad], digests) as one:
            with bases(one.url, good) as (sources, _):
                assert came(origin, sources, tmp_path / "cache")
            assert not list((tmp_path / "relay" / "shards").iterdir())
        with relay(tmp_path / "both", [bad, good], digests) as one, bases(one.url) as (sources, _):
            assert came(origin, sources, tmp_path / "other cache")


@pytest.mark.parametrize("lie", ["another step's", "by another key", "damaged"])
def test_a_wrong_manifest_is_had_from_another_source(origin: Origin, tmp_path: Path, lie: str) -> None:
    """A signature is no part of what a key names: a source that signs by itself must not hold the step up."""
    key = object_key("manifests", origin.manifests[1].digest)
    wrong = {
        "another step's": origin.objects[object_key("manifests", origin.manifests[0].digest)],
        "by another key": seal(origin.manifests[1], Account.create()),
        "damaged": origin.objects[key][:-1],
    }[lie]
    lying = Upstream(origin.objects | {key: wrong})
    with bases(lying, Upstream(origin.objects)) as (sources, _):
        assert came(origin, sources, tmp_path / "cache", step=1)
        assert lying.asked[key], "it was asked, and left"


def test_a_relay_that_is_killed_midway(origin: Origin, tmp_path: Path) -> None:
    """Who waits for it goes on elsewhere."""
    shard = max(origin.manifests[0].shards(), key=lambda one: one.size)
    up, digests = Upstream(origin.objects, slice=shard.size // 2), [origin.manifests[0].digest]
    with mirror(up) as base, relay(tmp_path / "relay", [base], digests) as one:
        with bases(one.url, Upstream(origin.objects)) as (sources, _):
            up.go.release()
            done: list[bytes] = []
            client = threading.Thread(target=lambda: done.append(sources(shard.key, shard.size)))
            client.start()
            while not up.asked[shard.key]:
                time.sleep(0.01)
            one.kill()
            client.join(60)
            assert done == [origin.objects[shard.key]]
        up.go.release(10)


def test_a_relay_whose_disk_is_full_is_left_for_another(origin: Origin, tmp_path: Path) -> None:
    digests = [origin.manifests[0].digest]
    with mirror(Upstream(origin.objects)) as base, relay(tmp_path / "relay", [base], digests) as one:
        for kind in ("shards", "manifests"):  # what root may do anyway, a missing folder ends
            (tmp_path / "relay" / kind).rename(tmp_path / kind)
        with bases(one.url, Upstream(origin.objects)) as (sources, _):
            assert came(origin, sources, tmp_path / "cache")
        assert one.figures()["held_bytes"] < 20_000
        assert one.figures()["failed_fetches_total"] > 0
        assert one.process.poll() is None


def test_a_relay_that_stands_still_is_left_for_another(origin: Origin, tmp_path: Path) -> None:
    digests = [origin.manifests[0].digest]
    with mirror(Upstream(origin.objects)) as base, relay(tmp_path / "relay", [base], digests) as one:
        os.kill(one.process.pid, signal.SIGSTOP)
        try:
            with bases(one.url, Upstream(origin.objects)) as (sources, _):
                assert came(origin, sources, tmp_path / "cache")
                assert sources.stats["0"].failures > 0
        finally:
            os.kill(one.process.pid, signal.SIGCONT)


def test_a_relay_that_serves_other_bytes_to_each_client(origin: Origin, tmp_path: Path) -> None:
    """The first request of each shard gets the right bytes, all others poison: it costs its clients no more."""
    asked: Counter[str] = Counter()

    def two_faced(handler: BaseHTTPRequestHandler) -> None:
        key = handler.path.removeprefix("/")
        asked[key] += 1
        data = origin.objects.get(key, b"")
        send(handler, 200, data if asked[key] == 1 else bytes(len(data)))

    with mirror(two_faced) as bad:
        for client in range(3):
            with bases(bad, Upstream(origin.objects)) as (sources, _):
                assert came(origin, sources, tmp_path / f"cache{client}")
    assert any(count > 1 for count in asked.values())


def test_relays_behind_one_another(origin: Origin, tmp_path: Path) -> None:
    """A chain of three: the origin sends each object once, and a request that meets nobody's ends at 404."""
    up, digests = Upstream(origin.objects), [origin.manifests[0].digest]
    with mirror(up) as base, contextlib.ExitStack() as stack:
        last = base
        for number in range(3):
            running: RelayProcess = stack.enter_context(relay(tmp_path / f"relay{number}", [last], digests))
            last = running.url
        with bases(last) as (sources, _):
            assert came(origin, sources, tmp_path / "cache")
        assert max(up.asked.values()) == 1
        missing = object_key("shards", b"\2" * 32)
        assert httpx.get(f"{last}/{missing}", trust_env=False, timeout=60).status_code == 404
