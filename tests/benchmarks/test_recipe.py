"""The recipe learns: the demo's bar on three seeds. Its settings are what a pool may be created with."""

from pathlib import Path

import pytest

from benchmarks import recipe
from benchmarks.recipe import OfflineWork, Setting, batch_of, demo_config, learn, settings
from localnet.plan import pool_config
from protocol.config import PoolConfig, TrainConfig
from trainer.data.batch import Group, TrainRollout


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 7, 42])
def test_held_out_reward_rises_within_thirty_steps(seed: int, tmp_path: Path) -> None:
    result = learn(seed, Setting("demo", demo_config(30)), tmp_path, lambda line: None)
    assert result["first"] <= 0.45
    assert result["last"] >= 0.85


def test_it_trains_as_the_demo_does() -> None:
    assert demo_config(5).train == pool_config(7, 5).train
    assert demo_config().train.steps == 30


def test_every_setting_is_a_pool_that_can_be_created() -> None:
    everything = settings(quick=False)
    assert len({setting.name for setting in everything}) == len(everything)
    for setting in everything:
        assert PoolConfig.parse(setting.config.canonical(), setting.name) == setting.config


@pytest.mark.parametrize(("filter", "files"), [(None, 4), ({"groups": 40, "max_files": 9}, 5)])
def test_a_step_generates_files_until_the_filter_has_enough_signal(
    filter: dict[str, int] | None, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat: Group = tuple(TrainRollout((1,), (2,), 1.0) for _ in range(2))
    mixed: Group = (flat[0], TrainRollout((1,), (2,), 0.0))
    train = TrainConfig.model_validate({"filter": filter})
    monkeypatch.setattr(recipe, "groups_of", lambda rows: rows)
    monkeypatch.setattr(OfflineWork, "__init__", lambda self, config: setattr(self, "config", config))
    monkeypatch.setattr(OfflineWork, "rows", lambda *_: [flat, mixed] * 8)
    work = OfflineWork(demo_config().model_copy(update={"train": train}))
    assert batch_of(work, 0, 0) == ([flat, mixed] * 8 * files, files)
    solved = [flat] * 16
    monkeypatch.setattr(OfflineWork, "rows", lambda *_: solved)
    assert batch_of(work, 0, 0) == (solved * train.max_files, train.max_files)
