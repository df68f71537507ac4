"""Which deltas the trainer makes, and that a kill or a lost folder never gives a step another manifest."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from protocol.config import WeightsConfig
from storage.keys import MissingObjectError, object_key
from storage.weights import delta as codec
from storage.weights.fetch import fetch
from storage.weights.publish import send
from tests.storage.weights.folders import OWNER, PUBLISHER, contents, source_of
from tests.storage.weights.stepping import step_folder
from trainer.pool.publish import StepPublisher

STEPS = 7
WEIGHTS = WeightsConfig(snapshot_every=3, delta_min_bytes=0)


class Objects(dict[str, bytes]):
    """A bucket in memory."""

    def put(self, key: str, data: bytes) -> bool:
        return self.setdefault(key, data) is data

    def get(self, key: str, limit: int = 0) -> Any:  # type: ignore[override]
        if key not in self:
            raise MissingObjectError(f"no object {key}")
        return self[key]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for step in range(STEPS):
        step_folder(tmp_path / "policies" / f"step-{step:06d}", step)
    return tmp_path


def publisher(
    bucket: Objects, home: Path, weights: WeightsConfig = WEIGHTS, pool: SimpleNamespace | None = None
) -> StepPublisher:
    client: Any = SimpleNamespace(home=home, pool_id=PUBLISHER.pool, pool=lambda: pool)
    store: Any = bucket
    canaries: Any = None
    config: Any = SimpleNamespace(model=SimpleNamespace(dtype="bfloat16"), weights=weights)
    return StepPublisher(client, store, OWNER, config, canaries)


def published(bucket: Objects, home: Path, weights: WeightsConfig = WEIGHTS) -> list[bytes]:
    made, digests = publisher(bucket, home, weights), list[bytes]()
    for step in range(STEPS):
        prepared = made.prepared(step, tuple(digests))
        send(made.folder(step), prepared, bucket, OWNER)
        digests.append(prepared.manifest.digest)
    return digests


def test_every_publisher_keeps_the_schedule(home: Path, tmp_path: Path) -> None:
    bucket = Objects()
    digests = published(bucket, home)
    for step, digest in enumerate(digests):
        assert publisher(bucket, home).prepared(step, tuple(digests[:step])).manifest.digest == digest
    made = [publisher(bucket, home)._manifest(digest) for digest in digests]
    assert [one and one.snapshot for one in made] == [True, False, False, True, False, False, True]
    assert [[delta.step for delta in one.deltas] for one in made if one] == [[], [0], [1, 0], [2], [3], [4, 3], [5]]
    for step in (5, 6, 2):
        folder = fetch(digests[step], source_of(bucket.get), tmp_path / "cache", PUBLISHER, step)
        assert contents(folder) == contents(home / "policies" / f"step-{step:06d}")


def test_folders_that_later_steps_need_are_kept(home: Path) -> None:
    made = publisher(Objects(), home)
    needed = {int(path.name[-1]) for step in (3, 4, 5) for path in made.needed(step)}
    assert needed == {3, 4, 5}
    assert made.needed(5) == {made.folder(5), made.folder(3)}


def test_small_weights_travel_whole(home: Path) -> None:
    bucket = Objects()
    digests = published(bucket, home, WeightsConfig(delta_min_bytes=1 << 20))
    made = [publisher(bucket, home)._manifest(digest) for digest in digests]
    assert all(one is not None and one.snapshot and not one.deltas for one in made)


@pytest.mark.parametrize("wrong", ["lost folder", "failing codec", "damaged manifests"])
def test_what_is_of_no_use_as_a_base_gives_a_full_step(home: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """It does not keep the trainer from publishing what comes after it."""
    bucket = Objects()
    digests, step = published(bucket, home), 5
    if wrong == "lost folder":
        shutil.rmtree(home / "policies" / "step-000003")
        step = 4
    elif wrong == "failing codec":
        monkeypatch.setattr(codec, "encode_file", Mock(side_effect=SystemError("no compiler")))
    else:
        bucket |= {object_key("manifests", digest): b'{"manifest":{}}' for digest in digests}
    manifest = publisher(bucket, home).prepared(step, tuple(digests[:step])).manifest
    assert (manifest.snapshot, manifest.deltas) == (True, ())


def test_a_step_on_chain_keeps_its_manifest(home: Path) -> None:
    """After a restart without the folders that its deltas led from."""
    bucket = Objects()
    digests = published(bucket, home)
    shutil.rmtree(home / "policies" / "step-000003")
    pool = SimpleNamespace(steps=[SimpleNamespace(manifest=digest) for digest in digests])
    made = publisher(bucket, home, pool=pool)
    assert made.upload(4, digests[:4]) == digests[4]
    pool.steps = pool.steps[:4]
    assert made.upload(4, digests[:4]) != digests[4]
