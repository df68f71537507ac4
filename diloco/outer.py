"""The outer state and the outer optimizer, exact to the bit on any machine.

The optimizer is SGD with Nesterov momentum on the mean pseudo-gradient of the admitted contributions. Everything is
elementwise float32, each operation rounded once, in a stated order, so the result does not depend on the machine or on
how tensors are cut.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from diloco.config import OuterConfig
from diloco.strikes import MAX_STEP
from diloco.tensors import F32, Piece, TensorLayout, Tensors, cut, paste
from protocol.api.base import Hex64, Rows, SignedBody
from protocol.delta.delta import TensorEntry, WeightIndex
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import ConfigError, IntegrityError
from protocol.signing import open_canonical

MAX_LIST_BYTES = 1 << 17
_TINY = np.float32(1e-40)


class OuterStepError(IntegrityError):
    """An outer step that cannot be made; the state stays as it is."""


class MalformedState(IntegrityError):
    """Bytes that are no outer state of this model, or another one than was asked for."""


@dataclass(frozen=True)
class OuterState:
    """What all workers hold alike after outer step `step`: weights and momentum, tensors of the same shapes. Nobody
    changes the tensors."""

    step: int
    weights: Tensors
    momentum: Tensors

    @classmethod
    def start(cls, weights: Tensors) -> "OuterState":
        return cls(0, weights, {name: np.zeros_like(one) for name, one in weights.items()})

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over the step's number and the hashes of all weights and momentum."""
        hashes = [_index(one).digest.hex() for one in (self.weights, self.momentum)]
        return hashlib.sha256(canonical_json([self.step, *hashes])).digest()

    @cached_property
    def layout(self) -> TensorLayout:
        return TensorLayout.of(self.weights)


class OuterUpdate:
    """Builds the state after an outer step from the mean pseudo-gradient, piece by piece.

    Raises ConfigError in a process that flushes small floats to zero: its outer steps would differ from the others'."""

    def __init__(self, state: OuterState, config: OuterConfig) -> None:
        if _TINY * np.float32(1) == 0:
            raise ConfigError(
                "this process flushes small floats to zero, so its outer steps would differ from the others'",
                "leave out what sets that, such as torch.set_flush_denormal or a library built with -ffast-math",
            )
        self._state, self._config = state, config
        self._weights, self._momentum = state.layout.empty(), state.layout.empty()

    def apply(self, pieces: Sequence[Piece], gradients: Sequence[F32]) -> None:
        """Update some pieces. Raises OuterStepError where the result is not finite."""
        weights, momentum = cut(self._state.weights, pieces), cut(self._state.momentum, pieces)
        for piece, weight, velocity, gradient in zip(pieces, weights, momentum, gradients, strict=True):
            after, velocity_after = outer_update(weight, velocity, gradient, self._config)
            if not (np.isfinite(after).all() and np.isfinite(velocity_after).all()):
                raise OuterStepError(f"{piece.tensor} would not be finite")
            paste(self._weights, [piece], [after])
            paste(self._momentum, [piece], [velocity_after])

    def finish(self) -> OuterState:
        """Return the state once all pieces are updated."""
        return OuterState(self._state.step + 1, self._weights, self._momentum)


def outer_update(weights: F32, momentum: F32, gradient: F32, config: OuterConfig) -> tuple[F32, F32]:
    """Return new weights and momentum: m' = μ·m + g; w' = w − η·(g + μ·m')."""
    rate, decay = np.float32(config.learning_rate), np.float32(config.momentum)
    after, change = np.empty_like(momentum), np.empty_like(weights)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add(np.multiply(decay, momentum, out=after), gradient, out=after)
        np.add(np.multiply(decay, after, out=change), gradient, out=change)
        np.subtract(weights, np.multiply(rate, change, out=change), out=change)
    return change, after


# An outer state as files, which a newcomer fetches instead of making all outer steps again. Shard k holds the weights'
# pieces and then the momentum's, in float32. Nobody is trusted: what was read is the state of the digest that the log
# names, or it is refused.


class StateFiles(SignedBody):
    """The files of outer state `step` of `digest`: SHA-256 of each shard. The log names this list by its hash."""

    version: Literal[1] = 1
    step: int = Field(ge=0, lt=MAX_STEP)
    digest: Hex64
    shards: Annotated[Rows[Hex64], Field(min_length=1, max_length=1024)]

    def encode(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))


def shard_parts(state: OuterState, count: int) -> Iterator[list[memoryview]]:
    """Yield the bytes of each of `count` shards, in parts, without a copy."""
    for pieces in state.layout.shards(count):
        parts = [*cut(state.weights, pieces), *cut(state.momentum, pieces)]
        yield [np.ascontiguousarray(one, "<f4").data for one in parts]


def state_shards(state: OuterState, count: int) -> Iterator[bytes]:
    """Yield the bytes of each of `count` shards."""
    return (b"".join(parts) for parts in shard_parts(state, count))


def list_state(state: OuterState, count: int) -> StateFiles:
    """Return the list of a state's `count` shards."""
    hashes = [sha256_hex(one) for one in state_shards(state, count)]
    return StateFiles(step=state.step, digest=state.digest.hex(), shards=hashes)


def open_list(data: bytes, count: int) -> StateFiles:
    """Decode a stranger's list. Raises MalformedState."""
    files = open_canonical(data, StateFiles, MAX_LIST_BYTES, "a list of a state's files", MalformedState)
    if len(files.shards) != count:
        raise MalformedState(f"{len(files.shards)} shards, not {count}")
    return files


def state_shard_bytes(pieces: Sequence[Piece]) -> int:
    """Return the length of a state's shard."""
    return 8 * sum(one.size for one in pieces)


def read_state(step: int, digest: str, shards: Iterator[bytes], layout: TensorLayout, count: int) -> OuterState:
    """Read the state `step` of `digest` (hex) from its `count` shards, one after the other. Raises MalformedState."""
    state = OuterState(step, layout.empty(), layout.empty())
    for number, (data, pieces) in enumerate(zip(shards, layout.shards(count), strict=True)):
        if len(data) != state_shard_bytes(pieces):
            raise MalformedState(f"shard {number} of the state has {len(data)} bytes, not {state_shard_bytes(pieces)}")
        values, sizes = np.frombuffer(data, "<f4"), [one.size for one in pieces]
        parts = np.split(values, np.cumsum([*sizes, *sizes])[:-1]) if sizes else []
        paste(state.weights, pieces, parts[: len(sizes)])
        paste(state.momentum, pieces, parts[len(sizes) :])
    if state.digest.hex() != digest:
        raise MalformedState(f"the files are outer state {state.digest.hex()[:16]}…, not {digest[:16]}…")
    return state


def _index(tensors: Tensors) -> WeightIndex:
    entries = []
    for name, value in tensors.items():
        data = np.ascontiguousarray(value, "<f4").reshape(-1).view(np.uint8)
        entries.append(TensorEntry.of(name, "F32", value.shape, data))
    return WeightIndex.of(entries)
