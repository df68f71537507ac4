"""Rows of a data set: a rollout with its scores and everything that ties it to the chain, in Parquet files.

Files are written and read a few rows at a time.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from dataset.document import DATA, DataFile, EnvironmentTotals, Totals
from protocol.api.base import Hex64
from protocol.errors import IntegrityError, MusterError, first_line, first_problem
from protocol.files import file_sha256
from protocol.rollout_file import merkle
from protocol.rollout_file.rows import Rollout, encode_row
from protocol.toploc.codec import PROOF_BYTES

Small = Annotated[int, Field(ge=0, lt=1 << 31)]
Word = Annotated[int, Field(ge=0, lt=1 << 64)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Proof = Annotated[bytes, Field(min_length=PROOF_BYTES, max_length=PROOF_BYTES)]


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """Hashes are hex without 0x, addresses EIP-55. `problem`: the environment's own seed of the problem that
    `problem_seed` stands for. `finish`: 0 for EOS, 1 for the length limit. `row` counts in the file that the node
    submitted; `leaf` and `siblings` lead from it to `file_root`. `verdict`: the outcome; `votes`: those that were
    opened, and `verdicts`: the hashes of the documents behind them. docs/guides/pool.md describes the export."""

    environment: str
    problem: Word
    prompt: str
    completion: str
    task_reward: Finite
    length_penalty: Finite
    reward: Finite
    finish: Small
    target_length: Small
    prompt_tokens: tuple[Small, ...]
    output_tokens: tuple[Small, ...]
    logprobs: tuple[Finite, ...]
    problem_seed: Word
    slot: Small
    sample: Small
    chain_id: Word
    pools: str
    pool: Word
    policy_step: Small
    manifest: Hex64
    node: str
    submission: Word
    counter: Small
    verdict: str
    votes: tuple[str, ...]
    verdicts: tuple[Hex64, ...]
    file_sha256: Hex64
    file_root: Hex64
    row: Small
    leaf: Hex64
    siblings: tuple[Hex64, ...]
    proofs: tuple[Proof, ...]

    __pydantic_config__ = ConfigDict(extra="forbid")

    @property
    def order_key(self) -> tuple[int, int]:
        """The key by which rows are ordered."""
        return self.submission, self.row

    def computed_leaf(self) -> bytes:
        """Compute the Merkle leaf of the row's content. Raises IntegrityError if it is not a valid rollout."""
        shared = {field.name: getattr(self, field.name) for field in fields(Rollout)}
        try:
            return merkle.leaf(encode_row(Rollout(**shared)))
        except Exception as error:  # struct and numpy refuse what does not fit in many ways
            raise IntegrityError(f"it is no rollout: {type(error).__name__}", "") from None


_ROW = TypeAdapter(DatasetRow)


def _list(of: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", of, nullable=False))


_KINDS: dict[str, pa.DataType] = {
    **dict.fromkeys(("task_reward", "length_penalty", "reward"), pa.float32()),
    **dict.fromkeys(("finish", "target_length", "slot", "sample", "policy_step", "counter", "row"), pa.int32()),
    **dict.fromkeys(("problem", "problem_seed", "chain_id", "pool", "submission"), pa.uint64()),
    **dict.fromkeys(("prompt_tokens", "output_tokens"), _list(pa.int32())),
    **dict.fromkeys(("votes", "verdicts", "siblings"), _list(pa.string())),
    "logprobs": _list(pa.float32()),
    "proofs": _list(pa.binary()),
}
SCHEMA = pa.schema(
    [pa.field(column.name, _KINDS.get(column.name, pa.string()), nullable=False) for column in fields(DatasetRow)]
)


ROWS_PER_FILE = 1 << 16
_GROUP_BYTES, _GROUP_ROWS = 16 << 20, 4096
_BATCH_ROWS = 64


class RowWriter:
    """Writes rows into `folder`/data; a file holds at most `rows_per_file` rows. The same rows give the same bytes
    (with the same version of the Parquet library). Row groups of some megabytes are in memory at once."""

    def __init__(self, folder: Path, rows_per_file: int = ROWS_PER_FILE) -> None:
        self._folder, self._most = folder / DATA, rows_per_file
        self._folder.mkdir()
        self._parts: dict[Path, int] = {}  # rows of each file
        self._path = self._folder
        self._waiting: list[DatasetRow] = []
        self._size = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, row: DatasetRow) -> None:
        if self._parts.get(self._path, self._most) == self._most:
            self._end_part()
            self._path = self._folder / f"rollouts-{len(self._parts):05d}.parquet"
            self._writer = pq.ParquetWriter(self._path, SCHEMA, compression="zstd", write_page_checksum=True)
            self._stack.callback(self._writer.close)
            self._parts[self._path] = 0
        self._parts[self._path] += 1
        self._waiting.append(row)
        self._size += 12 * len(row.output_tokens) + 4 * len(row.prompt_tokens) + 258 * len(row.proofs) + 1024
        if self._size >= _GROUP_BYTES or len(self._waiting) >= _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        columns = [pa.array([getattr(row, field.name) for row in self._waiting], field.type) for field in SCHEMA]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA))
        self._waiting, self._size = [], 0

    def _end_part(self) -> None:
        if self._waiting:
            self._flush()
        self._stack.close()

    def finish(self) -> tuple[DataFile, ...]:
        """Return what was written."""
        self._end_part()
        return tuple(
            DataFile(path=f"{DATA}/{path.name}", rows=rows, bytes=path.stat().st_size, sha256=file_sha256(path))
            for path, rows in self._parts.items()
        )


