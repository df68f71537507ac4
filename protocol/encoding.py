"""Canonical bytes: domain-separated hashes and canonical JSON (docs/protocol.md, section 1)."""

import hashlib
import json
from typing import Any

from eth_abi.abi import encode
from eth_utils.crypto import keccak

Field = int | str | bytes


def tagged_hash(tag: str, *fields: Field) -> bytes:
    """H(tag, fields…): keccak256 over abi.encode of keccak256(tag) and one static word per field.

    int → uint256, str (0x… 20 bytes) → address, bytes (exactly 32) → bytes32. Returns 32 bytes.
    """
    types, values = ["bytes32"], [keccak(text=tag)]
    for field in fields:
        types.append(_word_type(field))
        values.append(field)  # type: ignore[arg-type]
    return keccak(encode(types, values))


def _word_type(field: Field) -> str:
    if isinstance(field, bytes):
        if len(field) != 32:
            raise ValueError(f"a bytes field of a tagged hash has 32 bytes, not {len(field)}")
        return "bytes32"
    return "address" if isinstance(field, str) else "uint256"


def words(digest: bytes, count: int) -> tuple[int, ...]:
    """The first `count` big-endian 64-bit words of a hash."""
    return tuple(int.from_bytes(digest[8 * i : 8 * i + 8], "big") for i in range(count))


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; NaN and infinities raise ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_hex(data: bytes) -> str:
    """SHA-256 as 64 lower-case hex digits, without 0x."""
    return hashlib.sha256(data).hexdigest()
