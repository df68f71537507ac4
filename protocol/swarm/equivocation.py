"""The proof that a member signed two envelopes of one round: what of them a contract needs to judge it."""

from dataclasses import dataclass

from protocol.encoding import HEX_RECORD
from protocol.errors import IntegrityError
from protocol.swarm.envelope import EnvelopeLimits, open_signed

SignedRoot = tuple[bytes, bytes]
"""Merkle root of an envelope's groups, 32 bytes, and the member's signature of it."""


@dataclass(frozen=True)
class Equivocation:
    """Two envelopes of round `round` of `member` in swarm number `swarm`, by their roots."""

    __pydantic_config__ = HEX_RECORD

    swarm: int
    member: str
    round: int
    signed: tuple[SignedRoot, SignedRoot]


def equivocation(one: bytes, other: bytes, limits: EnvelopeLimits) -> Equivocation:
    """The proof from two stored envelopes. Raises MalformedEnvelope for what is no envelope of that swarm,
    IntegrityError for two that prove nothing: of two members or rounds, or with the same groups."""
    first, second = open_signed(one, limits), open_signed(other, limits)
    a, b = first.envelope, second.envelope
    if (a.member, a.round) != (b.member, b.round):
        raise IntegrityError(
            f"round {a.round} of {a.member} and round {b.round} of {b.member}", "show two envelopes of one round"
        )
    if a.root == b.root:
        raise IntegrityError("both envelopes have the same groups", "signing the same twice is no breach")
    roots = ((a.root, bytes.fromhex(first.signature[2:])), (b.root, bytes.fromhex(second.signature[2:])))
    return Equivocation(limits.swarm.swarm, a.member, a.round, roots)
