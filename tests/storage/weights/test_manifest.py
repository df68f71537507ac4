import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from protocol.accounts import Account
from protocol.encoding import canonical_json, parse_json
from protocol.errors import ConfigError, IntegrityError
from storage.weights.manifest import Manifest, ManifestScope, SignedManifest, StepWorkers, seal, unseal
from storage.weights.publish import make_manifest
from tests.storage.weights.folders import OWNER, PUBLISHER, model_folder


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return make_manifest(model_folder(tmp_path / "w"), PUBLISHER, 0, None, "float32", shard_size=1000)


def test_round_trip(manifest: Manifest) -> None:
    stored = seal(manifest, OWNER)
    assert unseal(stored, manifest.digest, PUBLISHER) == manifest
    assert sum(file.size for file in manifest.files) == sum(shard.size for shard in manifest.shards())


def test_a_manifest_by_another_key_or_of_another_folder(manifest: Manifest, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="not by the pool's owner"):
        unseal(seal(manifest, Account.create()), manifest.digest, PUBLISHER)
    other = make_manifest(model_folder(tmp_path / "v", seed=1), PUBLISHER, 0, None, "float32")
    with pytest.raises(IntegrityError, match="not the one on chain"):
        unseal(seal(other, OWNER), manifest.digest, PUBLISHER)


@pytest.mark.parametrize("change", [{"chain_id": 1}, {"pool": 2}, {"pools": "0x" + "22" * 20}])
def test_replay_elsewhere(manifest: Manifest, change: dict[str, Any]) -> None:
    elsewhere = ManifestScope(replace(PUBLISHER.pool, **change), OWNER.address)
    with pytest.raises(IntegrityError, match="another chain, contract or pool"):
        unseal(seal(manifest, OWNER), manifest.digest, elsewhere)


def shard(size: Any = 5, sha: str = "a" * 64) -> dict[str, Any]:
    return {"sha256": sha, "size": size}


def file(name: str = "model.bin", size: Any = 5, **more: Any) -> dict[str, Any]:
    return {"name": name, "size": size, "sha256": "b" * 64, "shards": [shard(size)]} | more


def fields(**more: Any) -> dict[str, Any]:
    base = {"version": 1, "chain_id": 31337, "pools": PUBLISHER.pool.pools, "pool": 1, "step": 0, "parent": ""}
    return base | {"dtype": "float32", "files": [file()]} | more


def file_delta(**more: Any) -> dict[str, Any]:
    return {"name": "model.bin", "index": "d" * 64, "shards": [shard(4, "c" * 64)]} | more


def delta(**more: Any) -> dict[str, Any]:
    return {"step": 1, "parent": "e" * 64, "files": [file_delta()]} | more


def test_base_of_the_hostile_ones_is_fine() -> None:
    assert Manifest.model_validate(fields())
    assert Manifest.model_validate(fields(step=3, snapshot=False, deltas=[delta()]))


@pytest.mark.parametrize(
    "hostile",
    [
        fields(files=[]),
        fields(files=[file(f"f{n:05d}") for n in range(1025)]),
        fields(files=[file("a"), file("a")]),
        fields(files=[file("a"), file("A")]),
        fields(files=[file("b"), file("a")]),
        *(fields(files=[file(name)]) for name in ("../x", "..", ".hidden", "a/b", "a\\b", "a\n", "é", "x" * 129, "")),
        *(fields(files=[file(size=size)]) for size in (0, -5, 5.0, "5", 2**30)),
        fields(files=[file(size=True, shards=[shard(1)])]),
        fields(files=[file(size=6, shards=[shard(5)])]),
        fields(files=[file(size=11, shards=[shard(5), shard(6)])]),
        fields(files=[file(sha256="B" * 64)]),
        fields(files=[file(extra=1)]),
        fields(extra=1),
        fields(version=2),
        fields(step=-1),
        fields(step=2**63),
        fields(parent="xyz"),
        fields(dtype=""),
        fields(snapshot=False),
        fields(snapshot=1),
        fields(deltas=None),
        fields(step=3, deltas=[delta(), delta()]),
        fields(step=3, deltas=[delta(parent=f"{n:064x}") for n in range(9)]),
        fields(step=3, deltas=[delta(files=[file_delta(), file_delta()])]),
        fields(step=3, deltas=[delta(files=[])]),
        *(fields(step=3, deltas=[delta(step=step)]) for step in (3, -1)),
        *(fields(step=3, deltas=[delta(files=[file_delta(name=name)])]) for name in ("other", "../x")),
        *(
            fields(step=3, deltas=[delta(files=[file_delta(shards=shards)])])
            for shards in ([], [shard(6, "c" * 64)], [shard(4)])
        ),
        fields(step=3, deltas=[delta(files=[file_delta(index="x")])]),
        fields(pools="0x12"),
        fields(pools=PUBLISHER.pool.pools.swapcase().replace("0X", "0x")),
        {},
        [],
        None,
        "x",
    ],
)
def test_hostile_manifests(hostile: Any) -> None:
    stored = canonical_json({"manifest": hostile, "signature": "0x" + "00" * 65})
    with pytest.raises(IntegrityError):
        unseal(stored, b"x" * 32, PUBLISHER)


