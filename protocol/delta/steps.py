"""A segment's changes as steps between neighbouring floats, by the exponent of the base (docs/weights.md)."""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.delta.apply import BAD_END, BAD_GAP, BAD_STATES, BAD_STEP, GOOD, apply
from protocol.delta.bits import SLACK
from protocol.delta.blocks import BLOCK
from protocol.delta.events import write_events
from protocol.delta.fields import DeltaError, FieldReader, varint
from protocol.delta.groups import choose_groups
from protocol.delta.layout import DENSE_GROUPS, GROUPS, SEGMENT, SPARSE_GROUPS, TOKENS, FloatFormat, Grouping
from protocol.delta.rans import LANES, LOW, SCALE, frequencies, slots, write_tokens
from protocol.delta.scan import count_changes, scan

Elements = NDArray[Any]
"""[n] uint16 or uint32, n ≤ SEGMENT: the bits of floats."""

_BLOCK, _SAMPLED = 512, 1 << 15
_DENSE = 0x80
_VARINTS = tuple(map(varint, range(SCALE + 1)))
_threads = threading.local()
_WRONG = {
    BAD_GAP: "a gap reaches past the segment's end",
    BAD_STEP: "a step is larger than the format",
    BAD_STATES: "the tokens do not end where they should",
    BAD_END: "the changes do not end where they should",
}


def encode_steps(base: Elements, new: Elements, form: FloatFormat) -> bytes | None:
    """The code of `new`, given `base`; None if it would not be shorter than `new` itself."""
    stride = max(1, base.size // _SAMPLED)
    counts = count_changes(base, new, form.numbers, _BLOCK, stride)
    grouping = choose_groups(counts, stride)
    lowest, numbers, means = grouping.tables()
    *lists, symbols, extra, stream, codes = _scratch(base)
    changes, big, coded, further = scan((base, new), form.numbers, (lowest, numbers), (*lists, symbols, extra))
    if further > base.nbytes // 4:
        return None
    used = write_events(tuple(lists), changes, big, means, stream)
    if used > base.nbytes // 4:
        return None
    table = frequencies(symbols, coded)
    parts = [_head(grouping), _tables(grouping, table)]
    if min(grouping.means) < 0:
        first, states = write_tokens(symbols, coded, table, codes)
        parts += [np.array(states, "<u4").tobytes(), varint(codes.size - first), varint(further)]
        parts += [codes[first:].tobytes(), extra[: 4 * further].tobytes()]
    code = b"".join((*parts, stream[: 4 * used].tobytes()))
    return code if len(code) < new.nbytes else None


def decode_steps(code: memoryview, base: Elements, out: Elements, form: FloatFormat) -> None:
    """Write to `out` what `encode_steps` was given. Raises DeltaError."""
    reader = FieldReader(code)
    grouping = _read_head(reader, form)
    table = np.zeros((DENSE_GROUPS, TOKENS), np.int64)
    states = np.full(LANES, LOW, np.uint64)
    codes, extra = memoryview(b""), memoryview(b"")
    dense = sum(mean < 0 for mean in grouping.means)
    if dense:
        for group in range(dense):
            _read_table(reader, table[group])
        states = np.frombuffer(reader.take(4 * LANES), "<u4").astype(np.uint64)
        amount, further = reader.varint(2 * SEGMENT), reader.varint(SEGMENT)
        codes, extra = reader.take(2 * amount), reader.take(4 * further)
    if len(code) - reader.at & 3:
        raise DeltaError("the changes are not whole words")
    tokens = (slots(table), states, _padded(codes, 2 * BLOCK).view("<u2"), _padded(extra, SLACK))
    found = apply((base, out), form.numbers, grouping.tables(), tokens, _padded(reader.rest(), SLACK))
    if found != GOOD:
        raise DeltaError(_WRONG[found])


def _scratch(base: Elements) -> list[NDArray[Any]]:
    """A thread's memory for the lists of `scan` and the streams, which are at most as long as `base`: events, gaps,
    steps, big ones, symbols, further bits, the stream of events, codes."""
    kinds = (np.uint8, np.int32, np.int32, np.int32, np.uint16, np.uint8, np.uint8, np.uint16)
    # As many elements as fit into the bytes at two each: the next tensor may have narrower ones.
    most, streams = base.nbytes // 2, base.nbytes + 4 + SLACK
    sizes = (most, most + SPARSE_GROUPS, most, most + 1, most, streams, streams, most + 1)
    if getattr(_threads, "size", 0) < base.nbytes:
        _threads.arrays = [np.empty(size, kind) for size, kind in zip(sizes, kinds, strict=True)]
        _threads.size = base.nbytes
    return [one[:size] for one, size in zip(_threads.arrays, sizes, strict=True)]


def _padded(data: memoryview, zeros: int) -> NDArray[np.uint8]:
    made = np.zeros(len(data) + zeros, np.uint8)
    made[: len(data)] = data
    return made


def _head(grouping: Grouping) -> bytes:
    fields = [len(grouping.lowest)]
    for lowest, mean in zip(grouping.lowest, grouping.means, strict=True):
        fields += [lowest, mean if mean >= 0 else _DENSE]
    return bytes(fields)


def _read_head(reader: FieldReader, form: FloatFormat) -> Grouping:
    amount = reader.byte()
    fields = bytes(reader.take(2 * amount))
    lowest = fields[::2]
    means = tuple(-1 if field == _DENSE else field for field in fields[1::2])
    if max(means, default=-1) >= SEGMENT.bit_length():
        raise DeltaError("a group's mean gap is longer than a segment")
    sparse = sum(mean >= 0 for mean in means)
    if not 0 < amount <= GROUPS or sparse > SPARSE_GROUPS or amount - sparse > DENSE_GROUPS:
        raise DeltaError(f"the delta has {sparse} sparse and {amount - sparse} dense groups")
    above = form.exponent_mask + 1
    for low in lowest:
        if low >= above:
            raise DeltaError("the groups' exponents do not fall")
        above = low
    if above:
        raise DeltaError("the groups do not hold every exponent")
    return Grouping(tuple(lowest), means)


def _tables(grouping: Grouping, table: NDArray[np.int64]) -> bytes:
    """Of each dense group how many tokens there are, and their frequencies."""
    parts = []
    for row in table[: sum(mean < 0 for mean in grouping.means)].tolist():
        amount = max((token + 1 for token, share in enumerate(row) if share), default=0)
        parts.append(bytes([amount]) + b"".join([_VARINTS[share] for share in row[:amount]]))
    return b"".join(parts)


def _read_table(reader: FieldReader, row: NDArray[np.int64]) -> None:
    amount = reader.byte()
    if amount > TOKENS:
        raise DeltaError(f"a group has {amount} tokens")
    shares = [reader.varint(SCALE) for _ in range(amount)]
    if amount and (sum(shares) != SCALE or not shares[-1]):
        raise DeltaError("a group's frequencies do not add up")
    row[:amount] = shares
