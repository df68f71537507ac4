"""A node may announce where else its file is; validators look there, but not inside their own network."""

import dataclasses
import hashlib
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from protocol.errors import UnreachableError
from storage.download import HttpObjects
from storage.keys import object_key
from tests.storage.mirror import mirror, send
from tests.validator import tiny
from validator.judge_queue import JudgeQueue
from validator.replay import _Bench
from validator.verdict_store import VerdictStore

DATA = os.urandom(300)
KEY = object_key("rollouts", hashlib.sha256(DATA).digest())


def bench(objects: HttpObjects, folder: Path) -> JudgeQueue:
    return JudgeQueue(tiny.CONFIG, None, objects, lambda _: folder, VerdictStore(folder, bytes(32)), 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("allowed", [False, True])
def test_an_announced_mirror(tmp_path: Path, allowed: bool) -> None:
    asked: list[str] = []

    def serve(handler: object) -> None:
        asked.append("mirror")
        send(handler, 200, DATA)  # type: ignore[arg-type]

    with mirror(serve) as inside, mirror(lambda h: send(h, 404)) as service:
        objects = HttpObjects([service], allow_private=allowed)
        urls = [f"{inside}/file", "not a URL", "file:///etc/passwd", f"{inside}/file"]
        found = bench(objects, tmp_path)._from_mirrors(KEY, 1000, urls, 0.0)
        objects.close()
    assert found == (DATA if allowed else None)
    assert asked == (["mirror"] if allowed else [])


def test_a_mirror_serves_when_the_service_does_not_answer(tmp_path: Path) -> None:
    """The service may be gone for good; without a mirror its silence is no vote."""
    made = tiny.honest()
    commitment = dataclasses.replace(made.commitment, sha256=hashlib.sha256(DATA).digest())
    facts = tiny.facts(tiny.work_of(), dataclasses.replace(made, commitment=commitment))
    with mirror(lambda h: send(h, 200, DATA)) as inside:
        objects = HttpObjects(["http://127.0.0.1:1"], timeout=1.0, allow_private=True)
        judge = bench(objects, tmp_path)
        assert judge._fetch(facts, [f"{inside}/file"], 0.0) == DATA
        with pytest.raises(UnreachableError):
            judge._fetch(facts, [], 0.0)
        objects.close()


def test_slow_mirrors_do_not_hold_up_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validator.judge_queue._MIRROR_SECONDS", 0.6)
    with mirror(lambda h: time.sleep(4)) as slow:
        objects = HttpObjects(["http://127.0.0.1:1"], allow_private=True)
        started = time.monotonic()
        assert bench(objects, tmp_path)._from_mirrors(KEY, 1000, [f"{slow}/file"] * 3, 0.0) is None
        assert time.monotonic() - started < 2.0
        objects.close()


def test_a_replay_asks_mirrors_too() -> None:
    """Or a file that validators accepted from a mirror would be missing to everybody who checks them."""
    link = SimpleNamespace(pool_config=lambda: tiny.CONFIG)
    digest = hashlib.sha256(DATA).digest()
    with mirror(lambda h: send(h, 200, DATA)) as inside, mirror(lambda h: send(h, 404)) as service:
        for base in (service, "http://127.0.0.1:1"):
            link.objects = HttpObjects([base], timeout=1.0, allow_private=True)
            replaying = _Bench(cast(Any, link), cast(Any, None), cast(Any, None))
            assert replaying._object("rollouts", digest, 1000, [f"{inside}/file"]) == DATA
            link.objects.close()
