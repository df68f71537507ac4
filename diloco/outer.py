"""The outer state, the outer optimizer and the admission of contributions, exact to the bit on any machine.

The optimizer is SGD with Nesterov momentum on the mean pseudo-gradient of the admitted contributions. Everything is
elementwise float32, each operation rounded once, in a stated order, so the result does not depend on the machine or on
how tensors are cut. Contributions are decoded one shard at a time, so memory holds one shard of each, and the weighted
sum adds workers in ascending order of their addresses."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from diloco import codec
from diloco.config import AdmissionConfig, OuterConfig
from diloco.messages import MAX_STEP, Contribution, Expected, ShardEntry
from protocol.api.base import Hex64, Rows, SignedBody
from protocol.delta.delta import TensorEntry, WeightIndex
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import ConfigError, IntegrityError
from protocol.signing import open_canonical

MAX_LIST_BYTES = 1 << 17
ReadShard = Callable[[ShardEntry], bytes]
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
    weights: codec.Tensors
    momentum: codec.Tensors

    @classmethod
    def start(cls, weights: codec.Tensors) -> "OuterState":
        return cls(0, weights, {name: np.zeros_like(tensor) for name, tensor in weights.items()})

    def skipped(self) -> "OuterState":
        """Return the state after a step with too few files to train on: nothing changes but its number."""
        return OuterState(self.step + 1, self.weights, self.momentum)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over the step's number and the hashes of all weights and momentum."""
        hashes = []
        for tensors in (self.weights, self.momentum):
            entries = []
            for name, value in tensors.items():
                data = np.ascontiguousarray(value, "<f4").reshape(-1).view(np.uint8)
                entries.append(TensorEntry.of(name, "F32", value.shape, data))
            hashes.append(WeightIndex.of(entries).digest.hex())
        return hashlib.sha256(canonical_json([self.step, *hashes])).digest()

    @cached_property
    def layout(self) -> codec.TensorLayout:
        return codec.TensorLayout.of(self.weights)


def outer_step(
    state: OuterState, config: OuterConfig, gradients: Iterable[tuple[Sequence[codec.Piece], Sequence[codec.F32]]]
) -> OuterState:
    """Return the state after an outer step along the mean pseudo-gradient, which is given piece by piece: m' = μ·m + g;
    w' = w − η·(g + μ·m'). Raises OuterStepError where it would not be finite; ConfigError in a process that flushes
    small floats to zero."""
    if _TINY * np.float32(1) == 0:
        raise ConfigError(
            "this process flushes small floats to zero, so its outer steps would differ from the others'",
            "leave out what sets that, such as torch.set_flush_denormal or a library built with -ffast-math",
        )
    rate, decay = np.float32(config.learning_rate), np.float32(config.momentum)
    after = OuterState(state.step + 1, state.layout.empty(), state.layout.empty())
    for pieces, given in gradients:
        parts = zip(pieces, given, codec.cut(state.weights, pieces), codec.cut(state.momentum, pieces), strict=True)
        for piece, gradient, weights, momentum in parts:
            velocity, change = np.empty_like(momentum), np.empty_like(weights)
            with np.errstate(over="ignore", invalid="ignore"):
                np.add(np.multiply(decay, momentum, out=velocity), gradient, out=velocity)
                np.add(np.multiply(decay, velocity, out=change), gradient, out=change)
                np.subtract(weights, np.multiply(rate, change, out=change), out=change)
            if not (np.isfinite(change).all() and np.isfinite(velocity).all()):
                raise OuterStepError(f"{piece.tensor} would not be finite")
            codec.paste(after.weights, [piece], [change])
            codec.paste(after.momentum, [piece], [velocity])
    return after


# Admission: which contributions count, from what is published alone, the same to the bit for everybody
#
# A contribution counts if its length is within a factor of the median length, and the median of its cosines with the
# others' is not below a bound. Both follow from the inner products of all contributions, and a minority cannot move a
# median beyond the honest values. What counts is scaled down to the median length, so that a worker moves the weights
# no further than half of the others do.


@dataclass(frozen=True)
class Admitted:
    """`weights`: for each admitted worker, the factor of its contribution in the sum; empty if the outer step cannot be
    made of what there is. `excluded`: why another worker's contribution does not count."""

    weights: Mapping[str, Fraction]
    excluded: Mapping[str, str]


