"""The Parquet form of a rollout file: one strict schema, deterministic bytes."""

import io
from collections.abc import Sequence
from operator import attrgetter

import pyarrow as pa
import pyarrow.parquet as pq

from protocol.rollouts.schema import Rollout, RolloutHeader

METADATA_KEY = "muster"


def _list(of: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", of, nullable=False))


SCHEMA = pa.schema(
    [
        pa.field(name, kind, nullable=False)
        for name, kind in (
            ("slot", pa.int32()),
            ("sample", pa.int32()),
            ("problem_seed", pa.uint64()),
            ("target_length", pa.int32()),
            ("prompt_tokens", _list(pa.int32())),
            ("output_tokens", _list(pa.int32())),
            ("finish", pa.int32()),
            ("logprobs", _list(pa.float32())),
            ("task_reward", pa.float32()),
            ("length_penalty", pa.float32()),
            ("reward", pa.float32()),
            ("proofs", _list(pa.binary())),
        )
    ]
)


def to_parquet(header: RolloutHeader, rollouts: Sequence[Rollout]) -> bytes:
    """One row group, zstd, no dictionaries, no statistics, no Arrow schema: the same rows give the same bytes."""
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
