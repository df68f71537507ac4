"""The confined side of reading a Parquet file of problems: `python -m environments.genesys.parquet_reader < FILE`.

It takes the whole file, gives up everything but its memory and its output, and answers in frames (HEAD): rows as lines
of JSON, at last that this was all, or why the file is refused. environments/genesys/parquet.py starts and judges it.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from environments.genesys.parquet import CPU_SECONDS, DONE, FRAME_BYTES, HEAD, MEMORY_BYTES, REFUSED, ROWS
from environments.genesys.rows import MAX_ROW_BYTES, GenesysRow
from protocol.environments import MAX_FILE_BYTES, MAX_ROWS
from protocol.rollout_file.confine import confine

MAX_ROW_GROUPS = 1 << 14
_BATCH_ROWS = 256


class _RefusedFile(Exception):
    """What is wrong with the file, in words."""


def columns(schema: pa.Schema, paths: list[str]) -> list[str]:
    """The columns that rows are made of; others are left aside unread. Raises _RefusedFile for one that is no text."""
    wanted = [name for name in schema.names if name in GenesysRow.model_fields]
    if len(set(wanted)) < len(wanted):
        raise _RefusedFile("it has two columns of one name")
    for name in wanted:
        kind = schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)) or name not in paths:
            raise _RefusedFile(f"its column {name} is {str(kind)[:80]}, not text (objects are texts that hold JSON)")
    return wanted


def lines(data: bytes) -> Iterator[bytes]:
    """A file's rows as lines of JSON, in their order; a null is left out. Raises _RefusedFile, or whatever the Parquet
    library does."""
    file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, page_checksum_verification=True)
    meta, room, rows = file.metadata, MAX_FILE_BYTES, 0
    if not 0 < meta.num_rows <= MAX_ROWS:
        raise _RefusedFile(f"it has {meta.num_rows} rows, 1 to {MAX_ROWS} are allowed")
    if not 0 < meta.num_row_groups <= MAX_ROW_GROUPS:
        raise _RefusedFile(f"it has {meta.num_row_groups} row groups, at most {MAX_ROW_GROUPS}")
    wanted = columns(file.schema_arrow, [file.schema.column(number).path for number in range(len(file.schema))])
    for batch in file.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False):
        for row in batch.to_pylist():
            line = _line(row)
            rows, room = rows + 1, room - len(line)
            if len(line) > MAX_ROW_BYTES + 1:
                raise _RefusedFile(f"row {rows - 1} has {len(line) - 1} bytes, {MAX_ROW_BYTES} at most")
            if room < 0 or rows > meta.num_rows:
                raise _RefusedFile(f"it unpacks to more than {MAX_FILE_BYTES} bytes, or more rows than it says")
            yield line
    if rows != meta.num_rows:
        raise _RefusedFile(f"it holds {rows} rows and says {meta.num_rows}")


def _line(row: dict[str, Any]) -> bytes:
    fields = {name: value for name, value in row.items() if value is not None}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _answer(kind: int, data: bytes) -> None:
    left = memoryview(HEAD.pack(kind, len(data)) + data)
    while left:
        left = left[os.write(1, left) :]


def main() -> None:
    pa.set_memory_pool(pa.system_memory_pool())
    data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    confine(MEMORY_BYTES, CPU_SECONDS, 1)
    try:
        kept = b""
        for line in lines(data):
            if len(kept) + len(line) > FRAME_BYTES:
                _answer(ROWS, kept)
                kept = b""
            kept += line
        _answer(ROWS, kept)
        _answer(DONE, b"")
    except _RefusedFile as error:
        _answer(REFUSED, str(error).encode())
    except MemoryError:
        _answer(REFUSED, f"it takes more than {MEMORY_BYTES >> 20} MiB to unpack".encode())
    except Exception as error:  # whatever the library raises at hostile bytes is the file's fault
        words = " ".join(str(error).split())[:200] or type(error).__name__
        _answer(REFUSED, f"the Parquet library refuses it: {words}".encode(errors="replace"))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
