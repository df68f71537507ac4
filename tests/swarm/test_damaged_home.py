"""A file of a member's home that is damaged is named, with how to mend it."""

from pathlib import Path

import pytest

from protocol.errors import ConfigError
from swarm.roots import RootRecorder


@pytest.mark.parametrize("damage", [b"\0\0\0\n", b'{"round":1}\n', b"[]\n"])
def test_a_damaged_list_of_shared_rounds_is_named(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "shared.jsonl"
    path.write_bytes(damage)
    with pytest.raises(ConfigError, match=r"shared\.jsonl is damaged"):
        RootRecorder(None, "0x" + "00" * 20, path, 2)  # type: ignore[arg-type]
