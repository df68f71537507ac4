"""A reducer that tells something from which no outer step follows does not stop the run: it is found, and left out,
also where the keeper audits nothing and no site checks."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tests.trainer.sites.test_lying_reducers as lying_module
from protocol.sites.config import AdmissionConfig
from protocol.sites.log import Failed, PartRefused
from tests.trainer.sites.replaying import agreed, boundaries, events
from tests.trainer.sites.test_lying_reducers import BAD, NAMES, LyingPayloads, lies
from tests.trainer.sites.world import MemoryBucket, SitesWorld, make_run
from trainer.sites.events import OuterPhase
from trainer.sites.exclusion import SiteMarks


class StoppingPayloads(LyingPayloads):
    """`too few`: products by which all contributions point against one another; `too much`: a mean that no weight
    outlives."""

    def mean(self, shard: int, shares: Any) -> Any:
        made = super().mean(shard, shares)
        return [np.full_like(one, 3e38) for one in made] if self.what == "too much" else made

    def products(self, shard: int) -> Any:
        made = super().products(shard)
        if self.what == "too few":
            return [[one if r == c else -1e30 for c, one in enumerate(row)] for r, row in enumerate(made)]
        return made


@pytest.mark.parametrize("what", ["too few", "too much"])
def test_it_is_left_out_and_the_step_is_made(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lying_module, "LyingPayloads", StoppingPayloads)
    run = make_run(
        4, "stopping", exchange="shards", shards=4, audited=0, checks=0.0, inner_steps=2, mode="float32",
        window_seconds=1000, training_seconds=1000,
    )  # fmt: skip
    world = SitesWorld(MemoryBucket(), run, tmp_path)
    for number in range(4):
        world.start(number)
    world.until(1)
    while len(boundaries(world.keeper.exchange)[-1].members) < 4:
        world.turn()
    world.until(world.keeper.state.step)
    lies(world, what)
    step = world.keeper.state.step
    world.until(step + 1, seconds=20)
    assert [one.site for one in events(world.keeper.exchange) if isinstance(one, PartRefused)] == [BAD]
    assert not any(isinstance(one, Failed) for one in events(world.keeper.exchange))
    assert sorted(boundaries(world.keeper.exchange)[step + 1].made_of) == sorted({*NAMES[:2], NAMES[3]})
    assert world.keeper.book.schedule.marks == {BAD: SiteMarks(7, step + 64)}
    agreed(world)


def test_where_honest_contributions_are_too_few_nobody_is_blamed(tmp_path: Path) -> None:
    """It begins again once time is up, with a mark for nobody."""
    admission = AdmissionConfig(cosine=0.999999)
    run = make_run(3, "apart", exchange="shards", audited=0, checks=0.0, admission=admission, window_seconds=1000,
                   training_seconds=1000)  # fmt: skip
    world = SitesWorld(MemoryBucket(), run, tmp_path)
    for number in range(3):
        world.start(number)
    keeper = world.keeper
    end = time.monotonic() + 30
    while keeper._parts.outcome is None and time.monotonic() < end:
        world.turn()
    assert keeper._parts.outcome is not None
    assert not keeper._parts.outcome.shares
    assert keeper.book.schedule.phase == OuterPhase.MEANS
    keeper._next.since = keeper._started = 0
    keeper.turn()
    now = keeper.book.schedule
    assert (now.step, now.barred, len(now.members)) == (0, frozenset(), 3)
    assert [one.kind for one in events(world.keeper.exchange)].count("failed") == 1
    assert not any(isinstance(one, PartRefused) for one in events(world.keeper.exchange))
