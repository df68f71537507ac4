"""Rows of a data set altered by somebody who knows its format, one of every kind."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataset.document import DOCUMENT, DataFile, Format, StoredDataset
from dataset.rows import SCHEMA, DatasetRow
from dataset.verify import load

ALTERED: dict[str, Callable[[DatasetRow], DatasetRow]] = {
    "prompt": lambda row: replace(row, prompt=row.prompt.replace("?", "!", 1) + " "),
    "completion": lambda row: replace(row, output_tokens=(*row.output_tokens[:-1], row.output_tokens[-1] ^ 1)),
    "score": lambda row: replace(row, task_reward=1.0 - row.task_reward, reward=1.0 - row.reward),
    "node": lambda row: replace(row, node=row.pools),
    "file": lambda row: replace(row, file_sha256=row.file_root),
}
"""What is done to a row; `completion` alters its tokens alone, `score` both its rewards."""


def alter(exported: Path, folder: Path, format: Format) -> dict[str, int]:
    """A copy of a data set in which one row of each kind is altered, in the first file of this format, whose hash in
    `dataset.json` is made anew. Kind of alteration → row."""
    shutil.copytree(exported, folder)
    document = load(folder).dataset
    (file,) = [one for one in document.files if one.path.endswith(f"-00000.{format}")]
    rows = [file.rows * (place + 1) // (len(ALTERED) + 1) for place in range(len(ALTERED))]
    places, path = dict(zip(ALTERED, rows, strict=True)), folder / file.path
    (_alter_lines if format == "jsonl" else _alter_parquet)(path, places)
    changed = DataFile(path=file.path, rows=file.rows, bytes=path.stat().st_size, sha256=_sha(path))
    files = tuple(changed if one == file else one for one in document.files)
    (folder / DOCUMENT).write_bytes(StoredDataset.of(document.model_copy(update={"files": files}), None).canonical())
    return places


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _alter_lines(path: Path, places: dict[str, int]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    for kind, number in places.items():
        lines[number] = ALTERED[kind](DatasetRow.parse_line(lines[number])).line()
    path.write_bytes(b"".join(lines))


def _alter_parquet(path: Path, places: dict[str, int]) -> None:
    table = pq.read_table(path, schema=SCHEMA)
    parts, last = [], 0
    for kind, number in places.items():
        (values,) = table.slice(number, 1).to_pylist()
        row = ALTERED[kind](DatasetRow.of(values))
        columns = [pa.array([getattr(row, field.name)], field.type) for field in SCHEMA]
        parts += [table.slice(last, number - last), pa.Table.from_arrays(columns, schema=SCHEMA)]
        last = number + 1
    pq.write_table(pa.concat_tables([*parts, table.slice(last)]), path, compression="zstd")


def named(findings: list[str], places: dict[str, int]) -> dict[str, str]:
    """What a verification says of each altered row, by kind; empty where it says nothing."""
    return {
        kind: next((line.partition("): ")[2] for line in findings if f", row {number} (" in line), "")
        for kind, number in places.items()
    }
