"""EIP-712 signatures over flat structs, strict where libraries are lax.

A struct is given by its type string, such as `Invite(uint256 pool,address node,uint256 expiry)`. Allowed member types:
uintN, address, bool, bytes32, string, bytes. Values are checked before anything is encoded, and only low-s signatures
of exactly 65 bytes are recovered, so that one consent has one signature.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from coincurve import PublicKey
from eth_account.signers.local import LocalAccount
from eth_typing import Hash32

from protocol.errors import IntegrityError
from protocol.keccak import checksum_address, keccak

Value = int | str | bytes | bool
HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
_DOMAIN = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True)
class Domain:
    """Where a signature is valid; `contract` is a checksum or lower-case address."""

    name: str
    version: str
    chain_id: int
    contract: str


def digest(domain: Domain, struct: str, *values: Value) -> bytes:
    """The 32 bytes to sign for `struct` with `values` in the order of its members. Raises ValueError if one does not
    fit its type."""
    return keccak(b"\x19\x01" + _separator(domain) + _hash(struct, values))


def sign(account: LocalAccount, digest32: bytes) -> bytes:
    """r ‖ s ‖ v, 65 bytes, v 27 or 28, s in the lower half."""
    return bytes(account.unsafe_sign_hash(Hash32(digest32)).signature)


def recover(digest32: bytes, signature: bytes) -> str:
    """Checksum address of the signer. Raises IntegrityError for anything but a canonical signature."""
    if len(signature) != 65:
        raise IntegrityError(f"a signature has 65 bytes, not {len(signature)}")
    s, v = int.from_bytes(signature[32:64], "big"), signature[64]
    if v not in (27, 28):
        raise IntegrityError(f"a signature ends in 27 or 28, not {v}")
    if not 0 < s <= HALF_ORDER:
        raise IntegrityError("the signature's s is not in the lower half of the order")
    try:
        key = PublicKey.from_signature_and_message(signature[:64] + bytes([v - 27]), digest32, hasher=None)
    except Exception:  # coincurve raises a bare Exception for a signature that fits no key
        raise IntegrityError("the signature fits no key") from None
    return checksum_address(keccak(key.format(compressed=False)[1:])[12:])


@lru_cache(maxsize=64)
def _separator(domain: Domain) -> bytes:
    return _hash(_DOMAIN, (domain.name, domain.version, domain.chain_id, domain.contract))


def _hash(struct: str, values: tuple[Value, ...]) -> bytes:
    types = _members(struct)
    if len(types) != len(values):
        raise ValueError(f"{struct} has {len(types)} members, not {len(values)}")
    words = [_word(kind, value) for kind, value in zip(types, values, strict=True)]
    return keccak(_text_hash(struct) + b"".join(words))


@lru_cache(maxsize=1024)
def _text_hash(text: str) -> bytes:
    """Remembered: methods, paths and audiences return with every request."""
    return keccak(text.encode())


@lru_cache(maxsize=64)
def _members(struct: str) -> tuple[str, ...]:
    found = re.fullmatch(rf"{_NAME}\((.*)\)", struct)
    if found is None:
        raise ValueError(f"not a struct type: {struct}")
    members = [part.split(" ") for part in found[1].split(",")]
    if any(len(m) != 2 or not re.fullmatch(_NAME, m[1]) for m in members):
        raise ValueError(f"not a struct type: {struct}")
    return tuple(m[0] for m in members)


def _word(kind: str, value: Value) -> bytes:
    """A member as the 32 bytes that are hashed."""
    if kind == "string" and isinstance(value, str):
        return _text_hash(value)
    if kind == "bytes" and isinstance(value, bytes):
        return keccak(value)
    if kind == "bytes32" and isinstance(value, bytes) and len(value) == 32:
        return value
    if kind == "bool" and isinstance(value, bool):
        return int(value).to_bytes(32, "big")
    if kind == "address" and isinstance(value, str):
        return bytes.fromhex(checked_address(value)[2:]).rjust(32, b"\0")
    if kind.startswith("uint") and isinstance(value, int) and not isinstance(value, bool):
        bits = int(kind[4:] or 256)
        if 0 <= value < 1 << bits:
            return value.to_bytes(32, "big")
    raise ValueError(f"{repr(value)[:100]} is not a {kind}")


@lru_cache(maxsize=65_536)
def checked_address(value: str) -> str:
    """The checksum form of an address given in lower case or with a right checksum; ValueError otherwise."""
    if not re.fullmatch(r"0x[0-9a-fA-F]{40}", value):
        raise ValueError(f"{value!r} is not an address")
    known = checksum_address(bytes.fromhex(value[2:]))
    if value not in (known, value.lower()):
        raise ValueError(f"{value} has a wrong checksum: a digit or letter may be mistyped")
    return known
