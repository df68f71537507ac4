"""What the members of a swarm agree on: its document, the problems of each round, and the envelope they exchange.

An envelope carries the question groups that a member shares of one round. Its stored form is the canonical JSON
{envelope, signature}, under `envelopes/<address>/<sha256>.json` or `envelopes/<sha256>.json`. Receivers bound its size
before they parse it, and refuse it unless writing the parsed value again gives the same bytes."""

import hashlib
import math
import struct
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Address, Hex64, Rows, Signature, SignedBody
from protocol.config import MAX_ENVIRONMENTS, EnvironmentConfig, ModelConfig, PoolConfig, TrainConfig, WorkConfig
from protocol.encoding import Document, canonical_json, tagged_hash, words
from protocol.errors import MusterError
from protocol.signing import check_signer, open_canonical

MAX_ENVELOPE_BYTES = 32 << 20  # every member holds a whole envelope in memory, together with what it parses to
MAX_ROUND = 1 << 32
# EIP-712 domain of members' signatures. The zeros: no chain and no contract knows a swarm.
DOMAIN = signing.Domain("muster-swarm", "1", 0, "0x" + "00" * 20)
STRUCT = "Envelope(address member,bytes32 envelope)"
_ESCAPED = 6  # most bytes of JSON for one byte of text: a control character is `\u` and four digits
_AROUND_COMPLETION, _AROUND_GROUP, _AROUND_ENVELOPE = 128, 256, 1024


class SwarmDocument(Document):
    """What all members of a swarm have in common; model, tokenizer and training are each member's own. The SHA-256 of
    its canonical JSON names the swarm in every envelope.

    - `environments`: as in a pool's document, without targets, curricula and length penalties, since a length in tokens
      differs between tokenizers.
    - `answer_after`: the part of a completion after its last occurrence is scored (empty: all of it).
    - `groups`, `samples`, `text_bytes`: an envelope holds at most `groups` groups of exactly `samples` completions of
      at most `text_bytes` bytes of UTF-8. Together they must stay below MAX_ENVELOPE_BYTES."""

    version: Literal[2] = 2
    kind: Literal["swarm"] = "swarm"
    name: str = Field(min_length=1, max_length=64)
    environments: tuple[EnvironmentConfig, ...] = Field(min_length=1, max_length=MAX_ENVIRONMENTS)
    answer_after: str = Field("", max_length=64)
    groups: int = Field(8, ge=1, le=256)
    samples: int = Field(8, ge=2, le=64)
    text_bytes: int = Field(4096, ge=1, le=1 << 16)

    @model_validator(mode="after")
    def _environments_suit_all_models(self) -> Self:
        names = [environment.called for environment in self.environments]
        if len(set(names)) < len(names):
            raise ValueError("two environments have one name; give them `label`s that differ")
        for environment in self.environments:
            if environment.targets or environment.length_alpha or environment.curriculum is not None:
                raise ValueError(
                    f"environment {environment.called}: leave `targets`, `length_alpha` and `curriculum` out; every "
                    "member of a swarm has tokens and training of its own"
                )
        return self

    @model_validator(mode="after")
    def _fits_into_memory(self) -> Self:
        if self.envelope_bytes > MAX_ENVELOPE_BYTES:
            raise ValueError(
                f"an envelope could have {self.envelope_bytes} bytes, {MAX_ENVELOPE_BYTES} at most; lower `groups`, "
                "`samples` or `text_bytes`"
            )
        return self

    @property
    def envelope_bytes(self) -> int:
        """Upper bound on the stored size of an envelope."""
        completion = _ESCAPED * self.text_bytes + _AROUND_COMPLETION
        return self.groups * (self.samples * completion + _AROUND_GROUP) + _AROUND_ENVELOPE

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical document."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).digest()

    def pool_config(self, model: ModelConfig, max_new_tokens: int, max_prompt_tokens: int) -> PoolConfig:
        """Return the environments as one member's model meets them, with the swarm's `answer_after`."""
        work = WorkConfig(
            problems_per_file=self.groups, samples_per_problem=self.samples, max_new_tokens=max_new_tokens,
            max_prompt_tokens=max_prompt_tokens,
        )  # fmt: skip
        own = model.model_copy(update={"answer_after": self.answer_after})
        train = TrainConfig(files_per_step=1)
        return PoolConfig(name=self.name, model=own, environments=self.environments, work=work, train=train)


# Problems and noise
#
# A receiver derives the problem of every group itself, so a member cannot share text for a problem of its choice, nor
# the same group twice. A member can leave out rounds and slots; receivers limit how fast its rounds advance.


