"""Signed authorisations that people hand to one another as files: a node key's consent to its operator, a pool owner's
invite to a node (docs/contracts.md)."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BeforeValidator, ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from chain.contracts.pools import INVITE
from chain.contracts.stakes import CONSENT
from protocol import eip712
from protocol.encoding import parse_json
from protocol.errors import ConfigError, IntegrityError, MusterError, first_problem
from protocol.files import write_atomic

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_MAX_FILE = 16 * 1024
_STRICT = ConfigDict(extra="forbid", strict=True)


def _from_hex(value: Any) -> Any:
    return bytes.fromhex(value.removeprefix("0x")) if isinstance(value, str) else value


Signature = Annotated[bytes, BeforeValidator(_from_hex)]


@dataclass(frozen=True, config=_STRICT)
class Consent:
    """A node key lets `operator` register it until `expiry` (Unix seconds). `contract` is Stakes."""

    chain_id: int
    contract: str
    node: str
    operator: str
    expiry: int
    signature: Signature = b""

    def digest(self) -> bytes:
        domain = eip712.Domain("muster-stakes", "1", self.chain_id, self.contract)
        return eip712.digest(domain, CONSENT, self.node, self.operator, self.expiry)


@dataclass(frozen=True, config=_STRICT)
class Invite:
    """A pool's owner lets `node` join `pool` until `expiry` (Unix seconds). `contract` is Pools."""

    chain_id: int
    contract: str
    pool: int
    node: str
    expiry: int
    signature: Signature = b""

    def digest(self) -> bytes:
        domain = eip712.Domain("muster-pools", "1", self.chain_id, self.contract)
        return eip712.digest(domain, INVITE, self.pool, self.node, self.expiry)


Authorisation = TypeVar("Authorisation", Consent, Invite)


def sign(authorisation: Authorisation, account: "LocalAccount") -> Authorisation:
    """The same authorisation with the account's signature."""
    return dataclasses.replace(authorisation, signature=eip712.sign(account, authorisation.digest()))


def write(authorisation: Consent | Invite, path: Path) -> None:
    """Write a JSON file to hand over. Raises ConfigError rather than overwrite one."""
    if path.exists():
        raise ConfigError(f"{path} exists", "choose another --out")
    document = {**dataclasses.asdict(authorisation), "signature": "0x" + authorisation.signature.hex()}
    try:
        write_atomic(path, json.dumps(document, indent=2).encode() + b"\n")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "choose another --out") from None


def read(kind: type[Authorisation], path: Path) -> Authorisation:
    """The authorisation in a file, its signature not yet checked. Raises ConfigError."""
    name = kind.__name__.lower()
    try:
        if path.stat().st_size > _MAX_FILE:
            raise ValueError("too long")
        authorisation = kind(**parse_json(path.read_bytes()))
        authorisation.digest()
        return authorisation
    except OSError as error:
        raise ConfigError(f"cannot read the {name} {path}: {error.strerror}", "check the path") from None
    except ValidationError as error:
        field, problem = first_problem(error.errors())
        raise ConfigError(f"{path} is not a {name}: `{field}`: {problem}", "ask for the file again") from None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path} is not a {name}: {str(error)[:200]}", "ask for the file again") from None


def check(authorisation: Consent | Invite, expected: Consent | Invite, signer: str, path: Path) -> None:
    """Raise ConfigError or IntegrityError unless the authorisation has the fields of `expected` (signature aside), is
    still valid at the time `expected.expiry`, and `signer` (checksum address) signed it."""
    for field in dataclasses.fields(expected):
        got, wanted = getattr(authorisation, field.name), getattr(expected, field.name)
        if field.name == "expiry" and got < wanted:
            raise ConfigError(f"{path} has expired", "ask for a new one")
        if field.name not in ("expiry", "signature") and got != wanted:
            raise ConfigError(f"{path} is for {field.name} {got}, not {wanted}", "ask for a new one")
    try:
        found = eip712.recover(authorisation.digest(), authorisation.signature)
    except MusterError as error:
        raise IntegrityError(f"{path}: {error.what}", "ask for the file again") from None
    if found != signer:
        raise IntegrityError(f"{path} is signed by {found}, not by {signer}", "ask for a new one")
