"""The benchmark mode on a tiny model: figures that belong together, rollouts in the shape of the pool's work."""

from pathlib import Path

import pytest
import torch

from engines.loading import set_threads
from protocol.config import TrainConfig, WorkConfig
from tests.trainer.helpers import small_model
from tests.trainer.model.architectures import architecture
from trainer.config import MemoryConfig
from trainer.data.batch import WorkEstimate
from trainer.learner import Learner
from trainer.model.sharding import Placement
from trainer.reports.bench import bench, full_row, matrix_flops, peak_bytes, reset_peak, synthetic_groups

WORK = WorkConfig(samples_per_problem=4, max_new_tokens=60, max_prompt_tokens=40)


def test_a_report_holds_what_was_measured(tmp_path: Path) -> None:
    set_threads(1)
    placement = Placement(memory=MemoryConfig(row_tokens=256))
    learner = Learner(small_model(tmp_path / "model"), TrainConfig(), 1.0, placement=placement)
    said: list[str] = []
    report = bench(learner, WORK, rows=2, steps=2, say=said.append)
    assert (learner.step, len(said)) == (3, 3)
    assert report["tokens"] >= 2 * 256
    assert report["tokens_per_second"] == pytest.approx(report["tokens"] / report["seconds"], rel=0.05)
    assert 0 < report["mfu"] < 1
    assert report["peak_measured"]
    assert report["idle_share"] == 0.0
    assert report["parameters"] == sum(one.numel() for one in learner.policy.model.parameters())
    assert report["peak_bytes"] > 100 << 20


def test_rollouts_have_the_shape_of_the_pools_work_and_a_signal() -> None:
    groups = synthetic_groups(WORK, 50, 4000)
    assert sum(one.length for group in groups for one in group) >= 4000
    for group in groups:
        assert len(group) == 4
        assert {one.reward for one in group} == {0.0, 1.0}
        assert all(1 <= len(one.prompt) <= 10 and 1 <= len(one.output) <= 60 for one in group)
    assert max(len(one.output) for group in groups for one in group) == 60
    assert synthetic_groups(WORK, 50, 4000) == groups


def test_a_full_row_is_full_products_are_timed_and_a_peak_is_at_least_what_was_held() -> None:
    (group,) = full_row(128, 50)
    assert sum(one.length for one in group) == 128
    device = torch.device("cpu")
    assert matrix_flops(device, torch.float32) > 1e8
    reset_peak(device)
    held = torch.ones(16 << 20)
    assert peak_bytes(device) >= held.numel() * 4


def test_the_estimate_counts_matrices_heads_and_chosen_experts() -> None:
    estimate = WorkEstimate(10.0, 2.0)
    # Token t of 4 sees t of them: 1 + 2 + 3 + 4 pairs, of which half a pair each is the diagonal's.
    assert estimate.of_sequence(4) == 4 * (10 + 2 * 2)
    assert estimate.training([4, 4]) == 6 * estimate.of_sequence(4)
    plain = WorkEstimate.of(architecture("llama untied"))
    layer = 32 * 32 * 2 + 2 * 32 * 16 + 3 * 32 * 48
    assert plain.linear == 2 * (2 * layer + 97 * 32)
    assert plain.attention == 4 * 2 * 4 * 8
    mixture = WorkEstimate.of(architecture("qwen3 mixture"))
    experts = 4 * 3 * 32 * 8
    chosen = 32 * 32 * 2 + 2 * 32 * 16 + 4 * 32 + experts * 2 / 4
    assert mixture.linear == pytest.approx(2 * (2 * chosen + 97 * 32))
