"""The envelope: the question groups that a member shares of one round, signed, in exactly one encoding.

It is the canonical JSON {envelope, signature} and lies in the bucket as `envelopes/<sha256>.json`. The signature covers
the Merkle root of the groups, so that one group can be shown to anybody, a contract too, without the others. What
arrives is a stranger's: it is bounded before it is parsed, parsed by a parser that is safe with anything, and refused
unless it is byte for byte what writing it again gives.
"""

import hashlib
import math
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Address, Hex64, Rows, Signature, SignedBody
from protocol.encoding import canonical_json
from protocol.errors import MusterError
from protocol.rollout_file import merkle
from protocol.signing import check_signer, open_canonical
from protocol.swarm.document import SwarmDocument

DOMAIN = signing.Domain("muster-swarm", "1", 0, "0x" + "00" * 20)
"""The EIP-712 domain of what members sign: no chain and no contract knows a swarm."""
STRUCT = "Envelope(address member,bytes32 document,uint256 round,bytes32 root)"
MAX_ROUND = 1 << 32


class MalformedEnvelope(MusterError):
    """Bytes that are no envelope, or not one for this swarm."""


class SharedCompletion(SignedBody):
    """`text`: decoded, without the token that ended it. `ended`: whether there was one, or the length ran out.
    `reward`: what the sharer's verifier gave, exactly a float32. `logprob`: ln p of the whole completion under the
    sharer's policy in thousandths of a nat, null where it does not say; nobody relies on it."""

    text: str
    ended: bool
    reward: float = Field(ge=0, le=1)
    logprob: int | None = Field(None, le=0, gt=-(1 << 40))

    @field_validator("reward")
    @classmethod
    def _float32(cls, value: float) -> float:
        if math.copysign(1.0, value) < 0 or struct.unpack("<f", struct.pack("<f", value))[0] != value:
            raise ValueError("is no float32 from 0 to 1")
        return value


class SharedGroup(SignedBody):
    """All completions of one problem: that of slot `slot` of the sharer's round. `question`: SHA-256 of the problem's
    text as the sharer's environment made it."""

    slot: int = Field(ge=0, lt=1 << 16)
    question: Hex64
    completions: Annotated[Rows[SharedCompletion], Field(min_length=2, max_length=64)]

    @property
    def leaf(self) -> bytes:
        return merkle.leaf(canonical_json(self.model_dump(mode="json")))

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(one.reward for one in self.completions)


class Envelope(SignedBody):
    """What `member` shares of its round `round` in the swarm with the document of SHA-256 `document`; groups in the
    order of their slots."""

    version: Literal[3] = 3
    document: Hex64
    member: Address
    round: int = Field(ge=0, lt=MAX_ROUND)
    groups: Annotated[Rows[SharedGroup], Field(min_length=1, max_length=256)]

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        slots = [group.slot for group in self.groups]
        if any(later <= earlier for earlier, later in pairwise(slots)):
            raise ValueError("the groups' slots do not ascend")
        return self

    @property
    def root(self) -> bytes:
        """Merkle root of the groups."""
        return merkle.root([group.leaf for group in self.groups])

    @property
    def signed_digest(self) -> bytes:
        """The 32 bytes that the signature covers."""
        return signing.digest(DOMAIN, STRUCT, self.member, bytes.fromhex(self.document), self.round, self.root)


class SignedEnvelope(SignedBody):
    """As it is stored."""

    envelope: Envelope
    signature: Signature

    def encode(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))


@dataclass(frozen=True)
class EnvelopeLimits:
    """What an envelope of a swarm may be: that swarm's, and no larger than its document allows. `file_bytes`: the
    longest that one can be."""

    document: str
    groups: int
    samples: int
    text_bytes: int
    file_bytes: int

    @classmethod
    def of(cls, document: SwarmDocument) -> "EnvelopeLimits":
        sizes = document.groups, document.samples, document.text_bytes, document.envelope_bytes
        return cls(document.digest.hex(), *sizes)


def seal(envelope: Envelope, account: LocalAccount) -> bytes:
    """The stored bytes of an envelope of the account's own. Raises ValueError for another's."""
    if account.address != envelope.member:
        raise ValueError(f"an envelope of {envelope.member} cannot be signed by {account.address}")
    signature = "0x" + signing.sign(account, envelope.signed_digest).hex()
    return SignedEnvelope(envelope=envelope, signature=signature).encode()


def sealed_by(data: bytes) -> str:
    """The member whose stored envelope this is, read without a check: of one's own. Raises MalformedEnvelope."""
    try:
        return SignedEnvelope.model_validate_json(data).envelope.member
    except ValueError:
        raise MalformedEnvelope("no envelope") from None


def open_envelope(data: bytes, limits: EnvelopeLimits) -> Envelope:
    """The same without its signature."""
    return open_signed(data, limits).envelope


def open_signed(data: bytes, limits: EnvelopeLimits) -> SignedEnvelope:
    """An envelope from anybody. Raises MalformedEnvelope, which names what is wrong, for anything but the one encoding
    of a well-formed envelope of that swarm, signed by the member that it names."""
    signed = open_canonical(data, SignedEnvelope, limits.file_bytes, "an envelope of this swarm", MalformedEnvelope)
    _check_sizes(signed.envelope, limits)
    check_signer(signed.envelope, signed.signature, signed.envelope.member, MalformedEnvelope)
    return signed


def question_digest(question: str) -> str:
    """SHA-256 of a problem's text in hex."""
    return hashlib.sha256(question.encode(errors="surrogatepass")).hexdigest()


def _check_sizes(envelope: Envelope, limits: EnvelopeLimits) -> None:
    if envelope.document != limits.document:
        raise MalformedEnvelope(f"its swarm's document is {envelope.document[:16]}…, ours {limits.document[:16]}…")
    if len(envelope.groups) > limits.groups or envelope.groups[-1].slot >= limits.groups:
        raise MalformedEnvelope(f"more than {limits.groups} groups, or a slot beyond these")
    for group in envelope.groups:
        if len(group.completions) != limits.samples:
            raise MalformedEnvelope(f"a group of {len(group.completions)} completions, not {limits.samples}")
        longest = max(len(one.text.encode()) for one in group.completions)
        if longest > limits.text_bytes:
            raise MalformedEnvelope(f"a text of {longest} bytes, at most {limits.text_bytes} are allowed")
