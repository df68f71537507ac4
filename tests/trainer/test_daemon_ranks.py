"""The whole trainer on two ranks: rank 0 with its world, the other one following it to the end."""

from pathlib import Path

import pytest

from tests.trainer.crew import on_ranks, outcomes
from tests.trainer.helpers import small_model
from tests.trainer.world import Killed, TrainersWorld, config_of, start
from trainer.config import MemoryConfig, ParallelConfig
from trainer.distributed import Ranks
from trainer.exits import EXIT_DONE, EXIT_LOST
from trainer.learner import NonZeroRank
from trainer.model.sharding import make_placement
from trainer.records import read_records


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


def run(ranks: Ranks, base: Path, home: Path, fuse: int | None = None) -> tuple[int, list[int], list[int]]:
    """Exit code, steps sent to the chain, and files trained, in order; the first rank dies when the fuse has burnt."""
    placement = make_placement(ParallelConfig(), MemoryConfig(), "cpu", ranks)
    if ranks.rank:
        ranks.shorten_wait(5.0)
        return NonZeroRank(config_of(base, home), placement).run(), [], []
    world = TrainersWorld(base, home)
    world.fuse = fuse
    made = start(world, placement)
    return made.run(), world.sent, [one["sequence"] for one in read_records(made.records.trained_path)]


def test_two_ranks_train_publish_and_end_together(base: Path, tmp_path: Path) -> None:
    first, second = on_ranks(2, run, base, tmp_path, stay=False)
    assert first == (EXIT_DONE, [0, 1, 2, 3], [0, 1, 2, 3, 4, 5])
    assert second[0] == EXIT_DONE


def test_the_others_end_when_rank_0_fails_and_all_resume_together(base: Path, tmp_path: Path) -> None:
    (failed, text), (_, other) = outcomes(2, run, base, tmp_path, 12)
    assert failed
    assert Killed.__name__ in text
    assert other[0] == EXIT_LOST
    first, _ = on_ranks(2, run, base, tmp_path, stay=False)
    assert first[0] == EXIT_DONE
    assert first[2] == [0, 1, 2, 3, 4, 5]
