"""Hostile rollout files: mutated Parquet files and decompression bombs against `protocol.rollout_file.file.read`.

`python -m benchmarks fuzz [--quick]`. Keys: `files` tried; `crashes` = anything but MalformedFile or a result;
`accepted` = files that were read, whose content differs from the honest file's and that still pass the header and
commitment checks; besides, `refused`, `altered` (well-formed with other content, which the commitment catches: possible
for files without page checksums), `identical` (only bytes that nobody reads differ), `reader_deaths` (the sandboxed
child died, the file was refused), `max_rss_mb` over all reader processes, `max_seconds` and `mean_ms` for one file.
"""

import io
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.rollouts import LIMITS, made_up_header, made_up_rollouts
from protocol.rollout_file.file import Sandbox, read, write
from protocol.rollout_file.reader import METADATA_KEY, SCHEMA
from protocol.rollout_file.rows import Commitment, Limits, MalformedFile, Rollout, RolloutHeader, commit

BOMB_LIMITS = Limits(problems=4, samples=2, max_prompt_tokens=4096, max_new_tokens=16384)
FILES, QUICK_FILES = 20_000, 1_200
_INTERESTING = (
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x00" * 8,
    b"\xff" * 8,
    b"\x80" * 5,
    b"\x15\xfe\xff\xff\xff\x0f",
)


