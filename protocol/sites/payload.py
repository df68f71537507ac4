"""A shard of a contribution's payload: whose it is, and its pieces.

It begins with a hash of run, outer step, base, site and number, so that the bytes of one site are no payload of
another's: who copies must sign hashes of bytes that it can make only after the original is published, and by then the
time to sign has passed (docs/sites.md).
"""

import hashlib
from collections.abc import Sequence

from protocol.delta.tensors import DeltaError, FieldReader, varint
from protocol.encoding import canonical_json
from protocol.sites.codebook import Kind
from protocol.sites.config import Mode
from protocol.sites.forms import (
    MalformedContribution,
    decode_float32,
    decode_int8,
    decode_sparse,
    encode_float32,
    encode_int8,
    encode_sparse,
    longest_piece,
)
from protocol.sites.identity import ContributionPlace
from protocol.sites.layout import F32, Piece

MAGIC = b"MUSTERS1"
_HEAD = len(MAGIC) + 32


def longest_shard(pieces: Sequence[Piece]) -> int:
    """Bytes that an honest shard of these pieces never exceeds, in any mode."""
    return _HEAD + sum(longest_piece(one.size) + len(varint(longest_piece(one.size))) for one in pieces)


def binding(place: ContributionPlace, shard: int) -> bytes:
    """The 32 bytes that say whose shard it is."""
    return hashlib.sha256(canonical_json([*place.words, shard])).digest()


def encode_dense(place: ContributionPlace, shard: int, pieces: Sequence[F32], kind: Kind | None) -> bytes:
    """`pieces` of the pseudo-gradient in float32, or quantised to bytes with codebooks of a kind. Raises ValueError for
    what is not finite in the latter."""
    made = [encode_float32(one) if kind is None else encode_int8(one, kind) for one in pieces]
    return _written(place, shard, made)


def encode_visible(place: ContributionPlace, shard: int, base: Sequence[F32], after: Sequence[F32]) -> bytes:
    """What leads from the outer weights to those with what is sent taken off."""
    made = [encode_sparse(before, now) for before, now in zip(base, after, strict=True)]
    return _written(place, shard, made)


def decode_shard(
    data: bytes, place: ContributionPlace, shard: int, pieces: Sequence[Piece], mode: Mode, base: Sequence[F32]
) -> list[F32]:
    """A stranger's shard: the pseudo-gradient of each piece. `base`: the outer weights' pieces, which mode `sparse`
    builds on. Raises MalformedContribution."""
    if len(data) > longest_shard(pieces):
        raise MalformedContribution(f"shard {shard} has {len(data)} bytes, {longest_shard(pieces)} at most are honest")
    reader = FieldReader(memoryview(data))
    try:
        if bytes(reader.take(len(MAGIC))) != MAGIC:
            raise MalformedContribution(f"shard {shard} is no shard of a contribution")
        if bytes(reader.take(32)) != binding(place, shard):
            raise MalformedContribution(f"shard {shard} was not made by {place.site} for this outer step")
        bodies = [reader.take(reader.varint(longest_piece(one.size))) for one in pieces]
        reader.end()
    except DeltaError as error:
        raise MalformedContribution(f"shard {shard}: {error.what}") from None
    return [_decoded(body, piece, mode, before) for body, piece, before in zip(bodies, pieces, base, strict=True)]


def _decoded(body: memoryview, piece: Piece, mode: Mode, base: F32) -> F32:
    if mode == "int8":
        return decode_int8(body, piece.size)
    if mode == "sparse":
        return decode_sparse(body, base)
    return decode_float32(body, piece.size)


def _written(place: ContributionPlace, shard: int, bodies: Sequence[bytes]) -> bytes:
    return b"".join((MAGIC, binding(place, shard), *(part for body in bodies for part in (varint(len(body)), body))))
