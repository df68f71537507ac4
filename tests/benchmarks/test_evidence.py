"""A zoo of honest engines, of which none is ever slashed; and that histories drawn side by side add up as a node's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.multiprocessing.spawn import spawn
from torch.nn import functional as F

from benchmarks.verification.evidence import RATES, VARY, SecondPass, draws_of, histories, measured, paid, verifier_of
from calibration.measuring import audits, context_of
from calibration.null_model import pair_null_model
from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.config import BF16_CHECKS, ChecksConfig, PoolConfig
from protocol.evidence.figures import BETS, FIGURES
from protocol.evidence.null_model import NodeEvidence
from tests.validator import tiny
from validator.judging.checks import PREFILL_CHECKS, CheckContext
from validator.judging.measurements import file_figures
from worker.produce import Producer

WORK = tiny.CONFIG.work.model_copy(update={"problems_per_file": 8, "samples_per_problem": 4})
CHECKS = {"bfloat16": BF16_CHECKS, "float32": ChecksConfig()}
OWN_PASS = "own second pass"
SLOW = pytest.mark.slow
PAD = 32


class Chunked(TransformersEngine):
    """Prefills four tokens of a prompt at a time."""

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, cache: Any) -> Any:
        before, parts = cache.get_seq_length(), []
        for start in range(0, ids.shape[1], 4):
            seen, own = None if mask is None else mask[:, : before + start + 4], slice(start, start + 4)
            parts.append(super()._forward(ids[:, own], seen, positions[:, own], cache))
        return torch.cat(parts, dim=1)


class Padded(TransformersEngine):
    """Prefills prompts behind tokens that nothing attends to."""

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, cache: Any) -> Any:
        if cache.get_seq_length():
            return super()._forward(ids, mask, positions, cache)
        mask = torch.ones_like(ids) if mask is None else mask
        ids, mask, positions = (F.pad(one, (PAD, 0)) for one in (ids, mask, positions))
        hidden = super()._forward(ids, mask, positions, cache)
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[:, :, PAD:], layer.values[:, :, PAD:]
        return hidden[:, PAD:]


ENGINES = {"chunked prefill": Chunked, "padding": Padded}
OTHERS = (*VARY, *ENGINES)
ZOO = ("batches of 1", "batches of 20", "two threads", OWN_PASS, *OTHERS)


def config(dtype: str) -> PoolConfig:
    return tiny.CONFIG.model_copy(update={"work": WORK, "checks": CHECKS[dtype]})


def maker(name: str, dtype: str) -> Producer:
    """A worker with an honest engine."""
    engine = ENGINES.get(name, TransformersEngine)(
        dtype, threads=1 + (name == "two threads"), max_batch=1 if name == "batches of 1" else 20
    )
    producer = SecondPass(config(dtype), engine, 0) if name == OWN_PASS else Producer(config(dtype), engine)
    producer.load(tiny.model_folder())
    VARY.get(name, lambda model: None)(engine.model)
    return producer


def refused(context: CheckContext) -> set[str]:
    """The checks that refuse a measured file if an audit draws all of its rows, those of one problem, or a single
    one."""
    rows, each = context.measured, WORK.samples_per_problem
    draws = [rows, *(rows[at : at + each] for at in range(0, len(rows), each)), *((row,) for row in rows)]
    judged = (check(replace(context, measurements=drawn)) for drawn in draws for check in PREFILL_CHECKS)
    return {finding.check for finding in judged if finding.code.is_reject}


@pytest.mark.parametrize("count", [3, pytest.param(24, marks=SLOW)])
@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=SLOW)])
@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW if name == "compiled" else ()) for name in ZOO])
def test_no_file_of_an_honest_engine_is_refused_whatever_its_label_says(name: str, dtype: str, count: int) -> None:
    """So no juror may vote for a slash: what its files show together ends a membership at most."""
    producer, verifier = maker(name, dtype), verifier_of(dtype, tiny.model_folder())
    differing = 0.0
    for work in map(tiny.work_of, range(count)):
        context = context_of(work, producer.make(work).data, config(dtype), producer.environment)
        context = next(audits(context, verifier, 1))
        assert refused(context) == set()
        differing += sum(one.total for one in file_figures(context)["mantissas"])
    assert differing > 0 or name not in OTHERS or dtype == "float32", "it computes as the verifier does"


def tensor_parallel(rank: int, home: Path, weights: Path, dtype: str) -> None:
    """One of two processes that compute every layer together, and make the same file."""
    dist.init_process_group("gloo", init_method=f"file://{home}/meeting", rank=rank, world_size=2)
    producer = Producer(config(dtype), engine := TransformersEngine(dtype))
    producer.load(weights)
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    plan = {**dict.fromkeys(columns, ColwiseParallel()), "self_attn.o_proj": RowwiseParallel()}
    for layer in engine.model.model.layers:
        parallelize_module(layer, init_device_mesh("cpu", (2,)), plan | {"mlp.down_proj": RowwiseParallel()})
        whole = layer.mlp.down_proj.weight
        assert 2 * whole.to_local().shape[1] == whole.shape[1], "each process holds a half"
    (home / f"{rank}.parquet").write_bytes(producer.make(tiny.work_of()).data)
    dist.destroy_process_group()


@SLOW
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", CHECKS)
def test_no_file_of_two_processes_that_share_every_layer_is_refused(dtype: str, tmp_path: Path) -> None:
    weights = tiny.model_folder()
    spawn(tensor_parallel, (tmp_path, weights, dtype), nprocs=2)  # type: ignore[no-untyped-call]
    data, same = ((tmp_path / f"{rank}.parquet").read_bytes() for rank in range(2))
    assert data == same
    environment = PoolEnvironments.of(config(dtype), weights)
    context = context_of(tiny.work_of(), data, config(dtype), environment)
    assert refused(next(audits(context, verifier_of(dtype, weights), 1))) == set()


@SLOW
@pytest.mark.parametrize("name", ZOO)
def test_no_history_of_an_honest_engine_under_its_own_label_is_accused(name: str) -> None:
    """Batches and threads are no label: what is learned of batches of 20 holds for others."""
    verifier = verifier_of("bfloat16", tiny.model_folder())

    def files_of(name: str, count: int, first: int = 0) -> list[dict[str, Any]]:
        producer, works = maker(name, "bfloat16"), map(tiny.work_of, range(first, first + count))
        return [
            measured(work, producer.make(work).data, config("bfloat16"), producer.environment, verifier, 4)
            for work in works
        ]

    known, rows = files_of(name if name in (*OTHERS, OWN_PASS) else "batches of 20", 32, 100), files_of(name, 8)
    for rate in RATES:
        draws = [draws_of(row, rate) for row in known]
        model = pair_null_model("own", "own", [draws[8:]], draws[:8])
        at, _, _ = histories(paid(rows, model, rate), 100, 1000)
        assert model.made > 0
        assert not at.any(), rate
    assert not any(code for row in rows for codes in row["codes"].values() for code in codes)


def test_a_history_drawn_in_bulk_is_that_of_one_node() -> None:
    source = np.random.default_rng(1)
    paid = source.normal(0.2, 0.3, (1, len(FIGURES), BETS))
    evidence = NodeEvidence()
    while not evidence.accused:
        evidence.add({name: tuple(paid[0, place].tolist()) for place, name in enumerate(FIGURES)})
    at, by, largest = histories(paid, 3, 40)
    assert at.tolist() == [evidence.files] * 3
    assert evidence.files < 40
    assert by.sum() == 3
    assert largest == pytest.approx(evidence.peak)
