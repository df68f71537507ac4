"""A site that says something new whenever the keeper looks keeps nobody waiting for who is silent."""

import time
from itertools import count
from pathlib import Path

from protocol.sites.notes import SiteNote, seal_note
from tests.trainer.sites.world import SITES, TRUSTED, MemoryBucket, SitesWorld, make_run


def test_a_site_that_joins_and_leaves_without_end_does_not_stop_the_clock(tmp_path: Path) -> None:
    run = make_run(3, "restless", admission=TRUSTED, window_seconds=1, training_seconds=1)
    world = SitesWorld(MemoryBucket(), run, tmp_path)
    for number in range(3):
        world.start(number)
    while len(world.keeper.book.schedule.members) < 3:
        world.turn()
    keeper, restless, silent = world.keeper, SITES[2], str(SITES[1].address)
    step, numbers = keeper.state.step, count(keeper.book.notes.get(str(restless.address), 0))
    end = time.monotonic() + keeper.timeouts.collect + 3.0
    while time.monotonic() < end and keeper.state.step == step and silent in keeper.book.schedule.members:
        now, number = keeper._next.schedule, next(numbers)
        here = str(restless.address) in now.members | now.waiting
        note = SiteNote(
            run=run.digest, site=str(restless.address), number=number, what="leave" if here else "join",
            step=keeper.state.step, digest=None if here else keeper.state.digest.hex(),
        )  # fmt: skip
        keeper.exchange.post(note.site, number, seal_note(note, run, restless))
        keeper.turn(patience=1.0)
        world.sites[0].turn()
    assert silent not in keeper.book.schedule.members, "it was waited for without an end"
