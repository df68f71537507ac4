"""Who may write to the bucket takes a payload away after it was opened, and the keeper is killed before it settles."""

import json
from pathlib import Path

from tests.trainer.sites.replaying import held_at_the_end
from tests.trainer.sites.world import TRUSTED, MemoryBucket, SitesWorld, make_run
from trainer.sites.events import OuterPhase


def test_the_outer_step_begins_again(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    world = SitesWorld(bucket, make_run(3, admission=TRUSTED), tmp_path)
    for number in range(3):
        world.start(number)
    world.until(1)
    held_at_the_end(world)
    now = world.keeper.book.schedule
    assert now.phase == OuterPhase.SETTLE
    for document in now.contributors.values():
        for shard in json.loads(bucket.objects[f"contributions/{document}"])["contribution"]["shards"]:
            bucket.objects.pop(f"contributions/{shard['sha256']}")
    world.start_keeper()
    assert world.keeper.turn(), "it goes on instead of ending, now and at every start"
    after = world.keeper.book.schedule
    assert (after.step, after.attempt, after.phase) == (now.step, now.attempt + 1, OuterPhase.COLLECT)
