import hashlib
import io
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.support.rollouts import LIMITS
from benchmarks.support.rollouts import made_up_rollouts as rollouts
from protocol.delta.delta import varint
from protocol.errors import MusterError
from protocol.identity import PoolId, WorkId
from protocol.rollout_file import merkle
from protocol.rollout_file.file import SANDBOX, Sandbox, read, write
from protocol.rollout_file.reader import SCHEMA
from protocol.rollout_file.rows import Limits, MalformedFile, RolloutHeader, commit, inclusion
from protocol.seeds import Work
from tests import openings


def header(**changes: Any) -> RolloutHeader:
    """An honest header, changed."""
    fields: dict[str, Any] = {"chain_id": 31337, "pools": "0x" + "11" * 20, "pool": 1, "node": "0x" + "ab" * 20}
    fields |= {"step": 3, "counter": 4, "step_seed": b"s" * 32, "manifest": b"m" * 32}
    fields |= {"engine": "transformers 5.19.0", "dtype": "float32", "device": "cpu", **changes}
    pool = PoolId(*(fields.pop(name) for name in ("chain_id", "pools", "pool")))
    work = WorkId(pool, *(fields.pop(name) for name in ("node", "step", "counter")))
    return RolloutHeader(Work(work, fields.pop("step_seed"), fields.pop("manifest")), **fields)


def table(**columns: Any) -> pa.Table:
    """A table like an honest one, with some columns replaced (or added, or dropped when None)."""
    rows = rollouts()
    cells = {field.name: pa.array([getattr(row, field.name) for row in rows], field.type) for field in SCHEMA}
    fields = {field.name: field for field in SCHEMA}
    for name, values in columns.items():
        field = fields.pop(name, None)
        cells.pop(name, None)
        if values is None:
            continue
        given = isinstance(values, pa.Array | pa.ChunkedArray)
        cells[name] = array = values if given else pa.array(values, field.type if field else None)
        fits = field is not None and field.type == array.type and not array.null_count
        fields[name] = field if fits else pa.field(name, array.type, array.null_count > 0)
    names = [name for name in dict.fromkeys([*SCHEMA.names, *columns]) if name in cells]
    return pa.Table.from_arrays([cells[name] for name in names], schema=pa.schema([fields[name] for name in names]))


def store(made: pa.Table, meta: dict[str, str] | None = None, **options: Any) -> bytes:
    out = io.BytesIO()
    options = {"compression": "zstd", "use_dictionary": False, "store_schema": False} | options
    with pq.ParquetWriter(out, made.schema, **options) as writer:
        writer.write_table(made)
        writer.add_key_value_metadata({"muster": header().canonical().decode()} if meta is None else meta)
    return out.getvalue()


def refused(data: bytes, word: str, limits: Limits = LIMITS) -> None:
    with pytest.raises(MalformedFile, match=word):
        read(data, limits)


def test_round_trip_and_determinism() -> None:
    data = write(header(), rollouts())
    assert data == write(header(), rollouts())
    assert read(data, LIMITS) == (header(), rollouts())
    assert read(store(table()), LIMITS) == (header(), rollouts()), "another writer's plain file is as good"


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), problems=st.integers(1, 5), samples=st.integers(1, 4), tokens=st.integers(1, 90))
def test_round_trip_of_any_shape(seed: int, problems: int, samples: int, tokens: int) -> None:
    limits = Limits(problems, samples, 1 + seed % 40, tokens)
    rows = rollouts(limits, seed)
    data = write(header(counter=seed), rows)
    assert len(data) <= limits.file_bytes
    got_header, got = read(data, limits)
    assert (got_header.work.id.counter, got) == (seed, rows)
    assert commit(data, got) == commit(data, rows)


def test_commitment() -> None:
    rows = rollouts()
    data = write(header(), rows)
    made = commit(data, rows)
    assert made.sha256 == hashlib.sha256(data).digest()
    assert made.units == sum(len(row.output_tokens) for row in rows)
    assert made.rows == 8
    row_bytes, siblings = inclusion(rows, 5)
    assert openings.verify(made.root, merkle.leaf(row_bytes), siblings)
    other = [*rows[:5], replace(rows[5], reward=0.5), *rows[6:]]
    assert commit(data, other).root != made.root


