"""A node may announce where else its file is; validators look there, but not inside their own network."""

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any, cast

import pytest

from protocol.accounts import Account
from protocol.errors import MusterError, UnreachableError
from protocol.identity import PoolId
from runtime.orchestrator_client import OrchestratorClient
from storage.keys import object_key
from storage.transfers import HttpObjects
from tests.storage.mirror import drip, endless, mirror, redirect_to, send
from tests.validator import tiny
from validator.judging.sources import Sources
from validator.replay import Replayer

DATA = os.urandom(300)
DIGEST = hashlib.sha256(DATA).digest()
KEY = object_key("rollouts", DIGEST)


def serve(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, DATA)


def hang(_: BaseHTTPRequestHandler) -> None:
    time.sleep(30)


def lack(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 404)


@pytest.fixture
def nowhere() -> Iterator[HttpObjects]:
    """A pool whose service is gone."""
    with closing(HttpObjects(["http://127.0.0.1:1"], timeout=1.0, allow_private=True)) as objects:
        yield objects


@pytest.mark.parametrize("allowed", [False, True])
def test_an_announced_mirror(allowed: bool) -> None:
    asked: list[str] = []

    def told(handler: BaseHTTPRequestHandler) -> None:
        asked.append("mirror")
        serve(handler)

    with mirror(told) as inside, mirror(lack) as service:
        objects = HttpObjects([service], allow_private=allowed)
        urls = [f"{inside}/file", "not a URL", "file:///etc/passwd", f"{inside}/file"]
        found = Sources(objects).from_announced(KEY, 1000, urls)
        objects.close()
    assert found == (DATA if allowed else None)
    assert asked == (["mirror"] if allowed else [])


@pytest.mark.parametrize("allowed", [False, True])
def test_a_service_that_a_stranger_announced_has_to_be_public(allowed: bool) -> None:
    pool, key = PoolId(31337, "0x" + "22" * 20, 1), Account.create()
    with mirror(serve) as inside:
        objects = HttpObjects([inside], timeout=1.0, allow_private=allowed, announced=True)
        client = OrchestratorClient(inside, key, pool, patience=0.0, allow_private=allowed, announced=True)
        if allowed:
            assert Sources(objects).fetch("rollouts", DIGEST, 1000) == DATA
            with pytest.raises(MusterError) as other:  # the mirror takes no uploads
                client.upload_verdict(DATA)
            assert "private network" not in str(other.value)
        else:
            with pytest.raises(UnreachableError, match="private network"):
                Sources(objects).fetch("rollouts", DIGEST, 1000)
            with pytest.raises(UnreachableError, match="private network"):
                client.upload_verdict(DATA)
        objects.close()
        client.close()


def test_a_mirror_serves_when_the_service_does_not_answer(nowhere: HttpObjects) -> None:
    """The service may be gone for good; without a mirror its silence is no vote."""
    with mirror(serve) as inside:
        assert Sources(nowhere).fetch("rollouts", DIGEST, 1000, [f"{inside}/file"]) == DATA
        with pytest.raises(UnreachableError):
            Sources(nowhere).fetch("rollouts", DIGEST, 1000)


def test_no_announcer_keeps_another_from_its_turn(nowhere: HttpObjects) -> None:
    """However many are slow, lie, or lead nowhere: who has the bytes is heard."""
    with (
        mirror(drip) as dripping,
        mirror(hang) as silent,
        mirror(lambda h: send(h, 200, b"x" * len(DATA))) as lying,
        mirror(endless) as flooding,
        mirror(serve) as honest,
    ):
        hostile = [f"{base}/{number}" for base in (dripping, silent, lying, flooding) for number in range(3)]
        urls = [*hostile, "http://127.0.0.1:1/nobody", "nonsense", f"{honest}/{KEY}"]
        assert Sources(nowhere, announced_seconds=20.0).from_announced(KEY, 1000, urls) == DATA


def test_slow_mirrors_do_not_hold_up_the_judge_queue(nowhere: HttpObjects) -> None:
    with mirror(hang) as slow:
        started = time.monotonic()
        assert Sources(nowhere, announced_seconds=0.6).from_announced(KEY, 1000, [f"{slow}/file"] * 3) is None
        assert time.monotonic() - started < 20.0


def test_a_replay_asks_mirrors_too() -> None:
    """Or a file that validators accepted from a mirror would be missing to everybody who checks them."""
    pool_client: Any = SimpleNamespace(pool_config=lambda: tiny.CONFIG, weights=None)
    with mirror(serve) as inside, mirror(lack) as service:
        for base in (service, "http://127.0.0.1:1"):
            pool_client.objects = HttpObjects([base], timeout=1.0, allow_private=True)
            replayer = Replayer(pool_client, cast(Any, None))
            assert replayer.sources.fetch("rollouts", DIGEST, 1000, [f"{inside}/file"]) == DATA
            pool_client.objects.close()


def test_a_service_that_never_ends_its_answer_does_not_keep_a_jury_from_the_bytes() -> None:
    """An owner who hides a file from a jury may as well drip it: the jury's window is shorter than a client's patience.
    What the service redirects to may be no name at all; that is no answer either."""
    broken = "http://xn--/"
    with (
        mirror(drip) as dripping,
        mirror(lambda h: time.sleep(200)) as silent,
        mirror(redirect_to(broken)) as astray,
        mirror(serve) as honest,
    ):
        for service in (dripping, silent, astray):
            objects = HttpObjects([service], timeout=200.0, allow_private=True)
            started = time.monotonic()
            assert Sources(objects, own_seconds=0.2).fetch("rollouts", DIGEST, 1000, [broken, honest]) == DATA
            assert time.monotonic() - started < 60.0, service
            objects.close()


def test_a_service_that_is_slower_than_the_mirrors_is_waited_for() -> None:
    def late(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(1.5)
        serve(handler)

    with mirror(late) as service, mirror(lack) as lacking, mirror(hang) as silent:
        objects = HttpObjects([service], timeout=20.0, allow_private=True)
        for announced in ([lacking], [silent]):
            sources = Sources(objects, announced_seconds=0.5, own_seconds=0.1)
            assert sources.fetch("rollouts", DIGEST, 1000, announced) == DATA
        objects.close()


def test_those_who_never_answer_leave_connections_to_the_files_that_come_after(nowhere: HttpObjects) -> None:
    """A few for each file of a lane that is disputed as a whole would else have all that a client keeps."""
    with mirror(hang) as silent, mirror(serve) as honest:
        sources, started = Sources(nowhere, announced_seconds=60.0), time.monotonic()
        for file in range(10):
            urls = [f"{silent}/{file}/{number}" for number in range(4)]
            assert sources.from_announced(KEY, 1000, [*urls, honest]) == DATA
        assert time.monotonic() - started < 30.0


def test_who_is_not_waited_for_any_more_is_not_read_to_the_end(nowhere: HttpObjects) -> None:
    begun, ended = threading.Event(), threading.Event()

    def flood(handler: BaseHTTPRequestHandler) -> None:
        begun.set()
        endless(handler)
        ended.set()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begun.wait(20)  # or the other would not be asked at all
        serve(handler)

    with mirror(flood) as flooding, mirror(answer) as honest:
        assert Sources(nowhere).from_announced(KEY, 1 << 40, [flooding, honest]) == DATA
        assert ended.wait(20)