def test_a_manifest_of_a_newer_version_is_named() -> None:
    newer = fields(version=2, more={"than": ["we", "know"]})
    stored = canonical_json({"manifest": newer, "signature": "0x" + "00" * 65})
    with pytest.raises(IntegrityError, match="version 2, and this muster reads version 1; upgrade muster"):
        unseal(stored, hashlib.sha256(canonical_json(newer)).digest(), PUBLISHER)
    with pytest.raises(IntegrityError, match="another source"):
        unseal(stored, b"x" * 32, PUBLISHER)


@pytest.mark.parametrize("stored", [b"", b"{", b"[]", b"[" * 100_000, b"\xff", b"null", b"x" * (17 << 20)])
def test_hostile_bytes(stored: bytes) -> None:
    with pytest.raises(IntegrityError):
        unseal(stored, b"x" * 32, PUBLISHER)


@pytest.mark.parametrize("signature", ["", "0x", "0x" + "00" * 65, "0x" + "ff" * 65, "0x" + "11" * 64 + "1b", 5, None])
def test_hostile_signatures(manifest: Manifest, signature: Any) -> None:
    fields = json.loads(seal(manifest, OWNER))
    stored = canonical_json(fields | {"signature": signature})
    with pytest.raises(IntegrityError):
        unseal(stored, manifest.digest, PUBLISHER)


def test_high_s_signature(manifest: Manifest) -> None:
    fields = json.loads(seal(manifest, OWNER))
    raw = bytes.fromhex(fields["signature"][2:])
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    s = order - int.from_bytes(raw[32:64], "big")
    twin = raw[:32] + s.to_bytes(32, "big") + bytes([55 - raw[64]])
    with pytest.raises(IntegrityError):
        unseal(canonical_json(fields | {"signature": "0x" + twin.hex()}), manifest.digest, PUBLISHER)


def test_unusable_folders(tmp_path: Path) -> None:
    def refused(folder: Path, words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            make_manifest(folder, PUBLISHER, 0, None, "float32")

    refused(tmp_path / "none", "no weights folder")
    refused(tmp_path, "empty")
    (tmp_path / "sub").mkdir()
    refused(tmp_path, "plain file")
    (tmp_path / "sub").rmdir()
    (tmp_path / "ünï").touch()
    refused(tmp_path, "rename")


@pytest.mark.parametrize("what", ["shards", "files", "fields", "shard's fields"])
def test_a_manifest_of_a_million_problems_costs_no_more_than_one(what: str) -> None:
    """The owner put its hash on chain, so nothing but reading it can refuse it."""
    junk = ",".join(["{}"] * 60_000)
    many = ",".join(f'"{number}":0' for number in range(200_000))
    shard = '{"sha256":"' + "0" * 64 + '","size":1}'
    files = {
        "shards": f'{{"name":"a","sha256":"{"0" * 64}","size":1,"shards":[{junk}]}}',
        "files": ",".join(["{}"] * 1000),
        "shard's fields": f'{{"name":"a","sha256":"{"0" * 64}","size":1,"shards":[{shard[:-1]},{many}}}]}}',
    }.get(what, "{}")
    more = f",{many}" if what == "fields" else ""
    stored = f'{{"manifest":{{"files":[{files}]{more}}},"signature":"0x{"0" * 130}"}}'.encode()
    with pytest.raises(ValidationError) as caught:
        SignedManifest.model_validate(parse_json(stored))
    assert caught.value.error_count() < 50
    with pytest.raises(IntegrityError):
        unseal(stored, bytes(32), PUBLISHER)


def test_the_workers_that_trained_a_step_are_named(tmp_path: Path) -> None:
    who = StepWorkers(run="ab" * 32, outer_step=3, workers=(OWNER.address,))
    folder = model_folder(tmp_path / "w")
    named = make_manifest(folder, PUBLISHER, 1, bytes(32), "float32", made_by=who)
    assert unseal(seal(named, OWNER), named.digest, PUBLISHER).made_by == who
    assert make_manifest(folder, PUBLISHER, 1, bytes(32), "float32").made_by is None
