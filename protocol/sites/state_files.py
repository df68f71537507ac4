"""An outer state as files: what a newcomer fetches instead of making all outer steps again.

Shard k holds the weights' pieces and then the momentum's, in float32; its length follows from the model's shapes. Whose
word it is does not matter: what was read is the state of the digest that the log names, or it is refused.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from protocol.api.base import Hex64, Rows, SignedBody
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import IntegrityError
from protocol.signing import open_canonical
from protocol.sites.contribution import MAX_STEP
from protocol.sites.layout import F32, Piece, TensorLayout, cut
from protocol.sites.outer import OuterState

MAX_LIST_BYTES = 1 << 17


class MalformedState(IntegrityError):
    """Bytes that are no outer state of this model, or another one than was asked for."""


class StateFiles(SignedBody):
    """The files of the outer state `step` of `digest`: SHA-256 of each shard. The log names the list by its hash."""

    version: Literal[1] = 1
    step: int = Field(ge=0, lt=MAX_STEP)
    digest: Hex64
    shards: Annotated[Rows[Hex64], Field(min_length=1, max_length=1024)]

    def encode(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))


def shard_parts(state: OuterState, count: int) -> Iterator[list[memoryview]]:
    """The bytes of its `count` shards, each in parts, without a copy."""
    for pieces in state.layout.shards(count):
        parts: list[F32] = [*cut(state.weights, pieces), *cut(state.momentum, pieces)]
        yield [np.ascontiguousarray(one, "<f4").data for one in parts]


def state_shards(state: OuterState, count: int) -> Iterator[bytes]:
    """The same, each whole, one after the other: together they are as large as the state."""
    return (b"".join(parts) for parts in shard_parts(state, count))


def list_state(state: OuterState, count: int) -> StateFiles:
    """The list of its `count` shards."""
    hashes = [sha256_hex(one) for one in state_shards(state, count)]
    return StateFiles(step=state.step, digest=state.digest.hex(), shards=hashes)


def open_list(data: bytes, count: int) -> StateFiles:
    """A list from anybody. Raises MalformedState."""
    files = open_canonical(data, StateFiles, MAX_LIST_BYTES, "a list of a state's files", MalformedState)
    if len(files.shards) != count:
        raise MalformedState(f"{len(files.shards)} shards, not {count}")
    return files


def shard_bytes(pieces: Sequence[Piece]) -> int:
    """Of a state's shard."""
    return 8 * sum(one.size for one in pieces)


def read_state(step: int, digest: str, shards: Sequence[bytes], layout: TensorLayout) -> OuterState:
    """The state `step` of `digest` from its shards. Raises MalformedState for any other."""
    cuts = layout.shards(len(shards))
    weights, momentum = [], []
    for number, (data, pieces) in enumerate(zip(shards, cuts, strict=True)):
        if len(data) != shard_bytes(pieces):
            raise MalformedState(f"shard {number} of the state has {len(data)} bytes, not {shard_bytes(pieces)}")
        values, sizes = np.frombuffer(data, "<f4").astype(np.float32), [one.size for one in pieces]
        parts = np.split(values, np.cumsum([*sizes, *sizes])[:-1]) if sizes else []
        weights.append(parts[: len(sizes)])
        momentum.append(parts[len(sizes) :])
    state = OuterState(step, layout.joined(cuts, weights), layout.joined(cuts, momentum))
    if state.digest.hex() != digest:
        raise MalformedState(f"the files are outer state {state.digest.hex()[:16]}…, not {digest[:16]}…")
    return state