def test_floats_are_committed_as_float32() -> None:
    rows = rollouts()
    rows[0] = replace(rows[0], reward=0.1, logprobs=tuple(-0.1 for _ in rows[0].logprobs))
    data = write(header(), rows)
    assert commit(data, read(data, LIMITS)[1]) == commit(data, rows)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"reward": float("nan")}, "finite"),
        ({"task_reward": float("inf")}, "finite"),
        ({"reward": 1e39}, "finite"),
        ({"finish": 2}, "finish"),
        ({"slot": 3}, "out of order"),
        ({"sample": 1}, "out of order"),
        ({"output_tokens": ()}, "empty"),
        ({"output_tokens": (-1,)}, "token out of range"),
        ({"logprobs": ()}, "log-probs"),
        ({"proofs": ()}, "proofs"),
        ({"proofs": (b"x" * 257,) * 2}, "proof"),
        ({"problem_seed": 2**64}, "problem seed"),
        ({"target_length": -1}, "target length"),
    ],
)
def test_writer_refuses(change: dict[str, Any], word: str) -> None:
    rows = rollouts()
    with pytest.raises(MalformedFile, match=word):
        write(header(), [replace(rows[0], **change), *rows[1:]])


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"extra": [1] * 8}, "13 columns"),
        ({"proofs": None}, "11 columns"),
        ({"slot": pa.array([0, 0, 1, 1, 2, 2, 3, 3], pa.int64())}, "column 0"),
        ({"problem_seed": pa.array(range(8), pa.int64())}, "types differ"),
        ({"slot": pa.array([0, 0, 1, 1, None, 2, 3, 3], pa.int32())}, "nullable"),
        ({"prompt_tokens": pa.array([[[1]]] * 8)}, "column 4"),
        ({"prompt_tokens": pa.array([[1]] * 8, pa.list_(pa.int32()))}, "nullable"),
        ({"finish": pa.array([0] * 8, pa.date32())}, "types differ|nullable"),
        ({"slot": [0, 0, 1, 1, 2, 2, 3, 2]}, "out of order"),
        ({"slot": [-1, 0, 1, 1, 2, 2, 3, 3]}, "refuses it"),
        ({"finish": [0, 0, 0, 0, 0, 0, 0, 7]}, "finish 7"),
        ({"reward": [float("nan")] + [1.0] * 7}, "finite"),
        ({"output_tokens": [[-5]] * 8}, "-5 out of bounds"),
        ({"proofs": [[b""]] * 8}, "258"),
        ({"proofs": [[b"x" * 100_000]] * 8}, "unpacks to more"),
        ({"output_tokens": [[1] * 65] * 8}, "more values"),
        ({"prompt_tokens": [[1] * 100] + [[2]] * 7}, "larger than the pool allows"),
    ],
)
def test_reader_refuses_tables(columns: dict[str, Any], word: str) -> None:
    refused(store(table(**columns)), word)


def test_reader_refuses_forms() -> None:
    good = table()
    refused(store(good, compression="snappy"), "SNAPPY")
    refused(store(good, column_encoding={"reward": "BYTE_STREAM_SPLIT"}), "encoding")
    refused(store(good, meta={}), "exactly `muster`")
    refused(store(good, meta={"muster": "{}", "more": "x"}), "exactly `muster`")
    refused(store(good, store_schema=True), "exactly `muster`")
    refused(store(good, meta={"muster": "{}"}), "Field required")
    refused(store(good, meta={"muster": header().canonical().decode().replace(":", ": ", 1)}), "canonical")
    refused(store(good, meta={"muster": "[" * 100_000}), "bytes")
    refused(store(good.slice(0, 7)), "7 rows instead of 8")
    refused(b"", "not a Parquet file")
    refused(b"PAR1" + b"\xff" * 100 + b"PAR1", "footer")
    refused(store(good)[:-4] + b"PARE", "not a Parquet file")  # as an encrypted one ends
    refused(b"PAR1" + bytes(LIMITS.file_bytes), "at most")
    refused(write(header(), rollouts(Limits(2, 4, 8, 8))), "out of order")


@pytest.mark.parametrize("name", ["chain_id", "pool", "step", "counter", "version"])
def test_header_numbers(name: str) -> None:
    for value in (-1, 2**63, 1.0, True, "1", None):
        with pytest.raises(MalformedFile):
            header(**{name: value})


def test_header_parsing() -> None:
    good = header()
    assert RolloutHeader.parse(good.canonical()) == good
    node = good.work.id.node
    assert node == "0x" + "aB" * 20 or node.lower() == "0x" + "ab" * 20
    with pytest.raises(MalformedFile):
        RolloutHeader.parse(b'{"version":1,"version":1}')
    for wrong in ({"node": "0x12"}, {"node": node.swapcase()}, {"engine": ""}, {"engine": "é"}, {"step_seed": b""}):
        with pytest.raises(MalformedFile):
            header(**wrong)


