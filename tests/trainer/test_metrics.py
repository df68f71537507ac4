"""Metrics reach every sink that is configured; no sink holds up or ends training."""

import json
import logging
import math
import random
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from protocol.errors import ConfigError
from protocol.waits import wait_for
from tests.conftest import free_port
from trainer.config import MetricsConfig
from trainer.data.batch import GroupSettings, Source, TrainRollout
from trainer.data.waiting import AwaitedFiles, IdleClock
from trainer.distributed import Ranks
from trainer.model.sharding import Placement
from trainer.reports.metrics import (
    HELP,
    LABELLED,
    MOST_BUILDS,
    OTHER,
    SCALARS,
    MetricSample,
    MetricsSinks,
    PrometheusSink,
    TensorBoardSink,
    WandbSink,
    make_sinks,
    samples,
)
from trainer.reports.step_metrics import MismatchTotals, StepMetrics, peak_flops, step_record

RECORD: dict[str, Any] = {
    "step": 3,
    "task_reward_mean": 0.5,
    "grad_norm": 0.25,
    "mfu": None,
    "rewards_by_environment": {"reasoning_gym/chain_sum": 0.5},
    "mismatches": [
        {"node": "0xAA", "engine": 'v"llm 1', "staleness": 2, "tokens": 7, "kl": 0.001, "masked": 3},
        {"node": "0xBB", "engine": "hf 5", "staleness": 0, "tokens": 9, "kl": 0.002, "masked": 0},
    ],
    "staleness": {"0": 1, "2": 3},
    "idle": {"judging": 4.5},
    "timings": {"wait": 4.5, "train": 0.5},
}


class ListSink:
    """Keeps what it is given, fails as told, waits at a gate."""

    def __init__(self, name: str = "list") -> None:
        self.name = name
        self.taken: list[int] = []
        self.numbers: list[MetricSample] = []
        self.failure: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.closed = False

    def write(self, step: int, numbers: Sequence[MetricSample]) -> None:
        self.gate.wait(20)
        if self.failure:
            raise self.failure
        self.taken.append(step)
        self.numbers += numbers

    def close(self) -> None:
        self.closed = True


@contextmanager
def running(*sinks: ListSink, waiting: int = 256) -> Iterator[MetricsSinks]:
    """Sinks that are closed after the block."""
    started = MetricsSinks(sinks, waiting)
    started.start()
    yield started
    started.close()


def test_every_number_of_a_record_has_a_name_and_help() -> None:
    numbers = list(samples(RECORD))
    assert {one.name for one in numbers} <= HELP.keys()
    assert all(set(one.labels) == set(LABELLED[one.name][1]) for one in numbers if one.labels)
    assert {one.path: one.value for one in numbers} == {
        "step": 3.0,
        "task_reward_mean": 0.5,
        "grad_norm": 0.25,
        "task_reward/reasoning_gym/chain_sum": 0.5,
        'mismatch_kl/0xAA/v"llm 1/2': 0.001,
        'mismatch_masked/0xAA/v"llm 1/2': 3.0,
        "mismatch_kl/0xBB/hf 5/0": 0.002,
        "mismatch_masked/0xBB/hf 5/0": 0.0,
        "files/0": 1.0,
        "files/2": 3.0,
        "idle_seconds/judging": 4.5,
        "phase_seconds/wait": 4.5,
        "phase_seconds/train": 0.5,
    }
    assert not SCALARS.keys() & LABELLED.keys()


