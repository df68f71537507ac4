"""Turn a Parquet file of problems into JSON lines, once on each machine; nothing else reads the Parquet file.

The Parquet library is large and the file is a stranger's, so a separate process reads it. That process takes the whole
file, gives up everything but memory and its output, and answers in frames: rows as lines of JSON, then that this was
all, or why the file is refused. Its answer is as hostile as the file: it is bounded here, and every row is checked like
any other line.
"""

import json
import os
import secrets
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import protocol
from protocol.config import MAX_FILE_BYTES, MAX_ROW_BYTES, MAX_ROWS
from protocol.errors import IntegrityError, ScoringUnavailable, printable
from protocol.rollout_file.confine import confine

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = (
    "problem_id",
    "source",
    "task_type",
    "in_source_id",
    "prompt",
    "gold_standard_solution",
    "verification_info",
    "metadata",
)
"""Of a row (environments/genesys.py: GenesysRow)."""
NAMES = ("problem_id", "source", "in_source_id")
"""Columns that may hold whole numbers."""
HEAD = struct.Struct(">BI")
ROWS, DONE, REFUSED = 1, 2, 3
"""Kind of a frame of the reader's answer; its length in bytes comes after it."""
FRAME_BYTES = MAX_ROW_BYTES + 1
MEMORY_BYTES, CPU_SECONDS = 2 << 30, 600
"""What the reader may take on top of the file itself."""
_MAGIC = b"PAR1"
_SLACK_SECONDS = 120.0  # beyond the reader's own time before this machine, not the file, is blamed
_HINT = "write it anew: flat columns of text, or JSON lines"


def is_parquet(path: Path) -> bool:
    """By its first bytes; a file of JSON lines never has them."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def unpack(path: Path, target: Path) -> None:
    """Write the rows of the Parquet file at `path` as JSON lines to `target`, which never exists by halves. Raise
    IntegrityError naming what is wrong with the file, ScoringUnavailable where this machine could not read it."""
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with aside.open("wb") as out:
            for part in _parts(path):
                out.write(part)
            out.flush()
            os.fsync(out.fileno())
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def _parts(path: Path) -> Iterator[bytes]:
    """Yield what the reader says of the rows, in parts."""
    with path.open("rb") as file:
        reader = subprocess.Popen(
            [sys.executable, "-P", "-m", "environments.parquet"],
            env={"PYTHONPATH": str(Path(protocol.__file__).parents[1]), "PATH": os.defpath, "OMP_NUM_THREADS": "1"},
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
    assert reader.stdout is not None
    late = threading.Timer(CPU_SECONDS + _SLACK_SECONDS, reader.kill)
    late.start()
    try:
        yield from _framed(reader.stdout, path.name)
    except EOFError:
        raise _ended(path.name, reader.wait()) from None
    finally:
        late.cancel()
        reader.kill()
        reader.stdout.close()
        reader.wait()


def _framed(answers: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the rows' bytes until the reader says that this was all. Raise EOFError where it ends before."""
    room = MAX_FILE_BYTES
    while True:
        head = answers.read(HEAD.size)
        if len(head) < HEAD.size:
            raise EOFError
        kind, size = HEAD.unpack(head)
        room -= size
        if size > FRAME_BYTES or room < 0:
            raise IntegrityError(f"{name}: the reader of Parquet says more than it may", _HINT)
        if len(part := answers.read(size)) < size:
            raise EOFError
        if kind == DONE:
            return
        if kind != ROWS:
            said = printable(part.decode(errors="replace"), 300) if kind == REFUSED else "the reader's answer is none"
            raise IntegrityError(f"{name}: {said}", _HINT)
        yield part


def _ended(name: str, code: int) -> IntegrityError | ScoringUnavailable:
    """Return why the reader ended before it was done: by its bounds, or for a reason that is this machine's."""
    if code == -signal.SIGKILL:
        return ScoringUnavailable(f"{name}: the reader of Parquet was killed", "see this machine's memory and load")
    if code == -signal.SIGXCPU:
        return IntegrityError(f"{name}: it takes more than {CPU_SECONDS} s to unpack", _HINT)
    if code < 0:
        return IntegrityError(f"{name}: it crashes the Parquet library ({signal.Signals(-code).name})", _HINT)
    return ScoringUnavailable(f"{name}: the reader of Parquet does not start (code {code})", "pip install pyarrow")


# The reader: everything below runs in the confined process, `python -m environments.parquet < FILE`.

MAX_ROW_GROUPS = 1 << 14
_BATCH_ROWS = 256


class _RefusedFile(Exception):
    """What is wrong with the file, in words."""


def columns(schema: "pa.Schema", paths: list[str]) -> list[str]:
    """Return the columns that rows are made of; others are left aside unread. Raise _RefusedFile for one that is no
    text."""

    wanted = [name for name in schema.names if name in COLUMNS]
    if len(set(wanted)) < len(wanted):
        raise _RefusedFile("it has two columns of one name")
    for name in wanted:
        kind = schema.field(name).type
        if not _is_text(kind, name in NAMES) or name not in paths:
            raise _RefusedFile(f"its column {name} is {str(kind)[:80]}, not text (objects are texts that hold JSON)")
    return wanted


def _is_text(kind: "pa.DataType", is_name: bool) -> bool:
    """Whether a column holds text in any of Arrow's forms, or nothing at all; of names, numbers count too."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return text or pa.types.is_null(kind) or (is_name and pa.types.is_integer(kind))


def lines(data: bytes) -> Iterator[bytes]:
    """Yield a file's rows as lines of JSON, in their order; a null is left out. Raise _RefusedFile, or whatever the
    Parquet library does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

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
    fields = {name: str(value) for name, value in row.items() if value is not None}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _answer(kind: int, data: bytes) -> None:
    left = memoryview(HEAD.pack(kind, len(data)) + data)
    while left:
        left = left[os.write(1, left) :]


def main() -> None:
    import pyarrow as pa
    import pyarrow.parquet

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
