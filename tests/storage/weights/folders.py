"""Small folders of weights, and who may publish them."""

import random
from pathlib import Path

from protocol.accounts import Account
from protocol.identity import PoolId
from storage.weights.manifest import ManifestScope

OWNER = Account.from_key(b"\x07" * 32)
PUBLISHER = ManifestScope(PoolId(31337, "0x" + "11" * 20, 1), OWNER.address)


class ShardStore(dict[str, bytes]):
    """A bucket in memory."""

    def put(self, key: str, data: bytes) -> bool:
        return self.setdefault(key, data) is data


def model_folder(folder: Path, seed: int = 0) -> Path:
    """A few files; only `model.safetensors` depends on the seed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(random.Random(seed).randbytes(10_500))
    (folder / "tokenizer.json").write_bytes(b"t" * 3_000)
    (folder / "config.json").write_text("{}")
    (folder / "empty.txt").touch()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
