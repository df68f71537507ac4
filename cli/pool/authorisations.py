"""Signed authorisations that people hand to one another as files: a node key's consent to its operator, a pool owner's
invite to a node (docs/reference/contracts.md)."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from chain.contracts import CONSENT, INVITE
from chain.deployment import Address
from protocol import signing
from protocol.accounts import LocalAccount
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.files import write_file


def _from_hex(value: Any) -> Any:
    return bytes.fromhex(value.removeprefix("0x")) if isinstance(value, str) else value


class SignedFile(BaseModel):
    """An authorisation about `node`, for `contract`, until `expiry` (Unix seconds). `domain` and `struct`: what it is
    signed by, as EIP-712 has it; the members of the struct are the fields `signed_fields`."""

    domain: ClassVar[str]
    struct: ClassVar[Any]
    signed_fields: ClassVar[tuple[str, ...]]

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    chain_id: int
    contract: Address
    node: Address
    expiry: Annotated[int, Field(ge=0, lt=1 << 63)]
    signature: Annotated[bytes, BeforeValidator(_from_hex), PlainSerializer(lambda it: "0x" + it.hex())] = b""

    def digest(self) -> bytes:
        """What is signed."""
        domain = signing.Domain(self.domain, "1", self.chain_id, self.contract)
        return signing.digest(domain, self.struct, *(getattr(self, name) for name in self.signed_fields))

    def signed(self, account: LocalAccount) -> Self:
        return self.model_copy(update={"signature": signing.sign(account, self.digest())})

    def check(self, expected: Self, signer: str, path: Path) -> None:
        """Raise ConfigError or IntegrityError unless it has the fields of `expected` (signature aside), is still valid
        at the time `expected.expiry`, and `signer` (checksum address) signed it."""
        if self.expiry < expected.expiry:
            raise ConfigError(f"{path} has expired", "ask for a new one")
        wanted = expected.model_dump(exclude={"expiry", "signature"})
        for name, got in self.model_dump(include=set(wanted)).items():
            if got != wanted[name]:
                raise ConfigError(f"{path} is for {name} {got}, not {wanted[name]}", "ask for a new one")
        try:
            actual = signing.recover(self.digest(), self.signature)
        except MusterError as error:
            raise IntegrityError(f"{path}: {error.what}", "ask for the file again") from None
        if actual != signer:
            raise IntegrityError(f"{path} is signed by {actual}, not by {signer}", "ask for a new one")

    def write(self, path: Path) -> None:
        """Write a JSON file to hand over. Raises ConfigError rather than overwrite one."""
        if path.exists():
            raise ConfigError(f"{path} exists", "choose another --out")
        write_file(path, self.model_dump_json(indent=2).encode() + b"\n", "choose another --out")


class Consent(SignedFile):
    """A node key lets `operator` register it. `contract` is Stakes."""

    domain, struct, signed_fields = "muster-stakes", CONSENT, ("node", "operator", "operator", "expiry")
    operator: str


class Invite(SignedFile):
    """A pool's owner lets `node` join `pool`. `contract` is Pools."""

    domain, struct, signed_fields = "muster-pools", INVITE, ("pool", "node", "expiry")
    pool: int