def test_prometheus_reads_the_newest_step_from_the_file_and_over_http(tmp_path: Path) -> None:
    port = free_port()
    sink = PrometheusSink(tmp_path / "metrics.prom", f"127.0.0.1:{port}")
    try:
        for step in (3, 4):
            sink.write(step, list(samples(RECORD | {"step": step})))
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
        with pytest.raises(ConfigError, match=f"`metrics.listen` 127.0.0.1:{port}: .*in use"):
            PrometheusSink(tmp_path / "other.prom", f"127.0.0.1:{port}")
    finally:
        sink.close()
    assert text == (tmp_path / "metrics.prom").read_text()
    families = list(text_string_to_metric_families(text))
    values = {(one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples}
    assert values["muster_trainer_step",] == 4.0
    assert values["muster_trainer_idle_seconds", ("cause", "judging")] == 4.5
    node = (("engine", 'v"llm 1'), ("node", "0xAA"), ("staleness", "2"))
    assert values[("muster_trainer_mismatch_kl", *node)] == 0.001
    assert all(family.documentation for family in families)


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1:", "127.0.0.1:99999", "no.such.host.invalid:9000"])
def test_an_address_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, listen: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listen"):
        PrometheusSink(tmp_path / "metrics.prom", listen)


def test_every_sink_gets_every_record_and_a_failing_one_is_said_once_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad, good = ListSink("bad"), ListSink("good")
    bad.failure = OSError("disk full")
    with caplog.at_level(logging.INFO), running(bad, good) as sinks:
        for step in range(30):
            sinks.write({"step": step})
        wait_for("the failures", lambda: len(good.taken) == 30 or None, 60, poll=0.01)
        bad.failure = None
        sinks.write({"step": 30})
    assert (good.taken, bad.taken) == (list(range(31)), [30])
    assert good.closed
    said = [record.getMessage() for record in caplog.records]
    assert said == ["metrics sink bad fails: disk full; it is tried again with every step"]


def test_a_sink_that_hangs_costs_old_records_and_no_time(caplog: pytest.LogCaptureFixture) -> None:
    sink = ListSink("slow")
    sink.gate.clear()
    with running(sink, waiting=4) as sinks:
        for step in range(100):
            sinks.write({"step": step})
        assert sinks.dropped >= 95
        sinks.close(patience=0.1)
        assert sink.taken == [], "it is still stuck, and the end did not wait for it"
        sink.gate.set()
    assert sink.taken[-1] == 99, "the newest are kept"
    assert len(sink.taken) + sinks.dropped >= 100
    assert caplog.text.count("the oldest are dropped") == 1


def test_a_tracker_that_is_not_installed_or_does_not_start_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("torch.utils.tensorboard", "wandb"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"not installed; pip install tensorboard"):
        TensorBoardSink(tmp_path)
    with pytest.raises(ConfigError, match=r"not installed; pip install wandb"):
        WandbSink("sums", "pool-1", tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", Mock(init=Mock(side_effect=RuntimeError("api_key not configured"))))
    with pytest.raises(ConfigError, match="wandb does not start: api_key not configured"):
        WandbSink("sums", "pool-1", tmp_path)


def test_trackers_get_numbers_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, run = Mock(), Mock()
    board, tracker = Mock(SummaryWriter=Mock(return_value=writer)), Mock(init=Mock(return_value=run))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    monkeypatch.setitem(sys.modules, "wandb", tracker)
    text = json.dumps({"tensorboard": str(tmp_path / "events"), "wandb": "sums"})
    sinks = make_sinks(MetricsConfig.model_validate_json(text), tmp_path, "pool-1")
    assert [sink.name for sink in sinks] == ["prometheus", "tensorboard", "wandb"]
    for sink in sinks:
        sink.write(3, list(samples(RECORD)))
        sink.close()
    writer.add_scalar.assert_any_call("idle_seconds/judging", 4.5, 3)
    (logged,), options = run.log.call_args
    assert (logged["task_reward_mean"], options) == (0.5, {"step": 3})
    started = {"project": "sums", "id": "pool-1", "resume": "allow"}
    assert started.items() <= tracker.init.call_args.kwargs.items()


def test_a_node_that_names_a_new_engine_in_every_file_does_not_fill_the_metrics_server() -> None:
    sink = ListSink()
    with running(sink) as sinks:
        for step in range(50):
            named = [{**RECORD["mismatches"][0], "engine": f"build {step}.{file}"} for file in range(4)]
            sinks.write({"step": step, "mismatches": [*named, RECORD["mismatches"][0]]})
    assert len(sink.taken) == 50
    told = [one for one in sink.numbers if "engine" in one.labels]
    assert len({one.labels["engine"] for one in told}) == MOST_BUILDS + 1
    last = {(one.name, one.labels["engine"]) for one in told[-4:]}
    known = RECORD["mismatches"][0]["engine"]
    assert last == {(name, build) for name in ("mismatch_kl", "mismatch_masked") for build in (OTHER, known)}


@pytest.mark.parametrize(
    ("awaited", "cause", "summary"),
    [
        (AwaitedFiles(4, 0, 0, 0, 0, any_submitted=False), "starting", "no file is submitted"),
        (AwaitedFiles(4, 0, 0, 0, 0), "generating", "no file is submitted"),
        (AwaitedFiles(4, 1, 1, 1, 0), "generating", "1 ready, 1 to be fetched, 1 accepted but not final"),
        (AwaitedFiles(4, 1, 1, 1, 1), "judging", "1 ready, 1 to be fetched, 1 accepted but not final, 1 not judged"),
        (AwaitedFiles(4, 0, 0, 0, 9), "judging", "9 not judged"),
        (AwaitedFiles(4, 2, 0, 2, 9), "confirming", "2 ready, 2 accepted but not final, 9 not judged"),
        (AwaitedFiles(4, 3, 1, 5, 9), "fetching", "3 ready, 1 to be fetched, 5 accepted but not final, 9 not judged"),
    ],
)
def test_the_cause_is_what_enough_files_still_need(awaited: AwaitedFiles, cause: str, summary: str) -> None:
    assert (awaited.cause, awaited.summary) == (cause, summary)


def test_seconds_are_added_up_by_cause_and_training_is_not_waiting() -> None:
    now = 100.0
    clock = IdleClock(lambda: now)
    now = 110.0
    clock.begin()
    for later, cause in ((111.0, "generating"), (113.5, "judging"), (114.0, "generating")):
        now = later
        clock.tick(cause)
    now = 114.5
    clock.tick()
    now = 120.0
    assert clock.record() == {"idle": {"generating": 2.0, "judging": 2.5}, "idle_share": 0.225}
    clock.begin()
    now = 121.0
    clock.tick()
    now = 130.0
    assert clock.record() == {"idle": {"fetching": 1.0}, "idle_share": 0.1}


def test_utilisation_is_only_told_where_the_peak_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = Placement(), Placement(device="cuda")
    assert peak_flops(cpu) is None
    names = {"NVIDIA H200": 989.4e12, "NVIDIA A100-SXM4-80GB": 312e12, "NVIDIA A10G": 70e12, "NVIDIA H100 PCIe": 756e12}
    for name, peak in names.items():
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, name=name: name)
        assert peak_flops(gpu) == pytest.approx(peak)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Abacus 3000")
    assert peak_flops(gpu) is None


ADA, BOB = Source("0xada", "vllm 0.32", 3), Source("0xbob", "transformers 5.19", 1)


def sample(source: Source | None, tokens: int = 3) -> TrainRollout:
    return TrainRollout((1,), tuple(range(tokens)), 1.0, source=source)


def test_each_source_has_the_mean_of_its_own_tokens() -> None:
    dice = random.Random(3)
    samples = [sample(ADA, 3), sample(BOB, 2), sample(ADA, 4), sample(None, 1)]
    old = [[dice.uniform(-3, 0) for _ in one.output] for one in samples]
    sampled = [[dice.uniform(-3, 0) for _ in one.output] for one in samples]
    totals = MismatchTotals(4, torch.device("cpu"))
    parts: tuple[tuple[int, ...], ...] = ((2, 0), (1,), (3,))
    for places in parts:
        sequence = torch.cat([torch.full((len(old[place]),), at) for at, place in enumerate(places)])
        flat = [torch.tensor([value for place in places for value in rows[place]]) for rows in (old, sampled)]
        totals.add(places, sequence, *flat)
    overall, found = totals.by_source(samples, 4, Ranks())

    def expected(*places: int) -> float:
        ratios = [a - b for place in places for a, b in zip(old[place], sampled[place], strict=True)]
        return sum(math.exp(ratio) - 1 - ratio for ratio in ratios) / len(ratios)

    by_source = {(one.node, one.engine, one.staleness): one for one in found}
    places_of: dict[tuple[str, str, int], tuple[int, ...]] = {
        ("0xada", "vllm 0.32", 1): (0, 2), ("0xbob", "transformers 5.19", 3): (1,), ("", "", 0): (3,),
    }  # fmt: skip
    assert by_source.keys() == places_of.keys()
    for source, places in places_of.items():
        one = by_source[source]
        assert one.tokens == sum(len(old[place]) for place in places)
        assert one.kl == pytest.approx(expected(*places), rel=1e-5)
    assert overall == pytest.approx(expected(0, 1, 2, 3), rel=1e-5)
    assert [one.kl for one in found] == sorted((one.kl for one in found), reverse=True)


def test_equal_policies_have_no_mismatch_and_wild_ones_of_a_file_a_finite_one() -> None:
    def overall(old: list[float], sampled: list[float]) -> float | None:
        totals = MismatchTotals(1, torch.device("cpu"))
        totals.add((0,), torch.zeros(2, dtype=torch.int64), torch.tensor(old), torch.tensor(sampled))
        return totals.by_source([sample(ADA, 2)], 3, Ranks())[0]

    assert overall([-0.5, -2.0], [-0.5, -2.0]) == 0.0
    assert math.isfinite(overall([0.0, 0.0], [-1e30, math.nan]) or math.nan)
    assert MismatchTotals(1, torch.device("cpu")).by_source([sample(ADA)], 3, Ranks()) == (None, ())


def test_a_record_says_rewards_length_errors_and_staleness() -> None:
    sums, words = GroupSettings("sums"), GroupSettings("words")
    right = TrainRollout((1,), (1, 2, 3), 1.0, 1.0, target=5, settings=sums)
    wrong = TrainRollout((1,), (1, 2, 3, 4), 0.0, 0.0, target=3, settings=sums)
    spelt = TrainRollout((1,), (1, 2), 1.0, 1.0, settings=words)
    values: dict[str, Any] = dict.fromkeys(StepMetrics.__dataclass_fields__, 0)
    made = {"step": 5, "groups_dropped": 1, "trained_tokens": 1000, "flops": 3e12, "seconds": 2.0}
    files: list[Any] = [SimpleNamespace(step=step, sequence=10 + step) for step in (4, 2, 4)]
    record = step_record(StepMetrics(**values | made), files, [(right, wrong), (spelt,)], 1.25, 6e12)
    expected = {
        **made,
        "consumed": [14, 12, 14],
        "timings": {"wait": 1.25, "train": 2.0},
        "reward_mean": 0,
        "dropped_share": 0.5,
        "rewards_by_environment": {"sums": 0.5, "words": 1.0},
        "length_error": 1.5,
        "staleness": {"0": 2, "2": 1},
        "staleness_mean": pytest.approx(2 / 3),
        "tokens_per_second": 500.0,
        "mfu": 0.25,
    }
    assert {name: record[name] for name in expected} == expected
    empty = step_record(StepMetrics(**values), [], [], 0.0, None)
    assert [name for name, value in empty.items() if value] == ["timings", "time"]
    assert empty["reward_mean"] is None
