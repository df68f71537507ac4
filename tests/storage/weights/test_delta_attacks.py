"""Deltas and sources that mean harm: nothing wrong is ever loaded, and no version is held up by a delta."""

import errno
import logging
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.accounts import Account
from protocol.errors import IntegrityError, MusterError
from storage.keys import object_key
from storage.weights import delta as codec
from storage.weights import fetch as rebuild
from storage.weights.fetch import DiskFullError, fetch
from storage.weights.manifest import Manifest, seal
from tests.storage.weights.folders import PUBLISHER, contents, source_of
from tests.storage.weights.stepping import Origin


def get(origin: Origin, manifest: Manifest, cache: Path, step: int | None = None) -> Path:
    return fetch(manifest.digest, source_of(origin.get), cache, PUBLISHER, step)


def made(origin: Origin, cache: Path, manifest: Manifest, step: int) -> None:
    """The step comes out right, and nothing is left lying about."""
    assert contents(get(origin, manifest, cache, step)) == contents(origin.folders[step])
    assert not list((cache / "shards").iterdir())
    assert not [path for path in cache.iterdir() if path.is_dir() and path.name.startswith(".")]


def flipped(at: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        place = at % len(data)
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return flip


POISONS: dict[str, Callable[[bytes], bytes]] = {
    "magic": flipped(0),
    "base": flipped(12),
    "target": flipped(50),
    "first tensor's hash": flipped(80),
    "last byte": flipped(-1),
    "cut": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"x",
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("poison", POISONS)
def test_a_poisoned_delta_that_the_owner_signed(
    origin: Origin, tmp_path: Path, poison: str, caplog: pytest.LogCaptureFixture
) -> None:
    get(origin, origin.manifests[0], tmp_path)
    bad = origin.with_delta(1, 0, POISONS[poison])
    with caplog.at_level(logging.WARNING):
        made(origin, tmp_path, bad, 1)
    assert "the delta to step 1 is useless" in caplog.text


def test_a_delta_that_leads_to_another_version(origin: Origin, tmp_path: Path) -> None:
    """The whole file's hash has the last word: delta and index agree with one another, not with the file."""
    get(origin, origin.manifests[0], tmp_path)
    other, delta = origin.manifests[2], next(one for one in origin.manifests[2].deltas if one.step == 0)
    origin.add_full(1)
    lying = {**dict(origin.manifests[1]), "snapshot": True, "deltas": (delta,)}
    made(origin, tmp_path, origin.sign(Manifest.model_validate(lying)), 1)
    assert other.deltas, "it is a good delta, but to step 2"


def test_a_delta_against_another_base(origin: Origin, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It says that it leads from step 0, and was made from step 1."""
    get(origin, origin.manifests[0], tmp_path)
    delta = next(one for one in origin.manifests[2].deltas if one.step == 1)
    base = origin.manifests[0]
    wrong = delta.model_copy(update={"step": 0, "parent": base.digest.hex()})
    origin.add_full(2)
    lying = {**dict(origin.manifests[2]), "snapshot": True, "deltas": (wrong,)}
    with caplog.at_level(logging.WARNING):
        made(origin, tmp_path, origin.sign(Manifest.model_validate(lying)), 2)
    assert "is useless" in caplog.text


def test_a_wrong_step_number_of_the_base(origin: Origin, tmp_path: Path) -> None:
    """No way leads over such a delta, so nothing of it is fetched."""
    delta = origin.manifests[3].deltas[0].model_copy(update={"step": 2})
    origin.add_full(3)
    lying = origin.sign(Manifest.model_validate({**dict(origin.manifests[3]), "snapshot": True, "deltas": (delta,)}))
    get(origin, origin.manifests[0], tmp_path)
    made(origin, tmp_path, lying, 3)
    assert not {shard.key for file in delta.files for shard in file.shards} & set(origin.read)


@pytest.mark.parametrize("how", ["cut", "other", "empty", "gone"])
def test_a_bad_shard_of_a_delta_takes_another_way(origin: Origin, tmp_path: Path, how: str) -> None:
    """From step 2 to step 3 the single delta is broken, the merged one from step 0 is not."""
    for step in (0, 2):
        get(origin, origin.manifests[step], tmp_path)
    single = next(one for one in origin.manifests[3].deltas if one.step == 2)
    key = single.files[0].shards[0].key
    data = origin.objects.pop(key)
    if how != "gone":
        origin.objects[key] = {"cut": data[:-1], "other": bytes(len(data)), "empty": b""}[how]
    made(origin, tmp_path, origin.manifests[3], 3)


def test_with_no_way_left_it_says_so_and_mends_later(origin: Origin, tmp_path: Path) -> None:
    get(origin, origin.manifests[0], tmp_path)
    key = origin.manifests[1].deltas[0].files[0].shards[0].key
    data, origin.objects[key] = origin.objects[key], b"poison"
    with pytest.raises(MusterError):
        get(origin, origin.manifests[1], tmp_path)
    assert not (tmp_path / origin.manifests[1].digest.hex()).exists()
    origin.objects[key] = data
    made(origin, tmp_path, origin.manifests[1], 1)


@pytest.mark.parametrize("place", ["wanted", "parent"])
def test_a_manifest_by_another_key(origin: Origin, tmp_path: Path, place: str) -> None:
    get(origin, origin.manifests[0], tmp_path)
    step = 3 if place == "wanted" else 2
    forged = seal(origin.manifests[step], Account.create())
    origin.objects[object_key("manifests", origin.manifests[step].digest)] = forged
    if place == "wanted":
        with pytest.raises(IntegrityError, match="not by the pool's owner"):
            get(origin, origin.manifests[3], tmp_path)
    else:
        made(origin, tmp_path, origin.manifests[3], 3)


def test_a_codec_that_fails_does_not_hold_a_version_up(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise SystemError("no compiler")

    get(origin, origin.manifests[0], tmp_path)
    origin.add_full(1)
    monkeypatch.setattr(codec, "apply_file", broken)
    made(origin, tmp_path, origin.manifests[1], 1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_midway(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The old version stays, nothing half-made does, and it goes on when there is room."""
    base = get(origin, origin.manifests[0], tmp_path)
    whole = codec.apply_file

    def full(path: Path, deltas: Any) -> None:
        if path.name == origin.manifests[1].files[2].name:
            raise OSError(number, os.strerror(number))
        whole(path, deltas)

    with monkeypatch.context() as patched:
        patched.setattr(codec, "apply_file", full)
        with pytest.raises(DiskFullError, match="make room"):
            get(origin, origin.manifests[1], tmp_path)
    assert contents(base) == contents(origin.folders[0])
    assert not (tmp_path / origin.manifests[1].digest.hex()).exists()
    before = len(origin.read)
    made(origin, tmp_path, origin.manifests[1], 1)
    assert not [key for key in origin.read[before:] if key.startswith("shards/")], "the shards had come before"


def test_a_manifest_of_more_than_the_disk(origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched, nothing is written."""
    room = type("room", (), {"free": 50_000})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    with pytest.raises(DiskFullError, match="need"):
        get(origin, origin.manifests[0], tmp_path)
    assert origin.shard_bytes() == 0


def _die(origin: Origin, cache: Path, at: int) -> None:
    """Fetch step 1, killed at the `at`-th of: a shard that came, a file that is begun, a file that is complete."""
    left = [at]

    def tick(*_: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    whole = rebuild._apply

    def mortal(*arguments: Any) -> None:
        tick()
        whole(*arguments)
        tick()

    origin.before = tick
    setattr(rebuild, "_apply", mortal)  # noqa: B010 (in a process of its own)
    get(origin, origin.manifests[1], cache)
    os._exit(0)


def test_death_at_any_moment(origin: Origin, tmp_path: Path) -> None:
    """Killed between any two files: either the whole version is there or none, and the next try completes it."""
    get(origin, origin.manifests[0], tmp_path)
    fork = multiprocessing.get_context("fork")
    for at in range(40):
        child = fork.Process(target=_die, args=(origin, tmp_path, at))
        child.start()
        child.join(120)
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        version = tmp_path / origin.manifests[1].digest.hex()
        assert not version.exists() or contents(version) == contents(origin.folders[1])
    assert child.exitcode == 0
    assert at > 5
    for draft in (tmp_path / "shards").glob(".*"):
        draft.unlink()  # a shard that was being written at a death is removed a day later
    made(origin, tmp_path, origin.manifests[1], 1)


def test_whichever_way_a_node_takes_it_has_the_same_bytes(tmp_path: Path) -> None:
    """An owner who signs shards of other bytes than the delta leads to, and the hash of the file that it leads to, sets
    nobody apart: those at step 0 would have one model, those who join another."""
    origin = Origin(tmp_path / "steps", steps=3, snapshots=(0, 1, 2))
    honest, other = origin.manifests[1], origin.manifests[2]
    mixed = zip(honest.files, other.files, strict=True)
    files = tuple(file.model_copy(update={"shards": shown.shards}) for file, shown in mixed)
    odd = origin.sign(honest.model_copy(update={"files": files}))
    for cache in ("joins", "has step 0"):
        if cache == "has step 0":
            get(origin, origin.manifests[0], tmp_path / cache)
        made = get(origin, odd, tmp_path / cache)
        assert contents(made) == contents(origin.folders[2])
