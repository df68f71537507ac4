"""The manifest of a policy step: its files, their shards, and the deltas that lead to it, signed by the pool's owner
(docs/reference/protocol.md, section 8)."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, FailFast, Field, ValidationError, field_validator, model_validator

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Address, Hex64
from protocol.encoding import Document, canonical_json, parse_json
from protocol.errors import ConfigError, IntegrityError, first_problem
from protocol.evidence.null_model import StepNullModels
from protocol.identity import PoolId
from storage.keys import object_key

MAX_STORED_BYTES = 16 << 20
MAX_SHARD_BYTES = 256 << 20
MAX_FILES = 1024
MAX_SHARDS = 65_536
MAX_DELTAS = 8
# Of a DiLoCo run.
MAX_WORKERS = 64
DOMAIN, STRUCT = "muster-weights", "Manifest(uint256 pool,uint256 step,bytes32 digest)"
_FETCH_ELSEWHERE = "fetch it from another source"

Count = Annotated[int, Field(ge=0, lt=2**53, strict=True)]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,128}$")]


class _Part(Document):
    """A part of a manifest. Fields that it lacks are looked for at the end, all at once (`unseal`), and lists end at
    the first problem: a list of a million problems takes minutes and gigabytes."""

    model_config = ConfigDict(extra="ignore")


class Shard(_Part):
    """One content-addressed piece of a file."""

    sha256: Hex64
    size: Annotated[int, Field(ge=1, le=MAX_SHARD_BYTES, strict=True)]

    @property
    def key(self) -> str:
        return object_key("shards", bytes.fromhex(self.sha256))


class WeightFile(_Part):
    """One file of the folder: its shards in order make its bytes. A name has no path."""

    name: FileName
    size: Count
    sha256: Hex64
    shards: Annotated[tuple[Shard, ...], Field(max_length=MAX_SHARDS), FailFast()]

    @field_validator("name")
    @classmethod
    def _plain(cls, value: str) -> str:
        if not value.strip(".") or value.startswith("."):
            raise ValueError("must not start with a dot")
        return value

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if sum(shard.size for shard in self.shards) != self.size:
            raise ValueError("shards do not add up to the size")
        return self


class FileDelta(_Part):
    """How a file follows from the same file of an earlier step (docs/design/weights.md). `index` is the digest of the
    index of its tensors afterwards, which holds a hash of each; the shards in order make the delta."""

    name: FileName
    index: Hex64
    shards: Annotated[tuple[Shard, ...], Field(min_length=1, max_length=MAX_SHARDS), FailFast()]

    @property
    def size(self) -> int:
        return sum(shard.size for shard in self.shards)


class StepDelta(_Part):
    """What leads from policy step `step`, whose manifest has the digest `parent`: a delta of each file that differs."""

    step: Count
    parent: Hex64
    files: Annotated[tuple[FileDelta, ...], Field(min_length=1, max_length=MAX_FILES), FailFast()]

    @property
    def shards(self) -> list[Shard]:
        return [shard for file in self.files for shard in file.shards]


class StepWorkers(_Part):
    """The DiLoCo workers (EIP-55) that trained a policy step, in the outer step that led to state `outer_step` of the
    run whose document has the SHA-256 `run`."""

    run: Hex64
    outer_step: Count
    workers: Annotated[tuple[Address, ...], Field(min_length=1, max_length=MAX_WORKERS)]


class Manifest(_Part):
    """`parent` is the digest of the step before (64 hex digits), empty for the first; `pools` is EIP-55. `snapshot`:
    whether the files' own shards are published too; without them the `deltas` are the only way to this step.
    `made_by`: the DiLoCo workers that trained the step, if there were any. `null_models`: of honest work with these
    weights; without them the step's files give no evidence."""

    version: Literal[1] = 1
    chain_id: Count
    pools: Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$")]
    pool: Count
    step: Count
    parent: Annotated[str, Field(pattern=r"^([0-9a-f]{64}|)$")]
    dtype: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,32}$")]
    files: Annotated[tuple[WeightFile, ...], Field(min_length=1, max_length=MAX_FILES), FailFast()]
    snapshot: Annotated[bool, Field(strict=True)] = True
    deltas: Annotated[tuple[StepDelta, ...], Field(max_length=MAX_DELTAS), FailFast()] = ()
    made_by: StepWorkers | None = None
    null_models: StepNullModels | None = None

    @field_validator("pools")
    @classmethod
    def _checksum(cls, value: str) -> str:
        return signing.checked_address(value)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [file.name.lower() for file in self.files]
        if names != sorted(set(names)):
            raise ValueError("files must be sorted by name, no name twice (whatever its case)")
        every = self.every_shard()
        if len(every) > MAX_SHARDS:
            raise ValueError(f"more than {MAX_SHARDS} shards")
        sizes: dict[str, int] = {}
        for shard in every:
            if sizes.setdefault(shard.sha256, shard.size) != shard.size:
                raise ValueError("one shard with two sizes")
        return self

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        """Deltas come from earlier steps, each from another, and none is larger than the file it leads to."""
        if not self.snapshot and not self.deltas:
            raise ValueError("neither a snapshot nor a delta")
        if len({delta.parent for delta in self.deltas}) < len(self.deltas):
            raise ValueError("two deltas from one step")
        sizes = {file.name: file.size for file in self.files}
        for delta in self.deltas:
            names = [file.name for file in delta.files]
            if delta.step >= self.step:
                raise ValueError("a delta from a step that is not earlier")
            if len(set(names)) < len(names) or not set(names) <= set(sizes):
                raise ValueError("a delta names a file twice, or one that there is not")
            if any(file.size > sizes[file.name] for file in delta.files):
                raise ValueError("a delta is larger than the file it leads to")
        return self

    def shards(self) -> list[Shard]:
        """Return every shard of the files in order of use; the same one may appear more than once."""
        return [shard for file in self.files for shard in file.shards]

    def every_shard(self) -> list[Shard]:
        """Return those of the files and those of the deltas."""
        return [*self.shards(), *(shard for delta in self.deltas for shard in delta.shards)]

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.chain_id, self.pools, self.pool)

    def canonical(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical manifest without signature: what `publishStep` puts on chain."""
        return hashlib.sha256(self.canonical()).digest()


class SignedManifest(_Part):
    """The stored object; `signature` is the owner's."""

    manifest: Manifest
    signature: Annotated[str, Field(pattern=r"^0x[0-9a-f]{130}$")]


@dataclass(frozen=True)
class ManifestScope:
    """Whose manifests are believed: those of the pool's owner (EIP-55)."""

    pool: PoolId
    owner: str


def signing_digest(manifest: Manifest) -> bytes:
    """Return the 32 bytes that the owner signs (EIP-712)."""
    domain = manifest.pool_id.domain(DOMAIN)
    return signing.digest(domain, STRUCT, manifest.pool, manifest.step, manifest.digest)


def seal(manifest: Manifest, account: LocalAccount) -> bytes:
    """Return the stored object {manifest, signature}: canonical JSON, signed by `account`."""
    signature = signing.sign(account, signing_digest(manifest))
    return canonical_json(SignedManifest(manifest=manifest, signature="0x" + signature.hex()).model_dump(mode="json"))


def unseal(stored: bytes, expected: bytes, scope: ManifestScope) -> Manifest:
    """Return the manifest inside hostile `stored` bytes, if its hash is `expected` (on chain) and the owner in `scope`
    signed it. Raises IntegrityError naming what is wrong."""
    if len(stored) > MAX_STORED_BYTES:
        raise IntegrityError(f"a manifest of {len(stored)} bytes, at most {MAX_STORED_BYTES}", _FETCH_ELSEWHERE)
    try:
        fields = parse_json(stored)
        signed = SignedManifest.model_validate(fields)
    except ValidationError as error:
        _check_version(fields, expected)
        field, problem = first_problem(error.errors())
        raise IntegrityError(f"the signed manifest's `{field}`: {problem}", _FETCH_ELSEWHERE) from None
    except ValueError:
        raise IntegrityError("the manifest is not JSON", _FETCH_ELSEWHERE) from None
    manifest = signed.manifest
    if canonical_json(fields) != canonical_json(signed.model_dump(mode="json")):
        raise IntegrityError("the manifest is not in canonical form", _FETCH_ELSEWHERE)
    if manifest.digest != expected:
        raise IntegrityError("the manifest is not the one on chain", _FETCH_ELSEWHERE)
    mine = replace(scope.pool, pools=signing.checked_address(scope.pool.pools))
    if manifest.pool_id != mine:
        raise IntegrityError("the manifest belongs to another chain, contract or pool", "report it to the pool's owner")
    signer = signing.recover(signing_digest(manifest), bytes.fromhex(signed.signature[2:]))
    if signer != signing.checked_address(scope.owner):
        what = f"the manifest is signed by {signer}, not by the pool's owner {scope.owner}"
        raise IntegrityError(what, _FETCH_ELSEWHERE)
    return manifest


def _check_version(fields: Any, expected: bytes) -> None:
    """Raise IntegrityError if the manifest on chain has another version than ours: no other source has another."""
    manifest = fields.get("manifest") if isinstance(fields, dict) else None
    version = manifest.get("version") if isinstance(manifest, dict) else None
    if isinstance(version, int) and version > 1 and hashlib.sha256(canonical_json(manifest)).digest() == expected:
        raise IntegrityError(f"the manifest has version {version}, and this muster reads version 1", "upgrade muster")


# Cutting a folder into shards


# Small enough that a relay's clients do not wait long for a shard that is on its way there.
SHARD_BYTES = 4 << 20
_READ = 256 << 10
HASHING_THREADS = min(16, os.cpu_count() or 1)
# Of deltas, which many pass on to each other at once: a wrong one is found out sooner.
DELTA_SHARD_BYTES = 1 << 20


def weight_files(folder: Path, shard_size: int = SHARD_BYTES) -> tuple[WeightFile, ...]:
    """Return the folder's files, sorted by name in lower case, in shards of `shard_size` bytes. Raises ConfigError
    unless it holds plain files with plain names only."""
    if not 1 <= shard_size <= MAX_SHARD_BYTES:
        raise ConfigError(f"a shard of {shard_size} bytes", f"choose 1 to {MAX_SHARD_BYTES}")
    if not folder.is_dir():
        raise ConfigError(f"no weights folder {folder}", "check the path")
    paths = sorted(folder.iterdir(), key=lambda path: path.name.lower())
    if not paths:
        raise ConfigError(f"the weights folder {folder} is empty", "save a model into it first")
    for path in paths:
        if path.is_symlink() or not path.is_file():
            raise ConfigError(f"{path} is not a plain file", "weights folders hold plain files only")
    with ThreadPoolExecutor(HASHING_THREADS) as threads:
        return tuple(threads.map(partial(_weight_file, shard_size=shard_size), paths))


def _weight_file(path: Path, shard_size: int) -> WeightFile:
    """Read a file once. Raises ConfigError for a name that no manifest may have."""
    whole, size, shards = hashlib.sha256(), 0, list[Shard]()
    with path.open("rb", buffering=0) as file:
        while True:
            state, begin = hashlib.sha256(), size
            # A little at a time stays in the processor's cache.
            while size - begin < shard_size and (data := file.read(min(_READ, shard_size - (size - begin)))):
                whole.update(data)
                state.update(data)
                size += len(data)
            if size == begin:
                break
            shards.append(Shard(sha256=state.hexdigest(), size=size - begin))
    try:
        return WeightFile(name=path.name, size=size, sha256=whole.hexdigest(), shards=tuple(shards))
    except ValueError as error:
        raise ConfigError(f"{path} cannot be published: {error}", "rename it") from None


def read_shard(path: Path, shard_size: int, number: int) -> bytes:
    """Return the bytes of a file's shard `number`."""
    with path.open("rb") as file:
        file.seek(number * shard_size)
        return file.read(shard_size)
