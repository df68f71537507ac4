"""The sandboxed side of reading a rollout file: `python -m protocol.rollout_file.reader`, started by `file.py`.

It imports pyarrow once and forks a child per file, so that a file which crashes, hangs or corrupts the parser takes
only that child with it and cannot influence the next file.
"""

import gc
import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from protocol.rollout_file import rows
from protocol.rollout_file.confine import confine
from protocol.rollout_file.rows import MAX_HEADER_BYTES, Limits, MalformedFile, Rollout, RolloutHeader, encode_row
from protocol.toploc.codec import PROOF_BYTES, proof_count

METADATA_KEY = "muster"
MAX_ROW_GROUPS = 64
ENCODINGS = {"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY"}


def _list(of: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", of, nullable=False))


_COLUMNS = (
    ("slot", pa.int32(), "INT32"),
    ("sample", pa.int32(), "INT32"),
    ("problem_seed", pa.uint64(), "INT64"),
    ("target_length", pa.int32(), "INT32"),
    ("prompt_tokens", _list(pa.int32()), "INT32"),
    ("output_tokens", _list(pa.int32()), "INT32"),
    ("finish", pa.int32(), "INT32"),
    ("logprobs", _list(pa.float32()), "FLOAT"),
    ("task_reward", pa.float32(), "FLOAT"),
    ("length_penalty", pa.float32(), "FLOAT"),
    ("reward", pa.float32(), "FLOAT"),
    ("proofs", _list(pa.binary()), "BYTE_ARRAY"),
)
SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind, _ in _COLUMNS])
# Path in the file → how its values are stored
_PHYSICAL = {f"{name}.list.element" if pa.types.is_list(kind) else name: stored for name, kind, stored in _COLUMNS}


