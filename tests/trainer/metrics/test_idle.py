"""Waiting is put down to what held the step up."""

import pytest
import torch

from trainer.metrics import AwaitedFiles, IdleClock
from trainer.model.sharding import Placement
from trainer.step_metrics import peak_flops, throughput


@pytest.mark.parametrize(
    ("awaited", "cause"),
    [
        (AwaitedFiles(4, 0, 0, 0, 0, any_submitted=False), "starting"),
        (AwaitedFiles(4, 0, 0, 0, 0), "generating"),
        (AwaitedFiles(4, 1, 1, 1, 0), "generating"),
        (AwaitedFiles(4, 1, 1, 1, 1), "judging"),
        (AwaitedFiles(4, 0, 0, 0, 9), "judging"),
        (AwaitedFiles(4, 2, 0, 2, 9), "confirming"),
        (AwaitedFiles(4, 3, 1, 5, 9), "fetching"),
    ],
)
def test_the_cause_is_what_enough_files_still_need(awaited: AwaitedFiles, cause: str) -> None:
    assert awaited.cause == cause


def test_how_far_the_files_are_is_said_in_words() -> None:
    assert AwaitedFiles(4, 0, 0, 0, 0).summary == "no file is submitted"
    assert AwaitedFiles(4, 1, 2, 3, 4).summary == "1 ready, 2 to be fetched, 3 accepted but not final, 4 not judged"
    assert AwaitedFiles(4, 1, 0, 0, 2).summary == "1 ready, 2 not judged"


def test_seconds_are_added_up_by_cause_and_training_is_not_waiting() -> None:
    now = 100.0
    clock = IdleClock(lambda: now)
    now = 110.0
    clock.begin()
    for later, cause in ((111.0, "generating"), (113.5, "judging"), (114.0, "generating")):
        now = later
        clock.tick(cause)
    now = 114.5
    clock.end()
    now = 120.0
    assert clock.record() == {"idle": {"generating": 2.0, "judging": 2.5}, "idle_share": 0.225}
    clock.begin()
    now = 121.0
    clock.end()
    now = 130.0
    assert clock.record() == {"idle": {"fetching": 1.0}, "idle_share": 0.1}


def test_utilisation_is_only_told_where_the_peak_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = Placement(), Placement(device="cuda")
    assert peak_flops(cpu) is None
    assert peak_flops(cpu, 2.0) == 2e12
    names = {"NVIDIA H200": 989.4e12, "NVIDIA A100-SXM4-80GB": 312e12, "NVIDIA A10G": 70e12, "NVIDIA H100 PCIe": 756e12}
    for name, peak in names.items():
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, name=name: name)
        assert peak_flops(gpu) == pytest.approx(peak)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Abacus 3000")
    assert peak_flops(gpu) is None
    assert throughput(1000, 3e12, 2.0, 6e12) == {"tokens_per_second": 500.0, "mfu": 0.25}
    assert throughput(1000, 3e12, 2.0, None) == {"tokens_per_second": 500.0, "mfu": None}
