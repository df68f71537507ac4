"""The recipe's settings are what a pool may be created with; runs that are kept are not repeated."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import learning, recipe
from benchmarks.learning import OfflineWork, batch_of, demo_config
from benchmarks.recipe_settings import SEEDS, Setting, settings
from protocol.config import PoolConfig
from protocol.training import GrpoConfig, TrainConfig
from trainer.batch import Group, TrainRollout


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The runs that were really made, in order."""
    runs: list[tuple[str, int]] = []

    def one_run(setting: Setting, seed: int, progress: Callable[[str], None]) -> dict[str, Any]:
        runs.append((setting.name, seed))
        if len(runs) == 4:
            raise KeyboardInterrupt
        return {"setting": setting.name, "seed": seed, "config": setting.config.digest.hex(), "first": 0, "last": 1}

    monkeypatch.setattr(recipe, "one_run", one_run)
    monkeypatch.setattr(recipe, "KEPT", tmp_path / "recipe.json")
    return runs


def test_every_setting_is_a_pool_that_can_be_created() -> None:
    everything = settings(quick=False)
    assert len({setting.name for setting in everything}) == len(everything)
    for setting in everything:
        assert PoolConfig.parse(setting.config.canonical(), setting.name) == setting.config


def test_the_compared_clips_differ_in_nothing_else() -> None:
    by_name = {setting.name: setting.config.train for setting in settings(quick=False)}
    two, one = by_name["clip two-sided"], by_name["clip one-sided"]
    algorithm = one.algorithm.model_copy(update={"loss": GrpoConfig()})
    assert one != two
    assert one.model_copy(update={"algorithm": algorithm}) == two


def test_an_interrupted_run_goes_on_where_it_was(made: list[tuple[str, int]]) -> None:
    with pytest.raises(KeyboardInterrupt):
        recipe.run(False, print, only="asynchrony")
    assert made == [(f"asynchrony {level}", SEEDS[0]) for level in (0, 2, 8, 1)]
    whole = recipe.run(False, print, only="asynchrony")["runs"]
    assert len(made) == 4 + 12
    assert sorted((run["setting"], run["seed"]) for run in whole) == sorted(
        (f"asynchrony {level}", seed) for level in (0, 1, 2, 4, 8) for seed in SEEDS
    )


def test_a_run_of_another_configuration_is_made_again(made: list[tuple[str, int]]) -> None:
    stale = {"setting": "budgets", "seed": 1, "config": "00", "first": 0, "last": 0}
    recipe.KEPT.write_text(json.dumps({"runs": [stale]}))
    runs = recipe.run(False, print, only="budgets")["runs"]
    assert made == [("budgets", seed) for seed in SEEDS]
    assert stale not in runs


@pytest.mark.parametrize(("filter", "files"), [(None, 4), ({"groups": 40, "max_files": 9}, 5)])
def test_a_step_generates_files_until_the_filter_has_enough_signal(
    filter: dict[str, int] | None, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat: Group = tuple(TrainRollout((1,), (2,), 1.0) for _ in range(2))
    mixed: Group = (flat[0], TrainRollout((1,), (2,), 0.0))
    train = TrainConfig.model_validate({"filter": filter})
    monkeypatch.setattr(learning, "groups_of", lambda rows: rows)
    monkeypatch.setattr(OfflineWork, "__init__", lambda self, config: setattr(self, "config", config))
    monkeypatch.setattr(OfflineWork, "rows", lambda *_: [flat, mixed] * 8)
    work = OfflineWork(demo_config().model_copy(update={"train": train}))
    assert batch_of(work, 0, 0) == ([flat, mixed] * 8 * files, files)
    solved = [flat] * 16
    monkeypatch.setattr(OfflineWork, "rows", lambda *_: solved)
    assert batch_of(work, 0, 0) == (solved * train.max_files, train.max_files)
