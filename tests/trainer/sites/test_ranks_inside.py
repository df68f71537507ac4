"""Several ranks inside a site: the inner steps of one, whole weights to and from rank 0, the same bits again."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.errors import IntegrityError
from protocol.sites.layout import Tensors
from protocol.training import AdamWConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from tests.trainer.crew import on_ranks
from tests.trainer.helpers import small_model, some_groups
from tests.trainer.sites.world import SITES, TRUSTED, make_run
from trainer.config import MemoryConfig, ParallelConfig
from trainer.distributed import OneRank, Ranks
from trainer.learner import Learner
from trainer.model.sharding import Placement, make_placement
from trainer.sites.config import TextConfig
from trainer.sites.inner import Share
from trainer.sites.learners import ReinforcementLearners
from trainer.sites.text import TextWork, text_learners
from trainer.text.run_data import text_corpus
from trainer.text.stream import Cursor

RUN = make_run(1, "ranks", admission=TRUSTED)
SITE = str(SITES[0].address)
RATES = OptimizerConfig(method=AdamWConfig(learning_rate=1e-2), schedule=ScheduleConfig(warmup_updates=0))
TRAIN = TrainConfig(minibatches=2, optimizer=RATES)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TextConfig:
    path, dice = tmp_path_factory.mktemp("data") / "data.jsonl", random.Random(1)
    texts = (dice.choice("abcd") * dice.randint(10, 90) for _ in range(60))
    path.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    return TextConfig(files=(path,), dtype="float32", batch_tokens=300, sequence_tokens=48, heldout=5, optimizer=RATES)


def placed(ranks: Ranks, shard: int = 0) -> Placement:
    return make_placement(ParallelConfig(shard=shard), MemoryConfig(row_tokens=64), "cpu", ranks)


def steps(work: TextWork, first: int, count: int) -> list[dict[str, float]]:
    said = []
    for number in range(first, first + count):
        assert work.train(Share(bytes(32), SITE, (SITE,)), number) > 0
        said.append(work.figures())
    return said


def text_steps(ranks: Ranks, base: Path, config: TextConfig, home: Path, shard: int = 0) -> Any:
    """Three inner steps, kept, two more; back to what was kept, and the two again. Rank 0 tells."""
    learners = text_learners(config, base, placed(ranks, shard))
    if ranks.rank:
        return learners.follow()
    work = TextWork(config, base, text_corpus(config, home), RUN, learners)
    steps(work, 0, 3)
    work.save(home / "kept").finish()
    said, first = steps(work, 3, 2), work.weights()
    work.restore(home / "kept")
    assert work.cursor.place
    steps(work, 3, 2)
    second = work.weights()
    learners.end(7)
    assert all(np.array_equal(value, second[name]) for name, value in first.items())
    return said, dict(first)


def reinforcement_steps(ranks: Ranks, base: Path) -> Any:
    learner = Learner(base, TRAIN, 1.0, placement=placed(ranks))
    learners = ReinforcementLearners(learner)
    if ranks.rank:
        return learners.follow()
    learners.begin(some_groups(1, logprobs=True), 0, 0)
    tokens = []
    while (made := learners.update())[1] is None:
        tokens.append(made[0])
    weights = dict(learners.weights())
    learners.end(0)
    assert made[1] is not None
    return tokens, made[1].grad_norm, weights


def there_and_back(ranks: Ranks, base: Path, shard: int) -> Any:
    """Weights that were nowhere before reach all ranks and come back whole, to the bit."""
    learners = text_learners(TextConfig(files=(base,), dtype="float32"), base, placed(ranks, shard))
    if ranks.rank:
        return learners.follow()
    dice = np.random.default_rng(3)
    given = {name: dice.standard_normal(one.shape).astype(np.float32) for name, one in learners.weights().items()}
    learners.load(given)
    found = learners.weights()
    learners.end(0)
    assert given.keys() == found.keys()
    return all(np.array_equal(value, found[name]) for name, value in given.items())


def restored(ranks: Ranks, base: Path, config: TextConfig, kept: Path, home: Path) -> Any:
    learners = text_learners(config, base, placed(ranks))
    if ranks.rank:
        return learners.follow()
    work = TextWork(config, base, text_corpus(config, home), RUN, learners)
    work.restore(kept)
    place = work.cursor
    steps(work, 3, 2)
    found = dict(work.weights())
    with pytest.raises(IntegrityError):
        work.restore(home / "nothing")
    assert work.train(Share(bytes(32), SITE, (SITE,)), 5), "the others go on after an error that all share"
    learners.end(0)
    return place, found


def close(one: Tensors, other: Tensors) -> bool:
    return all(np.allclose(value, other[name], rtol=1e-4, atol=2e-5) for name, value in one.items())


def test_two_ranks_make_the_inner_steps_of_one(base: Path, config: TextConfig, tmp_path: Path) -> None:
    alone = text_steps(OneRank(), base, config, tmp_path / "alone")
    first, second = on_ranks(2, text_steps, base, config, tmp_path / "two")
    assert second == 7, "the others end with the code that rank 0 says"
    for here, there in zip(alone[0], first[0], strict=True):
        assert there == pytest.approx(here, rel=1e-4)
    before = text_learners(config, base, Placement()).weights()
    assert close(alone[1], first[1])
    assert not close(before, first[1]), "they moved"


def test_the_number_of_ranks_may_change_between_restarts(base: Path, config: TextConfig, tmp_path: Path) -> None:
    whole = text_steps(OneRank(), base, config, tmp_path / "one")
    first, _ = on_ranks(2, restored, base, config, tmp_path / "one" / "kept", tmp_path / "two")
    assert first[0] != Cursor()
    assert close(first[1], whole[1])
    on_ranks(2, text_steps, base, config, tmp_path / "three")
    place, found = restored(OneRank(), base, config, tmp_path / "three" / "kept", tmp_path / "four")
    assert place == first[0]
    assert close(found, whole[1])


def test_reinforcement_by_two_ranks(base: Path) -> None:
    tokens, norm, weights = reinforcement_steps(OneRank(), base)
    first, _ = on_ranks(2, reinforcement_steps, base)
    assert first[0] == tokens
    assert len(tokens) == 2
    assert first[1] == pytest.approx(norm, rel=1e-4)
    assert close(first[2], weights)


@pytest.mark.parametrize(("world", "shard"), [(2, 0), (2, 1), (3, 0), (4, 2)])
def test_whole_weights_reach_all_ranks_and_come_back(base: Path, world: int, shard: int) -> None:
    assert there_and_back(OneRank(), base, 0)
    assert on_ranks(world, there_and_back, base, shard)[0]