def to_parquet(header: RolloutHeader, rollouts: Sequence[Rollout]) -> bytes:
    """Encode one row group, without what could differ between two encodings of the same rows."""
    columns = [pa.array(map(attrgetter(field.name), rollouts), field.type) for field in SCHEMA]
    table = pa.Table.from_arrays(columns, schema=SCHEMA)
    out = io.BytesIO()
    with pq.ParquetWriter(
        out,
        SCHEMA,
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(table, row_group_size=max(1, len(rollouts)))
        writer.add_key_value_metadata({METADATA_KEY: header.canonical().decode()})
    return out.getvalue()


def check_metadata(meta: Any, limits: Limits) -> bytes:
    """Check the footer's figures, before anything is decompressed, and return the header's bytes."""
    keys = meta.metadata or {}
    if set(keys) != {METADATA_KEY.encode()}:
        raise MalformedFile(f"key-value metadata must be exactly `{METADATA_KEY}`")
    if meta.num_rows != limits.rows:
        raise MalformedFile(f"{meta.num_rows} rows instead of {limits.rows}")
    if not 1 <= meta.num_row_groups <= MAX_ROW_GROUPS:
        raise MalformedFile(f"{meta.num_row_groups} row groups, at most {MAX_ROW_GROUPS}")
    _check_schema(meta.schema)
    groups = [meta.row_group(number) for number in range(meta.num_row_groups)]
    if any(group.num_rows < 0 for group in groups) or sum(group.num_rows for group in groups) != limits.rows:
        raise MalformedFile("row groups that do not add up to the rows")
    for number, path in enumerate(_PHYSICAL):
        _check_column(path, [group.column(number) for group in groups], limits)
    header: bytes = keys[METADATA_KEY.encode()]
    if len(header) > MAX_HEADER_BYTES:
        raise MalformedFile(f"header of {len(header)} bytes, at most {MAX_HEADER_BYTES}")
    return header


def _check_schema(schema: Any) -> None:
    if len(schema) != len(_PHYSICAL):
        raise MalformedFile(f"{len(schema)} columns instead of {len(_PHYSICAL)}")
    for number, (path, stored) in enumerate(_PHYSICAL.items()):
        column = schema.column(number)
        if column.path != path or column.physical_type != stored:
            raise MalformedFile(f"column {number} is {column.path[:80]!r} ({column.physical_type}), expected {path}")
        depth = 1 if path.endswith(".element") else 0
        if (column.max_definition_level, column.max_repetition_level) != (depth, depth):
            raise MalformedFile(f"column {path} is nullable or nested otherwise than the schema says")
    if not schema.to_arrow_schema().equals(SCHEMA, check_metadata=False):
        raise MalformedFile("column types differ from the schema")


def _check_column(path: str, chunks: list[Any], limits: Limits) -> None:
    values = {
        "prompt_tokens.list.element": limits.rows * limits.max_prompt_tokens,
        "output_tokens.list.element": limits.rows * limits.max_new_tokens,
        "logprobs.list.element": limits.rows * limits.max_new_tokens,
        "proofs.list.element": limits.rows * proof_count(limits.max_new_tokens),
    }.get(path, limits.rows)
    width = 262 if path == "proofs.list.element" else 8
    if any(chunk.num_values < 0 for chunk in chunks) or sum(chunk.num_values for chunk in chunks) > values:
        raise MalformedFile(f"column {path} has more values than the pool allows")
    room = 2 * values * (width + 1) + 65536
    if any(chunk.total_uncompressed_size < 0 or chunk.total_compressed_size < 0 for chunk in chunks):
        raise MalformedFile(f"column {path} has a negative size")
    if sum(chunk.total_uncompressed_size for chunk in chunks) > room:
        raise MalformedFile(f"column {path} unpacks to more than {room} bytes")
    for chunk in chunks:
        if chunk.compression not in ("UNCOMPRESSED", "ZSTD"):
            raise MalformedFile(f"column {path} is compressed with {chunk.compression}, not zstd")
        if not set(chunk.encodings) <= ENCODINGS:
            raise MalformedFile(f"column {path} has an encoding other than {', '.join(sorted(ENCODINGS))}")
        if chunk.file_path:
            raise MalformedFile(f"column {path} points at another file")


def rows_of(table: pa.Table, limits: Limits) -> Iterator[Rollout]:
    """Yield the rows of a table of the right schema, still unchecked in content."""
    if table.num_rows != limits.rows:
        raise MalformedFile(f"{table.num_rows} rows instead of {limits.rows}")
    plain: dict[str, list[Any]] = {}
    lists: dict[str, tuple[list[int], Any]] = {}
    for field in SCHEMA:
        column = table.column(field.name).combine_chunks()
        if column.null_count:
            raise MalformedFile(f"column {field.name} has nulls")
        if not pa.types.is_list(field.type):
            plain[field.name] = column.to_pylist()
            continue
        values = column.values
        offsets = column.offsets.to_numpy().tolist()
        if values.null_count or len(values) < offsets[-1]:
            raise MalformedFile(f"column {field.name} has nulls in its lists")
        lists[field.name] = (offsets, values if field.name == "proofs" else values.to_numpy(zero_copy_only=False))
    for row in range(limits.rows):
        cells = {name: column[row] for name, column in plain.items()}
        for name, (offsets, values) in lists.items():
            part = values[offsets[row] : offsets[row + 1]]
            cells[name] = tuple(part.to_pylist() if name == "proofs" else part.tolist())
        yield Rollout(**cells)


def parse(data: bytes, limits: Limits) -> bytes:
    """Return the frame body (header and row bytes) of a hostile file. Raises MalformedFile."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        header = check_metadata(file.metadata, limits)
        table = file.read(use_threads=False)
        encoded = []
        for rollout in rows_of(table, limits):
            if any(len(proof) != PROOF_BYTES for proof in rollout.proofs):
                raise MalformedFile(f"a proof that does not have {PROOF_BYTES} bytes")
            encoded.append(encode_row(rollout))
            if len(encoded[-1]) > limits.row_bytes:
                raise MalformedFile(f"row {len(encoded) - 1} is larger than the pool allows")
        return rows.pack_body(header, encoded)
    except MalformedFile:
        raise
    except MemoryError:
        raise MalformedFile(f"takes more than {limits.memory_bytes >> 20} MiB to unpack") from None
    except Exception as error:  # whatever the parser throws at hostile bytes is the file's fault
        words = " ".join(str(error).split())[:200]
        raise MalformedFile(f"the Parquet reader refuses it: {words or type(error).__name__}") from None


def _child(data: bytes, limits: Limits, out: int) -> None:
    """Write CONFINED and what became of the file, or why this machine cannot read any."""
    try:
        try:
            confine(limits.memory_bytes, limits.cpu_seconds, out)
        except (OSError, ValueError) as error:
            os.write(out, str(error).encode())
            return
        os.write(out, bytes([rows.CONFINED]))
        try:
            answer = bytes([rows.OK]) + parse(data, limits)
        except MalformedFile as error:
            answer = bytes([rows.REFUSED]) + error.what.encode("utf-8", "replace")[:1000]
        while answer:
            answer = answer[os.write(out, answer) :]
    finally:
        os._exit(0)


def _serve_one(data: bytes, limits: Limits) -> tuple[int, bytes]:
    """Return the wait status of the child and what it wrote, at most what the limits allow."""
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(readable)
        _child(data, limits, writable)
    os.close(writable)
    room = limits.payload_bytes + 8 * limits.rows + 2 * MAX_HEADER_BYTES
    chunks: list[bytes] = []
    while room >= 0 and (chunk := os.read(readable, 1 << 20)):
        chunks.append(chunk)
        room -= len(chunk)
    os.close(readable)
    if room < 0:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    # What writes without end is the file's fault, unlike a SIGKILL of somebody else.
    return signal.SIGXFSZ if room < 0 else status, b"".join(chunks)


def main() -> None:
    gc.collect()
    gc.freeze()  # what the parser brought along is never copied for the collector's sake
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end closes our input
    pa.set_memory_pool(pa.system_memory_pool())
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while len(head := requests.read(rows.REQUEST.size)) == rows.REQUEST.size:
        limits_size, data_size = rows.REQUEST.unpack(head)
        fields, data = requests.read(limits_size), requests.read(data_size)
        if len(data) < data_size:
            return
        status, body = _serve_one(data, Limits(**json.loads(fields)))
        answers.write(rows.ANSWER.pack(status, len(body)) + body)
        answers.flush()


if __name__ == "__main__":
    main()
    sys.exit(0)
