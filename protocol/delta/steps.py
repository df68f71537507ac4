"""A segment's changes as steps between neighbouring floats, by the exponent of the base (docs/weights.md)."""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.delta.apply import BAD_END, BAD_GAP, BAD_STATES, BAD_STEP, GOOD, apply
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
    counts = count_changes(base, new, form.fraction, form.exponent_mask, _BLOCK, stride)
    grouping = choose_groups(counts, stride)
    group_of, adds, means = grouping.tables()
    *lists, words, codes = _scratch(base)
    events, tokens, tags, gaps, steps, extra = lists
    elements = (base, new, _words(base), _words(new))
    changes, coded, place, held, count, last = scan(elements, form.numbers, (group_of, adds), tuple(lists))
    if place >= extra.size:
        return None
    if count:
        extra[place], place = held, place + 1
    used = write_events(events, gaps, steps, changes, last, means, words)
    if used > words.size:
        return None
    table = frequencies(tokens, tags, coded)
    first, states = write_tokens(tokens, tags, coded, table, codes)
    if first < 0:
        return None
    parts = [_head(grouping), _tables(grouping, table)]
    if min(grouping.means) < 0:
        parts += [states.astype("<u4").tobytes(), varint(codes.size - first), varint(place)]
        parts += [codes[first:].astype("<u2", copy=False).tobytes(), extra[:place].astype("<u4", copy=False).tobytes()]
    code = b"".join((*parts, words[:used].astype("<u4", copy=False).tobytes()))
    return code if len(code) < new.nbytes else None


def decode_steps(code: memoryview, base: Elements, out: Elements, form: FloatFormat) -> None:
    """Write over `out`, which holds the base, what `encode_steps` was given. Raises DeltaError."""
    reader = FieldReader(code)
    grouping = _read_head(reader, form)
    table = np.zeros((DENSE_GROUPS, TOKENS), np.int64)
    states = np.full(LANES, LOW, np.uint32)
    codes, extra = np.empty(0, np.uint16), np.empty(0, np.uint32)
    dense = sum(mean < 0 for mean in grouping.means)
    if dense:
        for group in range(dense):
            _read_table(reader, table[group])
        states = np.frombuffer(reader.take(4 * LANES), "<u4").copy()
        amount, further = reader.varint(2 * SEGMENT), reader.varint(SEGMENT)
        codes = np.frombuffer(reader.take(2 * amount), "<u2").copy()
        extra = np.frombuffer(reader.take(4 * further), "<u4").copy()
    if len(code) - reader.at & 3:
        raise DeltaError("the changes are not whole words")
    words = np.frombuffer(reader.rest(), "<u4").copy()
    tokens = (slots(table), states, codes, extra)
    found = apply((base, _words(base), out), form.numbers, grouping.tables(), tokens, words)
    if found != GOOD:
        raise DeltaError(_WRONG[found])


def _scratch(base: Elements) -> list[NDArray[Any]]:
    """A thread's memory for the lists of `scan` and the streams, which are at most as long as `base`."""
    size, streams = base.size, base.nbytes // 4 + 1
    # As many elements as fit into the bytes at two each: the next tensor may have narrower ones.
    if getattr(_threads, "size", 0) < base.nbytes:
        types = (np.uint8, np.uint8, np.uint8, np.int32, np.int64)
        _threads.arrays = [np.empty(base.nbytes // 2, kind) for kind in types]
        _threads.arrays += [
            np.empty(streams, np.uint32),
            np.empty(streams, np.uint32),
            np.empty(2 * streams, np.uint16),
        ]
        _threads.size = base.nbytes
    limits = (size,) * 5 + (streams, streams, 2 * streams)
    return [one[:limit] for one, limit in zip(_threads.arrays, limits, strict=True)]


def _words(elements: Elements) -> NDArray[np.uint64]:
    """All but the last few elements, eight bytes at a time."""
    return elements[: elements.size - elements.size % (8 // elements.itemsize)].view("<u8")


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
        parts.append(bytes([amount]) + b"".join(map(varint, row[:amount])))
    return b"".join(parts)


def _read_table(reader: FieldReader, row: NDArray[np.int64]) -> None:
    amount = reader.byte()
    if amount > TOKENS:
        raise DeltaError(f"a group has {amount} tokens")
    shares = [reader.varint(SCALE) for _ in range(amount)]
    if amount and (sum(shares) != SCALE or not shares[-1]):
        raise DeltaError("a group's frequencies do not add up")
    row[:amount] = shares
