"""The quick form of the DiLoCo benchmark is real: workers that synchronise rarely stay close, and send far less."""

import pytest

from benchmarks.diloco import QUICK, run, summary


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rare_steps_cost_little_loss_and_save_bytes() -> None:
    result = run(True, print)
    assert result["loss_gap"].keys() == {"5", "10", "10-int8", "10-sparse"}
    assert all(-0.05 < gap < 0.15 for gap in result["loss_gap"].values()), result["loss_gap"]
    # A ring all-reduce of four moves 12 bytes an element each way and step, DiLoCo's all-gather 16 every ten steps.
    assert result["bytes_ratio"]["h10"] == pytest.approx(7.5, abs=0.1)
    assert result["bytes_ratio"]["int8"] > 25
    assert result["bytes_ratio"]["sparse"] > 7.5


def test_a_gap_is_that_of_the_worst_seed() -> None:
    rows = [
        {"seed": seed, "name": name, "loss": loss, "bytes": 60.0 if name == "dp" else 2.0}
        for seed, losses in ((1, (2.0, 2.1)), (2, (2.0, 2.02)), (3, (2.0,)))
        for name, loss in zip(("dp", "h10-int8"), losses, strict=False)
    ]
    found = summary(rows, QUICK)
    assert found["loss_gap"] == {"10-int8": 0.05}
    assert found["bytes_ratio"] == {"int8": 30.0}
