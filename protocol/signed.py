"""Opening what somebody signed as canonical JSON: bounded before it is parsed, parsed by a parser that is safe with
anything, and refused unless it is byte for byte what writing it again gives.

A signed document is an object of two fields, what is said and `signature`, by a key that what is said names.
"""

from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from protocol import eip712
from protocol.encoding import canonical_json, parse_json
from protocol.errors import MusterError, first_problem

B = TypeVar("B", bound=BaseModel)


class Sealed(Protocol):
    """What a signature covers, and whose it must be (EIP-55)."""

    @property
    def signed_digest(self) -> bytes: ...


def open_canonical(data: bytes, kind: type[B], longest: int, called: str, refused: type[MusterError]) -> B:
    """A stranger's bytes as the model that they encode. `called`: what they should be, such as "an envelope of this
    swarm". Raises `refused`, which names what is wrong, for more than `longest` bytes and for anything but the one
    encoding of a well-formed document."""
    if len(data) > longest:
        raise refused(f"{len(data)} bytes, {called} has {longest} at most")
    try:
        document = kind.model_validate(parse_json(data))
        canonical = canonical_json(document.model_dump(mode="json"))
    except ValidationError as error:
        field, problem = first_problem(error.errors(include_url=False, include_input=False, include_context=False))
        raise refused(f"`{field}`: {problem}") from None
    except ValueError as error:
        raise refused(f"not JSON: {str(error)[:200]}") from None
    if canonical != data:
        raise refused("not the canonical encoding of what it says")
    return document


def check_signer(said: Sealed, signature: str, signer: str, refused: type[MusterError]) -> None:
    """Raises `refused` unless `signature` (0x and 130 hex digits) is that of `signer` over what was `said`."""
    try:
        found = eip712.recover(said.signed_digest, bytes.fromhex(signature[2:]))
    except MusterError as error:
        raise refused(f"its signature: {error.what}") from None
    if found != signer:
        raise refused(f"it is not signed by {signer}")
