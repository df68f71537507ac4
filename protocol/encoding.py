"""Hashes, addresses, canonical JSON (docs/reference/protocol.md, section 1), and reading documents that others wrote.

Keccak comes from pysha3: the binding that Ethereum libraries choose takes six times as long for two hundred bytes.
"""

import hashlib
import json
import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from sha3 import keccak_256

from protocol.errors import ConfigError, first_problem
from protocol.files import read_bounded

T = TypeVar("T", bound=BaseModel)
Word = int | str | bytes
Bytes32 = Annotated[bytes, Field(min_length=32, max_length=32)]
HEX_RECORD = ConfigDict(extra="forbid", ser_json_bytes="hex", val_json_bytes="hex")
"""A record (as its `__pydantic_config__`) whose bytes are hex in JSON, without 0x."""
DECIMALS = 9
TOKEN: int = 10**DECIMALS  # Base units of one token; contracts count in whole base units, never in floats
_ADDRESS = re.compile("0x[0-9a-fA-F]{40}")
_AMOUNT = re.compile(r"(\d{1,30})(?:\.(\d+))?", re.ASCII)
_MAX_BYTES = 1 << 20


def keccak(data: bytes) -> bytes:
    """Return the 32 bytes of Keccak-256 (not SHA3-256) of `data`."""
    digest: bytes = keccak_256(data).digest()
    return digest


def checksum_address(raw: bytes) -> str:
    """Return twenty bytes as a checksum address (EIP-55)."""
    if len(raw) != 20:
        raise ValueError(f"an address has 20 bytes, not {len(raw)}")
    digits = raw.hex()
    marks = keccak(digits.encode()).hex()
    return "0x" + "".join([digit.upper() if mark > "7" else digit for digit, mark in zip(digits, marks, strict=False)])


def tagged_hash(tag: str, *fields: Word) -> bytes:
    """H(tag, fields…): keccak256 over abi.encode of keccak256(tag) and the fields. Returns 32 bytes."""
    return keccak(encode_words(_tag(tag), *fields))


@lru_cache(256)
def _tag(tag: str) -> bytes:
    return keccak(tag.encode())


def encode_words(*fields: Word) -> bytes:
    """ABI-encode static words: int → uint256, str (0x…) → address, bytes (32) → bytes32. Raises ValueError."""
    return b"".join(map(_word, fields))


def _word(field: Word) -> bytes:
    if isinstance(field, bytes):
        if len(field) != 32:
            raise ValueError(f"a word has 32 bytes, not {len(field)}")
        return field
    if isinstance(field, str):
        if not _ADDRESS.fullmatch(field):
            raise ValueError(f"{field[:80]!r} is not an address")
        return bytes(12) + bytes.fromhex(field[2:])
    if not 0 <= field < 1 << 256:
        raise ValueError(f"{str(field)[:80]} is not a number of 256 bits")
    return field.to_bytes(32, "big")


def words(digest: bytes, count: int) -> tuple[int, ...]:
    """Return the first `count` big-endian 64-bit words of a hash."""
    return tuple(int.from_bytes(digest[8 * i : 8 * i + 8], "big") for i in range(count))


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; NaN and infinities raise ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def parse_json(data: bytes | str) -> Any:
    """Parse JSON that somebody else wrote.

    Raises ValueError for what is not JSON, NaN and Infinity, more than about 200 levels, and integers of more than 4300
    digits. With `json.loads`, under the recursion limit that a library raises, deep brackets would end the process.
    """
    return from_json(data, allow_inf_nan=False)


def parse_toml(data: bytes) -> dict[str, Any]:
    """Parse TOML that somebody else wrote. Raises ValueError."""
    try:
        return tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 as 64 lower-case hex digits, without 0x."""
    return hashlib.sha256(data).hexdigest()


def parse_tokens(text: str, what: str = "amount") -> int:
    """Return the base units of a decimal number of tokens. Raises ConfigError for a sign, an exponent or more than nine
    decimals."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{what} {text!r} is not a number of tokens", "write it like 12 or 12.5")
    whole, fraction = match[1], match[2] or ""
    if len(fraction.rstrip("0")) > DECIMALS:
        raise ConfigError(f"{what} {text} has more than {DECIMALS} decimals", "a token has 1000000000 base units")
    return int(whole) * TOKEN + int(fraction[:DECIMALS].ljust(DECIMALS, "0"))


def show_tokens(base_units: int) -> str:
    """Return the shortest exact decimal number of tokens."""
    sign, base_units = ("-", -base_units) if base_units < 0 else ("", base_units)
    whole, fraction = divmod(base_units, TOKEN)
    digits = f"{fraction:09d}".rstrip("0")
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"


class Document(BaseModel):
    """A document or a part of one: frozen, without unknown fields, infinities or NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def load_document(path: Path, kind: type[T], toml: bool | None = None) -> T:
    """Load a file of JSON or TOML (by its suffix, unless `toml` says). Raises ConfigError naming file and field."""
    toml = path.suffix == ".toml" if toml is None else toml
    return parse_document(read_bounded(path, _MAX_BYTES), kind, str(path), toml)


def parse_document(data: bytes, kind: type[T], where: str, toml: bool = False) -> T:
    """Parse a document from bytes; `where` names them in the ConfigError."""
    try:
        return kind.model_validate(parse_toml(data) if toml else parse_json(data))
    except ValidationError as error:
        field, problem = first_problem(error.errors())
        raise ConfigError(f"{where}: `{field}`: {problem}", "correct that field") from None
    except ValueError as error:
        language = "TOML" if toml else "JSON"
        raise ConfigError(f"{where}: it is not {language}: {error}", "write the file again") from None