def check_bytes(path: Path, expected: DataFile) -> str:
    """Return what is wrong with a file as a whole, or an empty string."""
    if path.is_symlink() or not path.is_file():
        return "it is missing"
    if (size := path.stat().st_size) != expected.bytes:
        return f"it has {size} bytes instead of {expected.bytes}"
    actual = file_sha256(path)
    return "" if actual == expected.sha256 else f"its SHA-256 is {actual[:16]}… instead of {expected.sha256[:16]}…"


def read_rows(path: Path) -> Iterator[DatasetRow | IntegrityError]:
    """Yield the rows of a stranger's file in order; an error in the place of an invalid one. Raises IntegrityError if
    nothing more can be read."""
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        if not file.schema_arrow.equals(SCHEMA, check_metadata=False):
            raise IntegrityError(f"{path.name} has other columns than a data set", "export again")
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
            for values in batch.to_pylist():
                try:
                    yield _ROW.validate_python(values)
                except ValidationError as error:
                    column, problem = first_problem(error.errors())
                    yield IntegrityError(f"column `{column}`: {problem}", "")
    except MusterError:
        raise
    except Exception as error:  # the Parquet library refuses hostile bytes in many ways
        raise IntegrityError(f"{path.name} cannot be read: {first_line(error)}", "get it again") from None


@dataclass
class _EnvironmentTally:
    rows: int = 0
    solved: int = 0
    task_reward: float = 0.0
    problems: set[int] = field(default_factory=set)


class RowTally:
    """The totals of the rows that were added. They depend on the rows and their order alone. Memory grows with the
    number of different problems and nodes only."""

    def __init__(self) -> None:
        self._environments: dict[str, _EnvironmentTally] = {}
        self._nodes: set[str] = set()
        self._submissions, self._last = 0, -1
        self._prompt = self._output = 0
        self._reward = 0.0

    def add(self, row: DatasetRow) -> None:
        tally = self._environments.setdefault(row.environment, _EnvironmentTally())
        tally.rows += 1
        tally.solved += row.task_reward >= 1
        tally.task_reward += row.task_reward
        tally.problems.add(row.problem)
        self._nodes.add(row.node)
        self._submissions += row.submission != self._last
        self._last = row.submission
        self._prompt += len(row.prompt_tokens)
        self._output += len(row.output_tokens)
        self._reward += row.reward

    @property
    def rows(self) -> int:
        return sum(tally.rows for tally in self._environments.values())

    def totals(self) -> Totals:
        """Return the totals so far."""

        def mean(total: float, rows: int) -> float:
            return round(total / rows, 9) if rows else 0.0

        every = dict(sorted(self._environments.items()))
        return Totals(
            rows=self.rows,
            submissions=self._submissions,
            nodes=len(self._nodes),
            problems=sum(len(tally.problems) for tally in every.values()),
            prompt_tokens=self._prompt,
            output_tokens=self._output,
            task_reward_mean=mean(sum(tally.task_reward for tally in every.values()), self.rows),
            reward_mean=mean(self._reward, self.rows),
            environments={
                name: EnvironmentTotals(
                    rows=tally.rows,
                    problems=len(tally.problems),
                    task_reward_mean=mean(tally.task_reward, tally.rows),
                    solved=tally.solved,
                )
                for name, tally in every.items()
            },
        )
