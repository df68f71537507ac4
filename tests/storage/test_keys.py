import contextlib
import hashlib
import json

import pytest
from eth_utils.crypto import keccak
from hypothesis import given
from hypothesis import strategies as st

from protocol.encoding import canonical_json
from protocol.errors import ConfigError, IntegrityError
from storage.keys import Kind, check_content, object_key, parse_key

KINDS: list[Kind] = ["rollouts", "shards", "manifests", "verdicts", "configs"]


@given(st.sampled_from(KINDS), st.binary(min_size=32, max_size=32))
def test_round_trip(kind: Kind, digest: bytes) -> None:
    parsed = parse_key(object_key(kind, digest))
    assert (parsed.kind, parsed.digest) == (kind, digest)


HEX = "ab" * 32


@pytest.mark.parametrize("text", [
    "", HEX, f"shards/{HEX}.json", f"rollouts/{HEX}", f"rollouts/{HEX.upper()}.parquet", f"shards/{HEX}/",
    f"/shards/{HEX}", f"shards//{HEX}", f"shards/../{HEX}", f"../shards/{HEX}", f"shards/{HEX}\n",
    f"shards/{HEX[:-1]}", f"shards/{HEX}%00", f"shards/0x{HEX}", f"keys/{HEX}", "shards/" + "/../" * 16,
    "shards/" + "٣" * 64, "x" * 10_000,
])  # fmt: skip
def test_refuses(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_key(text)


@given(st.text(max_size=120))
def test_total_on_noise(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert str(parse_key(text)) == text


def test_content() -> None:
    data = b"bytes"
    check_content(object_key("shards", hashlib.sha256(data).digest()), data)
    check_content(object_key("verdicts", keccak(data)), data)
    manifest = {"a": 1}
    digest = hashlib.sha256(canonical_json(manifest)).digest()
    check_content(object_key("manifests", digest), json.dumps({"manifest": manifest, "signature": "0x"}).encode())
    for key, wrong in (
        (object_key("shards", hashlib.sha256(data).digest()), b"byteS"),
        (object_key("verdicts", hashlib.sha256(data).digest()), data),
        (object_key("manifests", digest), b"[" * 100_000),
        (object_key("manifests", digest), b'{"manifest": {"a": NaN}}'),
        (object_key("manifests", digest), b"[]"),
        (object_key("manifests", digest), b'{"manifest":"\\ud800"}'),
    ):
        with pytest.raises(IntegrityError):
            check_content(key, wrong)