def admit(workers: Sequence[str], products: codec.Products | None, config: AdmissionConfig) -> Admitted:
    """Judge contributions by their inner products with one another, in the order of `workers`. Where one owner trusts
    all workers (`cosine` null), there are no products: every contribution that decodes, which makes it finite, counts
    alike."""
    excluded: dict[str, str] = {}
    if config.cosine is None or products is None:
        if len(workers) < config.minimum:
            return _too_few(workers, excluded, config)
        return Admitted({worker: Fraction(1, len(workers)) for worker in workers}, excluded)
    at = {worker: row for row, worker in enumerate(workers)}
    lengths = {worker: math.sqrt(products[row][row]) for worker, row in at.items()}
    for worker, length in lengths.items():
        if not math.isfinite(length):
            excluded[worker] = "infinity or NaN in it"
        elif length == 0:
            excluded[worker] = "it is zero"
    left = [worker for worker in workers if worker not in excluded]
    median = _lower_median([lengths[worker] for worker in left])
    for worker in left:
        if not median / config.norm_factor <= lengths[worker] <= median * config.norm_factor:
            excluded[worker] = f"its length is {lengths[worker] / median:.3g} times the median"
    left = [worker for worker in left if worker not in excluded]
    for worker in left:
        others = [other for other in left if other != worker]
        cosines = sorted(products[at[worker]][at[other]] / (lengths[worker] * lengths[other]) for other in others)
        # The higher of two middle values: of two others, an honest worker needs one that is honest.
        typical = cosines[len(cosines) // 2] if cosines else -1.0
        if typical < config.cosine:
            excluded[worker] = f"its median cosine with the others is {typical:.3f}"
    left = [worker for worker in left if worker not in excluded]
    if len(left) < config.minimum:
        return _too_few(left, excluded, config)
    median = _lower_median([lengths[worker] for worker in left])
    scale = {worker: min(Fraction(1), Fraction(median) / Fraction(lengths[worker])) for worker in left}
    return Admitted({worker: Fraction(1, len(left)) * scale[worker] for worker in left}, excluded)


def _too_few(workers: Sequence[str], excluded: Mapping[str, str], config: AdmissionConfig) -> Admitted:
    why = f"only {len(workers)} are admitted, {config.minimum} are needed"
    return Admitted({}, {**excluded, **dict.fromkeys(workers, why)})


def _lower_median(values: Sequence[float]) -> float:
    """Return the lower of two middle values: never longer than an honest length while fewer than half are hostile."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


# The outer step


def encode_payload(
    state: OuterState, gradient: codec.Tensors, expected: Expected, worker: str, error: codec.Tensors | None = None
) -> tuple[tuple[bytes, ...], codec.Tensors | None]:
    """Encode the pseudo-gradient of a worker, `state.weights` − inner weights; return the payload's shards, and the
    error feedback if it counts (mode `sparse`). Raises MalformedContribution, ValueError for what is not finite."""
    settings, shards = expected.run.settings, []
    after: codec.Tensors = {}
    if settings.mode == "sparse":
        after, error = codec.select_visible(state.weights, gradient, error)
    for number, pieces in enumerate(state.layout.shards(settings.shards)):
        if settings.mode == "sparse":
            pairs = zip(codec.cut(state.weights, pieces), codec.cut(after, pieces), strict=True)
            bodies = [codec.encode_sparse(before, sent) for before, sent in pairs]
        else:
            encode = codec.encode_int8 if settings.mode == "int8" else codec.encode_float32
            bodies = [encode(piece) for piece in codec.cut(gradient, pieces)]
        shards.append(codec.encode_shard(expected.binding(worker, number), bodies))
    return tuple(shards), error


@dataclass(frozen=True)
class Payloads:
    """The payloads of one attempt at the outer step that starts from `state`; `read` returns a file of one."""

    state: OuterState
    expected: Expected
    contributions: Mapping[str, Contribution]
    read: ReadShard

    def shard(self, worker: str, number: int) -> list[codec.F32]:
        """Decode a worker's shard into the pieces of its pseudo-gradient (outer − inner weights). Raises
        MalformedContribution, and whatever `read` raises."""
        settings = self.expected.run.settings
        pieces = self.state.layout.shards(settings.shards)[number]
        data = self.read(self.contributions[worker].shards[number])
        base = codec.cut(self.state.weights, pieces)
        return codec.decode_shard(data, self.expected.binding(worker, number), pieces, settings.mode, base)


def settle(payloads: Payloads) -> tuple[OuterState | None, Admitted]:
    """Return the state after the outer step, None if too few contributions are admitted, and which are. Raises
    OuterStepError where the state would not be finite, and as `Payloads.shard`."""
    settings, state = payloads.expected.run.settings, payloads.state
    workers = sorted(payloads.contributions)
    products: codec.Products | None = None
    if settings.admission.cosine is not None:
        shards = [
            codec.gram([payloads.shard(worker, number) for worker in workers]) for number in range(settings.shards)
        ]
        products = codec.add_products(shards)
    admitted = admit(workers, products, settings.admission)
    if not admitted.weights:
        return None, admitted
    factors = {worker: np.float32(float(admitted.weights[worker])) for worker in sorted(admitted.weights)}

    def means() -> Iterator[tuple[Sequence[codec.Piece], Sequence[codec.F32]]]:
        for number, pieces in enumerate(state.layout.shards(settings.shards)):
            sums: list[codec.F32] = [np.zeros(piece.size, np.float32) for piece in pieces]
            for worker, factor in factors.items():
                for total, value in zip(sums, payloads.shard(worker, number), strict=True):
                    with np.errstate(over="ignore", invalid="ignore"):
                        total += np.multiply(factor, value)
            yield pieces, sums

    return outer_step(state, settings.outer, means()), admitted


def update_norm(before: OuterState, after: OuterState) -> float:
    """Return the length of the change of all weights; 0 unless the states follow one another."""
    if after.step != before.step + 1:
        return 0.0
    return math.hypot(*(float(np.linalg.norm(after.weights[name] - tensor)) for name, tensor in before.weights.items()))


# An outer state as files, which a newcomer fetches instead of making all outer steps again. Shard k holds the weights'
# pieces and then the momentum's, in float32. Nobody is trusted: what was read is the state of the digest that the log
# names, or it is refused.


class StateFiles(SignedBody):
    """The files of outer state `step` of `digest`: SHA-256 of each shard. The log names this list by its hash."""

    version: Literal[1] = 1
    step: int = Field(ge=0, lt=MAX_STEP)
    digest: Hex64
    shards: Annotated[Rows[Hex64], Field(min_length=1, max_length=1024)]


def shard_parts(state: OuterState, count: int) -> Iterator[list[memoryview]]:
    """Yield the bytes of each of `count` shards, in parts, without a copy."""
    for pieces in state.layout.shards(count):
        parts = [*codec.cut(state.weights, pieces), *codec.cut(state.momentum, pieces)]
        yield [np.ascontiguousarray(part, "<f4").data for part in parts]


def list_state(state: OuterState, count: int) -> bytes:
    """Return the encoded list of a state's `count` shards."""
    hashes = [sha256_hex(b"".join(parts)) for parts in shard_parts(state, count)]
    files = StateFiles(step=state.step, digest=state.digest.hex(), shards=hashes)
    return canonical_json(files.model_dump(mode="json"))


def open_list(data: bytes, count: int) -> StateFiles:
    """Decode a stranger's list. Raises MalformedState."""
    files = open_canonical(data, StateFiles, MAX_LIST_BYTES, "a list of a state's files", MalformedState)
    if len(files.shards) != count:
        raise MalformedState(f"{len(files.shards)} shards, not {count}")
    return files


def state_shard_bytes(pieces: Sequence[codec.Piece]) -> int:
    """Return the length of a state's shard."""
    return 8 * sum(piece.size for piece in pieces)


def read_state(step: int, digest: str, shards: Iterator[bytes], layout: codec.TensorLayout, count: int) -> OuterState:
    """Read the state `step` of `digest` (hex) from its `count` shards, one after the other. Raises MalformedState."""
    state = OuterState(step, layout.empty(), layout.empty())
    for number, (data, pieces) in enumerate(zip(shards, layout.shards(count), strict=True)):
        if len(data) != state_shard_bytes(pieces):
            raise MalformedState(f"shard {number} of the state has {len(data)} bytes, not {state_shard_bytes(pieces)}")
        values, sizes = np.frombuffer(data, "<f4"), [piece.size for piece in pieces]
        parts = np.split(values, np.cumsum([*sizes, *sizes])[:-1]) if sizes else []
        codec.paste(state.weights, pieces, parts[: len(sizes)])
        codec.paste(state.momentum, pieces, parts[len(sizes) :])
    if state.digest.hex() != digest:
        raise MalformedState(f"the files are outer state {state.digest.hex()[:16]}…, not {digest[:16]}…")
    return state