def round_problem(document: bytes, member: str, number: int, slot: int) -> int:
    """Return the problem seed of slot `slot` in a member's round `number`; `document` is the document's digest."""
    return words(tagged_hash("muster/swarm-problem/3", document, member, number, slot), 1)[0]


def round_noise(document: bytes, member: str, number: int, slot: int, sample: int) -> tuple[int, int, int]:
    """Return the sampling noise key of one completion. It makes a round repeatable after a kill; nobody checks it."""
    k0, k1, k2 = words(tagged_hash("muster/swarm-noise/1", document, member, number, slot, sample), 3)
    return k0, k1, k2


def heldout_problem(document: bytes, index: int) -> int:
    """Return the seed of held-out problem `index`: the same for all members, and part of no round."""
    return words(tagged_hash("muster/swarm-heldout/1", document, index), 1)[0]


def heldout_noise(document: bytes, index: int) -> tuple[int, int, int]:
    """Return the noise key of the one try at a held-out problem: the same for all members and rounds, so that two
    measurements differ by their weights alone."""
    k0, k1, k2 = words(tagged_hash("muster/swarm-heldout-noise/1", document, index), 3)
    return k0, k1, k2


def question_digest(question: str) -> str:
    """Return the SHA-256 of a problem's text in hex."""
    return hashlib.sha256(question.encode(errors="surrogatepass")).hexdigest()


# Envelopes


class MalformedEnvelope(MusterError):
    """Bytes that are no envelope, or not one of this swarm."""


class SharedCompletion(SignedBody):
    """One completion. `text` is decoded, without its end token; `ended` tells whether there was one. `reward` is the
    verifier's, exactly a float32. `logprob` is ln p of the completion under the sender's policy in thousandths of a
    nat, or null; receivers do not rely on it."""

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
    """All completions of the problem in slot `slot` of the sender's round. `question` is the SHA-256 of the problem's
    text as the sender's environment made it."""

    slot: int = Field(ge=0, lt=1 << 16)
    question: Hex64
    completions: Annotated[Rows[SharedCompletion], Field(min_length=2, max_length=64)]

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(completion.reward for completion in self.completions)


class Envelope(SignedBody):
    """What `member` shares of its round `round` in the swarm whose document has the SHA-256 `document`. Groups are in
    ascending order of their slots."""

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
    def signed_digest(self) -> bytes:
        """The 32 bytes that the signature covers."""
        body = hashlib.sha256(canonical_json(self.model_dump(mode="json"))).digest()
        return signing.digest(DOMAIN, STRUCT, self.member, body)


class SignedEnvelope(SignedBody):
    """The stored form."""

    envelope: Envelope
    signature: Signature


def seal(envelope: Envelope, account: LocalAccount) -> bytes:
    """Return the stored bytes of the account's own envelope. Raise ValueError for an envelope of another member."""
    if account.address != envelope.member:
        raise ValueError(f"an envelope of {envelope.member} cannot be signed by {account.address}")
    signature = "0x" + signing.sign(account, envelope.signed_digest).hex()
    return canonical_json({"envelope": envelope.model_dump(mode="json"), "signature": signature})


def sealed_by(data: bytes) -> str:
    """Return the member of one's own stored envelope, without checking it. Raise MalformedEnvelope."""
    try:
        return SignedEnvelope.model_validate_json(data).envelope.member
    except ValueError:
        raise MalformedEnvelope("no envelope") from None


def open_envelope(data: bytes, swarm: SwarmDocument) -> Envelope:
    """Parse and check an envelope from anybody. Raise MalformedEnvelope, which names what is wrong, for anything but
    the canonical encoding of a well-formed envelope of this swarm that is signed by the member it names."""
    signed = open_canonical(data, SignedEnvelope, swarm.envelope_bytes, "an envelope of this swarm", MalformedEnvelope)
    envelope, document = signed.envelope, swarm.digest.hex()
    if envelope.document != document:
        raise MalformedEnvelope(f"its swarm's document is {envelope.document[:16]}…, ours {document[:16]}…")
    if len(envelope.groups) > swarm.groups or envelope.groups[-1].slot >= swarm.groups:
        raise MalformedEnvelope(f"more than {swarm.groups} groups, or a slot beyond these")
    for group in envelope.groups:
        if len(group.completions) != swarm.samples:
            raise MalformedEnvelope(f"a group of {len(group.completions)} completions, not {swarm.samples}")
        longest = max(len(completion.text.encode()) for completion in group.completions)
        if longest > swarm.text_bytes:
            raise MalformedEnvelope(f"a text of {longest} bytes, at most {swarm.text_bytes} are allowed")
    check_signer(envelope.signed_digest, signed.signature, envelope.member, MalformedEnvelope)
    return envelope
