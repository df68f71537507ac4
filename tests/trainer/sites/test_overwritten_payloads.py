"""Whoever may write to the bucket puts other bytes in the place of a payload or a mean: nobody is taken for a liar by
that, and no site ends."""

from pathlib import Path

import pytest

from protocol.errors import IntegrityError
from protocol.sites.log import Failed, LogEvent, PartRefused
from tests.trainer.sites.replaying import agreed, events
from tests.trainer.sites.test_lying_reducers import BAD, NAMES, lies, until_phase, world_of
from tests.trainer.sites.world import MemoryBucket, SitesWorld
from trainer.sites.catching_up import limits_at
from trainer.sites.events import OuterPhase
from trainer.sites.reduction import Parts, place_of


def overwrite(world: SitesWorld, sha256: str) -> None:
    bucket = world.bucket
    assert isinstance(bucket, MemoryBucket)
    bucket.objects[f"contributions/{sha256}"] = bytes(len(bucket.objects[f"contributions/{sha256}"]))


def told(world: SitesWorld) -> Parts:
    now, keeper = world.keeper.book.schedule, world.keeper
    place = place_of(world.run, keeper.state, now.attempt, now.contributors, now.reducers)
    return Parts.opened(keeper.exchange, place, limits_at(keeper.exchange, keeper.state), now.products, now.means)


def test_a_site_that_overwrites_its_payload_makes_no_liar_of_who_reduced_it(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    until_phase(world, OuterPhase.CHECK)
    now, keeper, step = world.keeper.book.schedule, world.keeper, world.keeper.state.step
    limits = limits_at(keeper.exchange, keeper.state)
    made = keeper.exchange.contribution(now.documents[NAMES[0]], NAMES[0], limits)
    for shard in told(world).place.part(BAD):
        overwrite(world, made.shards[shard].sha256)
    world.sites[0]._mouth.say("accuse", now, now.products[BAD])
    world.until(step + 1)
    assert {one.site for one in events(world.keeper.exchange) if isinstance(one, PartRefused)} <= {NAMES[0]}, (
        "its own payload is gone"
    )
    assert BAD not in keeper.book.schedule.marks


def test_a_mean_that_is_overwritten_begins_the_attempt_again(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    until_phase(world, OuterPhase.CHECK)
    step = world.keeper.state.step
    overwrite(world, told(world).means[BAD].shards[0].sha256)
    for site in world.sites.values():
        site._others.fetcher.forget()
        for _ in range(100):
            site.turn()
    world.keeper._parts._fetcher.forget()
    world.until(step + 1)
    assert sum(isinstance(one, Failed) for one in events(world.keeper.exchange)) == 1
    # these sites learn alike, so the mean of all is what that site published: its payload is gone with it
    assert all(one.marks == 1 for one in world.keeper.book.schedule.marks.values()), "nobody is a liar"
    agreed(world)


def test_a_keeper_that_makes_a_liar_of_who_saw_nothing_is_found_out(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    lies(world, "frames another")
    wrong: list[PartRefused] = []
    honest, keeper = world.keeper._written.add, world.keeper

    def tell(event: LogEvent) -> None:
        if isinstance(event, PartRefused):
            wrong.append(event)
            event = event.model_copy(update={"unseen": False})
        honest(event)

    keeper._written.add = tell  # type: ignore[method-assign]
    with pytest.raises(IntegrityError, match="that is right"):
        world.until(world.keeper.state.step + 1)
    assert [one.unseen for one in wrong] == [True]
