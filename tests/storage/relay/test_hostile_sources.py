"""Relays that lie, break or run out of room, beside one that does not: the step comes all the same.

What else a hostile source may do is in tests/storage: test_spread.py, test_resume.py, weights/test_delta_attacks.py.
"""

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest

from protocol.accounts import Account
from storage.keys import object_key
from storage.weights.manifest import seal
from tests.storage.mirror import mirror, send, sources
from tests.storage.relay.running import RelayProcess, Upstream, relay
from tests.storage.weights.stepping import Origin


def test_a_relay_behind_a_poisoned_upstream(origin: Origin, tmp_path: Path) -> None:
    """It sends nothing that it cannot check, and keeps nothing of it; beside a good upstream it has everything."""
    poisoned = {key: data if key.startswith("manifests/") else bytes(len(data)) for key, data in origin.objects.items()}
    digests = [origin.manifests[0].digest]
    with mirror(Upstream(poisoned)) as bad, mirror(Upstream(origin.objects)) as good:
        with relay(tmp_path / "relay", [bad], digests) as one:
            with sources(one.url, good) as asked:
                origin.fetch(0, tmp_path / "cache", source=asked)
            assert not list((tmp_path / "relay" / "shards").iterdir())
        with relay(tmp_path / "both", [bad, good], digests) as one, sources(one.url) as asked:
            origin.fetch(0, tmp_path / "other cache", source=asked)


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
    with sources(lying, Upstream(origin.objects)) as asked:
        origin.fetch(1, tmp_path / "cache", source=asked)
        assert lying.asked[key], "it was asked, and left"


def test_a_relay_that_is_killed_midway(origin: Origin, tmp_path: Path) -> None:
    """Who waits for it goes on elsewhere."""
    shard = max(origin.manifests[0].shards(), key=lambda one: one.size)
    up, digests = Upstream(origin.objects, slice=shard.size // 2), [origin.manifests[0].digest]
    with mirror(up) as base, relay(tmp_path / "relay", [base], digests) as one:
        with sources(one.url, Upstream(origin.objects)) as asked:
            up.go.release()
            done: list[bytes] = []
            client = threading.Thread(target=lambda: done.append(asked(shard.key, shard.size)))
            client.start()
            while not up.asked[shard.key]:
                time.sleep(0.01)
            one.kill()
            client.join(60)
            assert done == [origin.objects[shard.key]]
        up.go.release(10)


@pytest.mark.parametrize("broken", ["its disk is full", "it stands still"])
def test_a_broken_relay_is_left_for_another(origin: Origin, tmp_path: Path, broken: str) -> None:
    digests = [origin.manifests[0].digest]
    with mirror(Upstream(origin.objects)) as base, relay(tmp_path / "relay", [base], digests) as one:
        if broken == "it stands still":
            os.kill(one.pid, signal.SIGSTOP)
        else:
            for kind in ("shards", "manifests"):  # what root may do anyway, a missing folder ends
                (tmp_path / "relay" / kind).rename(tmp_path / kind)
        with sources(one.url, Upstream(origin.objects)) as asked:
            origin.fetch(0, tmp_path / "cache", source=asked)
            assert asked.stats["0"].failures + asked.stats["0"].misses > 0
        os.kill(one.pid, signal.SIGCONT)
        if broken == "its disk is full":
            assert one.figures()["held_bytes"] < 20_000
            assert one.figures()["failed_fetches_total"] > 0
        assert one.process.is_alive()


def test_a_relay_that_serves_other_bytes_to_each_client(origin: Origin, tmp_path: Path) -> None:
    """The first request of each shard gets the right bytes, all others poison: it costs its clients no more."""
    served: Counter[str] = Counter()

    def two_faced(handler: BaseHTTPRequestHandler) -> None:
        key = handler.path.removeprefix("/")
        served[key] += 1
        data = origin.objects.get(key, b"")
        send(handler, 200, data if served[key] == 1 else bytes(len(data)))

    with mirror(two_faced) as bad:
        for client in range(3):
            with sources(bad, Upstream(origin.objects)) as asked:
                origin.fetch(0, tmp_path / f"cache{client}", source=asked)
    assert any(count > 1 for count in served.values())


def test_relays_behind_one_another(origin: Origin, tmp_path: Path) -> None:
    """A chain of three: the origin sends each object once, and a request that meets nobody's ends at 404."""
    up, digests = Upstream(origin.objects), [origin.manifests[0].digest]
    with mirror(up) as base, contextlib.ExitStack() as stack:
        last = base
        for number in range(3):
            running: RelayProcess = stack.enter_context(relay(tmp_path / f"relay{number}", [last], digests))
            last = running.url
        with sources(last) as asked:
            origin.fetch(0, tmp_path / "cache", source=asked)
        assert max(up.asked.values()) == 1
        figures = running.figures()
        assert figures["objects"] == len(up.asked)
        assert figures["failed_fetches_total"] == figures["broken_transfers_total"] == 0
        missing = object_key("shards", b"\2" * 32)
        assert httpx.get(f"{last}/{missing}", trust_env=False, timeout=60).status_code == 404
