"""Turn a Parquet file of problems into JSON lines, once on each machine; nothing else reads the Parquet file.

The Parquet library is large and the file is a stranger's, so a separate process reads it. That process takes the whole
file, gives up everything but memory and its output, and answers in lines: rows as JSON, then `done`, or why the file is
refused. Its answer is as hostile as the file: it is bounded here, and every row is checked like any other line.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import protocol
from protocol.config import MAX_FILE_BYTES, MAX_ROW_BYTES, MAX_ROWS
from protocol.errors import IntegrityError, ScoringUnavailable, printable
from protocol.rollout_file.confine import confine

if TYPE_CHECKING:
    import pyarrow as pa

# Of a row (environments/genesys.py: GenesysRow); some may hold whole numbers
NAMES = ("problem_id", "source", "in_source_id")
COLUMNS = (*NAMES, "task_type", "prompt", "gold_standard_solution", "verification_info", "metadata")
MEMORY_BYTES, CPU_SECONDS = 2 << 30, 600  # what the reader may take on top of the file itself
_SLACK_SECONDS = 120.0  # beyond the reader's own time before this machine, not the file, is blamed
_HINT = "write it anew: flat columns of text, or JSON lines"


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet, by its first bytes; a file of JSON lines never has them."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def unpack(path: Path, target: Path) -> None:
    """Write the rows of the Parquet file at `path` as JSON lines to `target`, which never exists by halves. Raise
    IntegrityError naming what is wrong with the file, ScoringUnavailable where this machine could not read it."""
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with aside.open("wb") as out:
            out.writelines(_rows(path))
            out.flush()
            os.fsync(out.fileno())
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def _rows(path: Path) -> Iterator[bytes]:
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
    name, room = path.name, MAX_FILE_BYTES
    late = threading.Timer(CPU_SECONDS + _SLACK_SECONDS, reader.kill)
    late.start()
    try:
        while line := reader.stdout.readline(MAX_ROW_BYTES + 2):
            room -= len(line)
            if line == b"done\n":
                return
            if line.startswith(b"refused"):
                raise IntegrityError(f"{name}: {printable(line[8:].decode(errors='replace').strip(), 300)}", _HINT)
            if room < 0 or len(line) > MAX_ROW_BYTES + 1:
                raise IntegrityError(f"{name}: the reader of Parquet says more than it may", _HINT)
            if line.endswith(b"\n"):
                yield line
        raise _ended(name, reader.wait())
    finally:
        late.cancel()
        reader.kill()
        reader.stdout.close()
        reader.wait()


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


class _RefusedFile(Exception):
    """What is wrong with the file, in words."""


def _columns(schema: "pa.Schema", paths: list[str]) -> list[str]:
    """Return the columns that rows are made of; others stay unread. Raise _RefusedFile for one that is no text."""
    from pyarrow import types

    text = types.is_string, types.is_large_string, types.is_string_view, types.is_null
    wanted = [name for name in schema.names if name in COLUMNS]
    if len(set(wanted)) < len(wanted):
        raise _RefusedFile("it has two columns of one name")
    for name in wanted:
        column = schema.field(name).type
        kind = column.value_type if types.is_dictionary(column) else column
        allowed = (*text, types.is_integer) if name in NAMES else text
        if not any(holds(kind) for holds in allowed) or name not in paths:
            raise _RefusedFile(f"its column {name} is {str(column)[:80]}, not text (objects are texts that hold JSON)")
    return wanted


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield rows as lines of JSON, nulls left out. Raise _RefusedFile, or whatever the library does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, page_checksum_verification=True)
    meta, room, rows = file.metadata, MAX_FILE_BYTES, 0
    if not 0 < meta.num_rows <= MAX_ROWS:
        raise _RefusedFile(f"it has {meta.num_rows} rows, 1 to {MAX_ROWS} are allowed")
    if not 0 < meta.num_row_groups <= MAX_ROW_GROUPS:
        raise _RefusedFile(f"it has {meta.num_row_groups} row groups, at most {MAX_ROW_GROUPS}")
    wanted = _columns(file.schema_arrow, [file.schema.column(number).path for number in range(len(file.schema))])
    for batch in file.iter_batches(256, columns=wanted, use_threads=False):
        for row in batch.to_pylist():
            fields = {name: str(value) for name, value in row.items() if value is not None}
            line = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            rows, room = rows + 1, room - len(line)
            if len(line) > MAX_ROW_BYTES + 1:
                raise _RefusedFile(f"row {rows - 1} has {len(line) - 1} bytes, {MAX_ROW_BYTES} at most")
            if room < 0 or rows > meta.num_rows:
                raise _RefusedFile(f"it unpacks to more than {MAX_FILE_BYTES} bytes, or more rows than it says")
            yield line
    if rows != meta.num_rows:
        raise _RefusedFile(f"it holds {rows} rows and says {meta.num_rows}")


def main() -> None:
    import pyarrow as pa
    import pyarrow.parquet

    pa.set_memory_pool(pa.system_memory_pool())
    data, out = sys.stdin.buffer.read(MAX_FILE_BYTES + 1), sys.stdout.buffer
    confine(MEMORY_BYTES, CPU_SECONDS, 1)
    try:
        out.writelines(_lines(data))
        last = "done"
    except _RefusedFile as error:
        last = f"refused {error}"
    except MemoryError:
        last = f"refused it takes more than {MEMORY_BYTES >> 20} MiB to unpack"
    except Exception as error:  # whatever the library raises at hostile bytes is the file's fault
        last = f"refused the Parquet library refuses it: {' '.join(str(error).split())[:200] or type(error).__name__}"
    with suppress(OSError):
        out.write(" ".join(last.split()).encode(errors="replace") + b"\n")
        out.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
