"""Signatures: EIP-712 over flat structs, and documents that are signed as canonical JSON.

A struct is given by its type string, such as `Invite(uint256 pool,address node,uint256 expiry)`, of uintN, address,
bool, bytes32, string and bytes. Values are checked before they are encoded, and only signatures of exactly 65 bytes
with a low s are recovered, so that one consent has one signature.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from coincurve import PublicKey
from eth_typing import Hash32
from pydantic import BaseModel, ValidationError

from protocol.encoding import canonical_json, checksum_address, keccak, parse_json
from protocol.errors import IntegrityError, MusterError, first_problem

if TYPE_CHECKING:  # it takes most of a second to import
    from protocol.accounts import LocalAccount

B = TypeVar("B", bound=BaseModel)
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


class Digest(bytes):
    """The 32 bytes to sign, with the message that they stand for: a signer that holds the key elsewhere checks it."""

    domain: Domain
    struct: str
    values: tuple[Value, ...]


def digest(domain: Domain, struct: str, *values: Value) -> Digest:
    """Return the 32 bytes to sign for `struct` with its members' values. Raises ValueError if one does not fit."""
    digest = Digest(keccak(b"\x19\x01" + _separator(domain) + _hash(struct, values)))
    digest.domain, digest.struct, digest.values = domain, struct, values
    return digest


def sign(account: "LocalAccount", digest32: bytes) -> bytes:
    """Return the 65-byte signature r ‖ s ‖ v, with v 27 or 28 and s in the lower half of the order."""
    return bytes(account.unsafe_sign_hash(Hash32(digest32)).signature)


def recover(digest32: bytes, signature: bytes) -> str:
    """Return the signer's checksum address. Raises IntegrityError for anything but a canonical signature."""
    if len(signature) != 65:
        raise IntegrityError(f"a signature has 65 bytes, not {len(signature)}")
    s, v = int.from_bytes(signature[32:64], "big"), signature[64]
    if v not in (27, 28):
        raise IntegrityError(f"a signature ends in 27 or 28, not {v}")
    if not 0 < s <= HALF_ORDER:
        raise IntegrityError("the signature's s is not in the lower half of the order")
    try:
        key = PublicKey.from_signature_and_message(signature[:64] + bytes([v - 27]), digest32, hasher=None)
    except ValueError:
        raise IntegrityError("the signature fits no key") from None
    return _address_of(key.format(compressed=False)[1:])


@lru_cache(maxsize=65_536)
def _address_of(key: bytes) -> str:
    """Checksum address of a public key, x ‖ y. Cached: it costs two hashes, and the same keys come back."""
    return checksum_address(keccak(key)[12:])


@lru_cache(maxsize=64)
def _separator(domain: Domain) -> bytes:
    return _hash(_DOMAIN, (domain.name, domain.version, domain.chain_id, domain.contract))


def _hash(struct: str, values: tuple[Value, ...]) -> bytes:
    types = _members(struct)
    if len(types) != len(values):
        raise ValueError(f"{struct} has {len(types)} members, not {len(values)}")
    return keccak(_text_hash(struct) + b"".join(map(_word, types, values)))


@lru_cache(maxsize=1024)
def _text_hash(text: str) -> bytes:
    """Cached: every request repeats its method, path and audience."""
    return keccak(text.encode())


@lru_cache(maxsize=64)
def _members(struct: str) -> tuple[str, ...]:
    match = re.fullmatch(rf"{_NAME}\((.*)\)", struct)
    if match is None:
        raise ValueError(f"not a struct type: {struct}")
    members = [part.split(" ") for part in match[1].split(",")]
    if any(len(member) != 2 or not re.fullmatch(_NAME, member[1]) for member in members):
        raise ValueError(f"not a struct type: {struct}")
    return tuple(kind for kind, _ in members)


def _word(kind: str, value: Value) -> bytes:
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
    """Return the checksum form of an address given in lower case or with a correct checksum. Raises ValueError."""
    if not re.fullmatch(r"0x[0-9a-fA-F]{40}", value):
        raise ValueError(f"{value!r} is not an address")
    known = checksum_address(bytes.fromhex(value[2:]))
    if value not in (known, value.lower()):
        raise ValueError(f"{value} has a wrong checksum: a digit or letter may be mistyped")
    return known


def open_canonical(data: bytes, kind: type[B], max_bytes: int, name: str, refused: type[MusterError]) -> B:
    """Parse untrusted bytes that must be the canonical JSON of a `kind`, which `name` names in errors, of at most
    `max_bytes`. Raises `refused`."""
    if len(data) > max_bytes:
        raise refused(f"{len(data)} bytes, {name} has {max_bytes} at most")
    try:
        document = kind.model_validate(parse_json(data))
        canonical = canonical_json(document.model_dump(mode="json"))
    except ValidationError as error:
        field, problem = first_problem(error.errors(include_url=False, include_input=False, include_context=False))
        raise refused(f"`{field}`: {problem}") from None
    except ValueError as error:
        raise refused(f"not JSON: {str(error)[:200]}") from None
    if canonical != data:
        raise refused("not in canonical form")
    return document


def check_signer(
    digest32: bytes, signature: str, signer: str, refused: Callable[[str], MusterError], what: str = "it"
) -> None:
    """Raise `refused` unless `signature` (0x and 130 hex digits) is `signer`'s over the digest of `what`."""
    try:
        actual = recover(digest32, bytes.fromhex(signature[2:]))
    except MusterError as error:
        raise refused(f"the signature of {what}: {error.what}") from None
    if actual != signer:
        raise refused(f"{what} is not signed by {signer}")
