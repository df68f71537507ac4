"""A node may announce where else its file is; validators look there, but not inside their own network."""

import hashlib
import os
from pathlib import Path

import pytest

from protocol.storage.download import HttpObjects
from protocol.storage.keys import object_key
from tests.storage.mirror import mirror, send
from tests.validator import tiny
from validator.bench import Bench
from validator.docket import Docket

DATA = os.urandom(300)
KEY = object_key("rollouts", hashlib.sha256(DATA).digest())


def bench(objects: HttpObjects, folder: Path) -> Bench:
    return Bench(tiny.CONFIG, None, objects, lambda _: folder, Docket(folder, bytes(32)), 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("allowed", [False, True])
def test_an_announced_mirror(tmp_path: Path, allowed: bool) -> None:
    asked: list[str] = []

    def serve(handler: object) -> None:
        asked.append("mirror")
        send(handler, 200, DATA)  # type: ignore[arg-type]

    with mirror(serve) as inside, mirror(lambda h: send(h, 404)) as service:
        objects = HttpObjects([service], allow_private=allowed)
        urls = [f"{inside}/file", "not a URL", "file:///etc/passwd", f"{inside}/file"]
        found = bench(objects, tmp_path)._from_mirrors(KEY, 1000, urls)
        objects.close()
    assert found == (DATA if allowed else None)
    assert asked == (["mirror"] if allowed else [])
