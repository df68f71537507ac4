"""The tokenizer's files in an export: the very ones that the manifests on chain name."""

import hashlib
from pathlib import Path

from protocol.errors import IntegrityError
from protocol.files import file_sha256
from protocol.models.tokenizer import TOKENIZER_FILES
from storage.weights.fetch import OpenObject
from storage.weights.manifest import Manifest, WeightFile

_MAX_BYTES = 64 << 20


def tokenizer_files(manifest: Manifest) -> dict[str, WeightFile]:
    """By name."""
    return {file.name: file for file in manifest.files if file.name in TOKENIZER_FILES}


def same_tokenizer(one: Manifest, other: Manifest) -> None:
    """Raise IntegrityError unless two policy steps have one tokenizer: an export has one."""
    hashes = [{name: file.sha256 for name, file in tokenizer_files(m).items()} for m in (one, other)]
    if hashes[0] != hashes[1]:
        what = f"policy step {other.step} has another tokenizer than step {one.step}"
        raise IntegrityError(what, "report it to the pool's owner")


def write_tokenizer(folder: Path, manifest: Manifest, objects: OpenObject) -> None:
    """Fetch the tokenizer of a policy step that was published in full."""
    folder.mkdir()
    for name, file in tokenizer_files(manifest).items():
        if file.size > _MAX_BYTES:
            raise IntegrityError(f"{name} has {file.size} bytes", "report it to the pool's owner")
        data = b"".join(objects(shard.key, shard.size) for shard in file.shards)
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise IntegrityError(f"the shards of {name} do not make the file of the manifest", "ask another source")
        (folder / name).write_bytes(data)


def tokenizer_problem(folder: Path, manifest: Manifest) -> str:
    """Why a folder is not the tokenizer of a policy step, or an empty string."""
    expected = {name: file.sha256 for name, file in tokenizer_files(manifest).items()}
    if not folder.is_dir():
        return "it is missing"
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_file() or path.name not in expected:
            return f"{path.name} does not belong there"
    for name, sha256 in expected.items():
        if not (folder / name).is_file() or file_sha256(folder / name) != sha256:
            return f"{name} is not the one of policy step {manifest.step}"
    return ""