def table_of(rows: Sequence[Rollout], **replaced: pa.Array) -> pa.Table:
    columns = [replaced.get(f.name, pa.array([getattr(row, f.name) for row in rows], f.type)) for f in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def stored(header: RolloutHeader, table: pa.Table, rows_per_group: int = 1 << 20, **options: Any) -> bytes:
    """A Parquet file of another writer's making."""
    out = io.BytesIO()
    options = {"compression": "zstd", "use_dictionary": False, "store_schema": False} | options
    with pq.ParquetWriter(out, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=rows_per_group)
        writer.add_key_value_metadata({METADATA_KEY: header.canonical().decode()})
    return out.getvalue()


def bases(header: RolloutHeader, rows: Sequence[Rollout]) -> list[bytes]:
    """Honest files of several writers: ours (with page checksums), and others without."""
    table = table_of(rows)
    return [
        write(header, rows),
        stored(header, table),
        stored(header, table, compression="none"),
        stored(header, table, compression="none", use_dictionary=True),
        stored(header, table, use_dictionary=True, data_page_version="2.0"),
        stored(header, table, rows_per_group=3, write_statistics=True, write_page_index=True),
    ]


def mutate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """One to four random changes, in the footer every other time."""
    out = bytearray(data)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for _ in range(rng.randint(1, 4)):
        low = footer if rng.random() < 0.5 and 0 < footer < len(out) else 0
        at = rng.randrange(low, max(low + 1, len(out)))
        size = min(rng.choice((1, 1, 2, 4, 8, 32)), len(out) - at)
        change = rng.randrange(8)
        if change == 0 and size:
            out[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            out[at : at + size] = rng.randbytes(size)
        elif change == 2:
            word = rng.choice(_INTERESTING)
            out[at : at + len(word)] = word
        elif change == 3:
            del out[at : at + size]
        elif change == 4:
            out[at:at] = rng.randbytes(size)
        elif change == 5:
            source = rng.randrange(len(other))
            out[at : at + size * 4] = other[source : source + size * 4]
        elif change == 6:
            out[at:at] = out[at : at + size * 8]
        else:
            out = out[: max(12, at)]
        if rng.random() < 0.6:
            restore_ends(out, len(data) - 8 - footer)
    return bytes(out)


def restore_ends(out: bytearray, footer: int) -> None:
    """Give the file its magic and a footer length again, so that the parser behind the first checks is reached."""
    out[:4] = b"PAR1"
    out[-8:] = footer.to_bytes(4, "little") + b"PAR1"


def bombs(header: RolloutHeader, rows: list[Rollout]) -> Iterator[tuple[str, bytes]]:
    """Small files that would be large, wide or deep once unpacked."""
    count = 80_000_000
    zeros = _lists(len(rows), pa.array(np.zeros(count, np.int32)), "prompt_tokens")
    for name, options in (
        ("zstd zeros", {"data_page_size": 1 << 30}),
        ("zstd zeros in pages", {}),
        ("dictionary zeros", {"use_dictionary": True}),
        ("gzip zeros", {"compression": "gzip", "data_page_size": 1 << 30}),
    ):
        data = stored(header, table_of(rows, prompt_tokens=zeros), **options)
        yield name, data
        yield f"{name}, lying footer", lie(data, 4)
    long = pa.array([[b"\0" * 30_000_000]] + [[b"x" * 258]] * (len(rows) - 1), SCHEMA.field("proofs").type)
    yield "one long proof", stored(header, table_of(rows, proofs=long))
    yield "one long proof, lying footer", lie(stored(header, table_of(rows, proofs=long)), 11)
    empty = pa.array([[b""] * 300_000] * len(rows), SCHEMA.field("proofs").type)
    yield "many empty proofs", stored(header, table_of(rows, proofs=empty))
    deep = pa.array([0] * 8, pa.int32())
    for _ in range(200):
        deep = pa.StructArray.from_arrays([deep], names=["x"])
    yield "deeply nested", stored(header, pa.table({"slot": deep}))
    yield "many columns", stored(header, pa.table({f"c{n}": pa.array([0] * 8, pa.int8()) for n in range(2_000)}))
    yield "many row groups", stored(header, table_of(rows * 30), rows_per_group=1)
    yield "footer of its own", b"PAR1" + b"\x19\xfc" * 100_000 + (200_000).to_bytes(4, "little") + b"PAR1"
    yield "endless lists", b"PAR1" + b"\x19" * 100_000 + (100_000).to_bytes(4, "little") + b"PAR1"


def _lists(rows: int, values: pa.Array, column: str) -> pa.Array:
    offsets = pa.array([0, *[len(values)] * rows], pa.int32())
    return pa.ListArray.from_arrays(offsets, values).cast(SCHEMA.field(column).type)


def lie(data: bytes, column: int) -> bytes:
    """The same file with a footer that claims eight values and 100 bytes for one column."""
    meta = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(column)
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[end:]
    for claim, said in ((meta.num_values, 8), (meta.total_uncompressed_size, 100)):
        if claim < 1000:  # a short varint would be found where it means something else
            continue
        true, false = _varint(2 * claim), _varint(2 * said)
        padded = bytes(byte | 128 for byte in false) + b"\x80" * len(true)
        footer = footer.replace(true, padded[: len(true) - 1] + b"\0")
    return data[:end] + footer


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


class Tally:
    """What became of the files."""

    def __init__(self, header: RolloutHeader, rows: list[Rollout], committed: Commitment, sandbox: Sandbox) -> None:
        self.header, self.rows, self.committed, self.sandbox = header, rows, committed, sandbox
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0
        self.seconds = 0.0

    def add(self, data: bytes, limits: Limits = LIMITS, name: str = "") -> None:
        start = time.monotonic()
        outcome = self._outcome(data, limits)
        took = time.monotonic() - start
        self.counts[outcome] += 1
        self.seconds += took
        self.slowest = max(self.slowest, took)
        if name:
            self.counts["bombs"] += 1
            print(f"{name}: {len(data)} bytes, {outcome} in {took:.2f} s", file=sys.stderr)

    def _outcome(self, data: bytes, limits: Limits) -> str:
        try:
            header, rows = read(data, limits, self.sandbox)
        except MalformedFile as error:
            return "reader_deaths" if "crashes" in error.what else "refused"
        except Exception as error:
            print(f"crash: {error!r}", file=sys.stderr)
            return "crashes"
        if (header, rows) == (self.header, self.rows):
            return "identical"
        made = commit(data, rows)
        same = (made.root, made.units, header) == (self.committed.root, self.committed.units, self.header)
        return "accepted" if same else "altered"


def run(quick: bool, progress: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Fuzz; returns the keys of the module's docstring."""
    header, rows = made_up_header(), made_up_rollouts()
    originals = bases(header, rows)
    sandbox = Sandbox()
    tally = Tally(header, rows, commit(originals[0], rows), sandbox)
    for data in originals:
        assert read(data, LIMITS, sandbox) == (header, rows), "an honest file must be read"
    for name, data in bombs(header, rows):
        tally.add(data, BOMB_LIMITS, name)
    rng = random.Random(1)
    total = QUICK_FILES if quick else FILES
    for number in range(total):
        base = originals[number % len(originals)]
        tally.add(mutate(base, rng.choice(originals), rng))
        if number % 1000 == 999:
            progress(f"{number + 1} of {total} files, {dict(tally.counts)}")
    sandbox.close()
    counts = tally.counts
    files = sum(count for name, count in counts.items() if name != "bombs")
    return {
        "files": files,
        "crashes": counts["crashes"],
        "accepted": counts["accepted"],
        "max_rss_mb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, 1),
        "max_seconds": round(tally.slowest, 2),
        "mean_ms": round(1000 * tally.seconds / files, 2),
        **{name: counts[name] for name in ("bombs", "refused", "altered", "identical", "reader_deaths")},
    }
