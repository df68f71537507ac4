"""Turn a Parquet file of problems into JSON lines, the form that pools use.

The Parquet library is large and the file may be a stranger's, so a process of its own reads it, gives up everything but
memory and its output, and answers in lines: rows as JSON, then `done`, or why the file is refused.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import protocol
from protocol.config import MAX_FILE_BYTES
from protocol.errors import IntegrityError, printable
from protocol.rollout_file.confine import confine

# Of a row (environments/genesys.py: GenesysRow); others stay unread
COLUMNS = (
    *("problem_id", "source", "in_source_id", "task_type", "prompt", "gold_standard_solution", "verification_info"),
    "metadata",
)
MEMORY_BYTES, CPU_SECONDS = 2 << 30, 600  # what the reader may take on top of the file itself


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet, by its first bytes; a file of JSON lines never has them."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def unpack(path: Path, target: Path) -> None:
    """Write the rows of the Parquet file at `path` to `target`. Raise IntegrityError naming what is wrong with it."""
    command = [sys.executable, "-P", "-m", "environments.parquet"]
    env = {"PYTHONPATH": str(Path(protocol.__file__).parents[1]), "PATH": os.defpath, "OMP_NUM_THREADS": "1"}
    room = MAX_FILE_BYTES
    with (
        path.open("rb") as file,
        target.open("wb") as out,
        subprocess.Popen(
            command, env=env, cwd="/", stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as reader,
    ):
        assert reader.stdout is not None
        while (line := reader.stdout.readline(room)).startswith(b"{"):
            room -= out.write(line)
        reader.kill()
    if line != b"done\n":
        why = (
            printable(line.decode(errors="replace").strip(), 300) or "it crashes the Parquet library, or takes too long"
        )
        raise IntegrityError(f"{path.name}: {why}", "write it anew, or as JSON lines")


# The reader: everything below runs in the confined process, `python -m environments.parquet < FILE`.


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield rows as lines of JSON, nulls left out. Raise whatever the library raises."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, page_checksum_verification=True)
    wanted = [name for name in file.schema_arrow.names if name in COLUMNS]
    for batch in file.iter_batches(256, columns=wanted, use_threads=False):
        for row in batch.to_pylist():
            fields = {name: value for name, value in row.items() if value is not None}
            yield json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=str).encode() + b"\n"


def main() -> None:
    import pyarrow as pa
    import pyarrow.parquet

    pa.set_memory_pool(pa.system_memory_pool())
    data, out, room = sys.stdin.buffer.read(MAX_FILE_BYTES + 1), sys.stdout.buffer, MAX_FILE_BYTES
    confine(MEMORY_BYTES, CPU_SECONDS, 1)
    last = "done"
    try:
        for line in _lines(data):
            room -= len(line)
            if room < 0:
                raise ValueError(f"it unpacks to more than {MAX_FILE_BYTES} bytes")
            out.write(line)
    except MemoryError:
        last = f"it takes more than {MEMORY_BYTES >> 20} MiB to unpack"
    except Exception as error:  # whatever the library raises at hostile bytes is the file's fault
        last = f"the Parquet library refuses it: {' '.join(str(error).split())[:200] or type(error).__name__}"
    out.write(last.encode(errors="replace") + b"\n")
    out.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
