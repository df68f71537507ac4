"""The recipe learns: the demo's bar on three seeds, without chain or storage."""

from pathlib import Path

import pytest

from benchmarks.learning import demo_config, learn
from localnet.plan import pool_config


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 7, 42])
def test_held_out_reward_rises_within_thirty_steps(seed: int, tmp_path: Path) -> None:
    result = learn(seed, demo_config(30), tmp_path, lambda line: None)
    assert isinstance(result["reward_first"], float)
    assert result["reward_first"] <= 0.45
    assert isinstance(result["reward_last"], float)
    assert result["reward_last"] >= 0.85


def test_it_trains_as_the_demo_does() -> None:
    assert demo_config(5).train == pool_config(7, 5).train
    assert demo_config().train.steps == 30
