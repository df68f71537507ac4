"""Files of rows, written and read a few at a time: Parquet, and JSONL."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from dataset.document import DATA, DataFile, Format
from dataset.row import SCHEMA, DatasetRow
from protocol.errors import IntegrityError, MusterError, first_line
from protocol.files import file_sha256

ROWS_PER_FILE = 1 << 16
_GROUP_BYTES, _GROUP_ROWS = 16 << 20, 4096
_BATCH_ROWS = 64


class _RowFile(Protocol):
    def add(self, row: DatasetRow) -> None: ...
    def close(self) -> None: ...


class _Lines:
    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")

    def add(self, row: DatasetRow) -> None:
        self._file.write(row.line())

    def close(self) -> None:
        self._file.close()


class _Parquet:
    """Row groups of some megabytes: that much is in memory at once."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd", write_page_checksum=True)
        self._rows: list[DatasetRow] = []
        self._size = 0

    def add(self, row: DatasetRow) -> None:
        self._rows.append(row)
        self._size += 12 * len(row.output_tokens) + 4 * len(row.prompt_tokens) + 258 * len(row.proofs) + 1024
        if self._size >= _GROUP_BYTES or len(self._rows) >= _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        columns = [pa.array([getattr(row, field.name) for row in self._rows], field.type) for field in SCHEMA]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA))
        self._rows, self._size = [], 0

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()


class RowWriter:
    """Writes rows into `folder`/data in every one of `formats`; a file holds at most `rows_per_file` rows. The same
    rows give the same bytes (with the same version of the Parquet library)."""

    def __init__(self, folder: Path, formats: tuple[Format, ...], rows_per_file: int = ROWS_PER_FILE) -> None:
        self._folder, self._formats, self._most = folder, formats, rows_per_file
        (folder / DATA).mkdir()
        self._open: dict[str, _RowFile] = {}
        self._rows = self._part = 0
        self._done: list[tuple[str, int]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, row: DatasetRow) -> None:
        if not self._open:
            for kind in self._formats:
                path = f"{DATA}/rollouts-{self._part:05d}.{kind}"
                made = _Parquet(self._folder / path) if kind == "parquet" else _Lines(self._folder / path)
                self._open[path] = made
                self._stack.callback(made.close)
        for table in self._open.values():
            table.add(row)
        self._rows += 1
        if self._rows == self._most:
            self._end_part()

    def _end_part(self) -> None:
        self._stack.close()
        self._done += [(path, self._rows) for path in self._open]
        self._open, self._rows, self._part = {}, 0, self._part + 1

    def finish(self) -> tuple[DataFile, ...]:
        """What was written, format by format."""
        if self._open:
            self._end_part()
        found = []
        for path, rows in self._done:
            whole = self._folder / path
            found.append(DataFile(path=path, rows=rows, bytes=whole.stat().st_size, sha256=file_sha256(whole)))
        return tuple(sorted(found, key=lambda file: (self._formats.index(file.format), file.path)))


def check_bytes(path: Path, expected: DataFile) -> str:
    """What is wrong with a file as a whole, or an empty string."""
    if path.is_symlink() or not path.is_file():
        return "it is missing"
    if path.stat().st_size != expected.bytes:
        return f"it has {path.stat().st_size} bytes instead of {expected.bytes}"
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    return "" if actual == expected.sha256 else f"its SHA-256 is {actual[:16]}… instead of {expected.sha256[:16]}…"


def read_rows(path: Path, kind: Format, line_bytes: int) -> Iterator[DatasetRow | IntegrityError]:
    """The rows of a stranger's file in order; an error in the place of one that is none. `line_bytes`: the longest
    line of JSONL that is looked at. Raises IntegrityError if nothing more can be read."""
    try:
        yield from _read_lines(path, line_bytes) if kind == "jsonl" else _read_parquet(path)
    except MusterError:
        raise
    except Exception as error:  # the Parquet library refuses hostile bytes in many ways
        raise IntegrityError(f"{path.name} cannot be read: {first_line(error)}", "get it again") from None


def _read_lines(path: Path, limit: int) -> Iterator[DatasetRow | IntegrityError]:
    with path.open("rb") as file:
        while line := file.readline(limit + 1):
            if len(line) > limit:
                raise IntegrityError(f"{path.name} has a line of more than {limit} bytes", "get it again")
            yield _row(partial(DatasetRow.parse_line, line))


def _read_parquet(path: Path) -> Iterator[DatasetRow | IntegrityError]:
    file = pq.ParquetFile(path, page_checksum_verification=True)
    if not file.schema_arrow.equals(SCHEMA, check_metadata=False):
        raise IntegrityError(f"{path.name} has other columns than a data set", "export again")
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
        for values in batch.to_pylist():
            yield _row(partial(DatasetRow.of, values))


def _row(make: Callable[[], DatasetRow]) -> DatasetRow | IntegrityError:
    try:
        return make()
    except IntegrityError as error:
        return error