def test_decompression_bombs_stay_small_and_quick() -> None:
    rows = LIMITS.rows
    zeros = np.zeros(4_000_000, np.int32)
    huge = pa.ListArray.from_arrays(pa.array([0, *[4_000_000] * rows], pa.int32()), pa.array(zeros))
    huge = huge.cast(SCHEMA.field("prompt_tokens").type)
    start = time.monotonic()
    refused(store(table(prompt_tokens=huge)), "more values|unpacks")
    refused(store(table(prompt_tokens=huge), use_dictionary=True), "more values|unpacks")
    assert time.monotonic() - start < 100


def test_bomb_with_a_lying_footer() -> None:
    """The footer claims 8 values and few bytes, the page unpacks to 240 MB: the reader's memory limit catches it."""
    count = 60_000_000
    values = pa.ListArray.from_arrays(pa.array([0, *[count] * 8], pa.int32()), pa.array(np.zeros(count, np.int32)))
    bomb = table(prompt_tokens=values.cast(SCHEMA.field("prompt_tokens").type))
    data = store(bomb, data_page_size=1 << 30, write_statistics=False)
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(4)
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[end:]
    for claim, lie in ((column.num_values, 8), (column.total_uncompressed_size, 100)):
        true, false = varint(2 * claim), varint(2 * lie)
        padded = bytes(byte | 128 for byte in false) + b"\x80" * (len(true) - len(false) - 1) + b"\0"
        assert true in footer
        footer = footer.replace(true, padded[: len(true)])
    start = time.monotonic()
    refused(data[:end] + footer, "MiB|memory|realloc|malloc|Out of")
    assert time.monotonic() - start < 100
    assert read(write(header(), rollouts()), LIMITS), "the next file is read as if nothing had happened"


@pytest.mark.parametrize("stopped", [signal.SIGKILL, signal.SIGSTOP])
def test_a_reader_that_dies_or_hangs_is_replaced(stopped: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is not the file's fault."""
    data = write(header(), rollouts())
    read(data, LIMITS)
    first = SANDBOX._process
    assert first is not None
    os.kill(first.pid, stopped)
    monkeypatch.setattr("protocol.rollout_file.file._SLACK_SECONDS", 5.0)
    assert read(data, replace(LIMITS, cpu_seconds=1))[0] == header()
    assert SANDBOX._process is not first


@pytest.mark.parametrize(
    "broken",
    [
        "reader.confine = lambda *_: resource.setrlimit(resource.RLIMIT_CPU, (2, 1))",
        "reader.confine = die",
        "reader.confine, reader.parse = print, die",
        "write, reader.confine = os.write, print\n"
        "reader.os.write = lambda out, data: (write(out, data[:9]), len(data) > 9 and die())[0]",
    ],
    ids=["cannot be confined", "killed while it is confined", "killed before it answers", "killed while it answers"],
)
def test_a_machine_that_cannot_read_blames_no_file(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limits are too low, or the out-of-memory killer ends the process that parses."""
    start, set_up = subprocess.Popen, "import os, resource, signal, protocol.rollout_file.reader as reader"
    set_up += "\ndie = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"

    def popen(argv: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        return start([argv[0], "-c", f"{set_up}\n{broken}\nreader.main()"], **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    sandbox, data = Sandbox(), write(header(), rollouts())
    try:
        with pytest.raises(MusterError, match=r"failed twice: (it was killed|current limit)") as raised:
            read(data, LIMITS, sandbox)
        assert not isinstance(raised.value, MalformedFile)
    finally:
        sandbox.close()


def test_reader_that_takes_too_long_is_stopped() -> None:
    limits = Limits(64, 16, 64, 2048)
    rows = rollouts(limits)
    data = write(header(), rows)
    with pytest.raises(MalformedFile, match="CPU"):
        read(data, replace(limits, cpu_seconds=0))
    assert read(data, limits)[1] == rows


def test_many_threads_share_one_reader() -> None:
    files = [write(header(counter=number), rollouts(seed=number)) for number in range(8)]
    broken = files[0][:-300] + bytes(290) + files[0][-10:]
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(read, data, LIMITS) for _ in range(3) for data in (*files, broken)]
    for number, job in enumerate(jobs):
        if number % 9 == 8:
            assert isinstance(job.exception(), MalformedFile)
        else:
            assert job.result() == (header(counter=number % 9), rollouts(seed=number % 9))
