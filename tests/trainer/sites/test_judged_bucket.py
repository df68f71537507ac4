"""Whoever may write to a run's bucket takes away, or overwrites, what a jury reads: never the keeper's fault."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.site_letters import LetterTable
from protocol.sites.outer import OuterState
from storage.keys import MissingObjectError
from tests.trainer.sites.files_world import FilesWorld, run_of
from tests.trainer.sites.test_lying_reducers import lies, reducing, world_of
from tests.trainer.sites.world import MemoryBucket, SitesWorld
from trainer.sites.exchange import SiteExchange
from trainer.sites.recomputed import StepClaim, boundaries_after, boundary_at, faults_of, make_again

FIRST = OuterState.start(LetterTable().weights())
Objects = dict[str, bytes]


def given(home: Path, reduced: bool) -> SitesWorld:
    run = run_of(3, 2)
    world = FilesWorld(MemoryBucket(), reducing(run) if reduced else run, home)
    world.begin(0, 1, 2)
    world.until(2)
    return world


WORLDS: dict[str, Callable[[Path], SitesWorld]] = {
    "shards": lambda home: world_of(home, sites=3),
    "files": lambda home: given(home, False),
    "files in shards": lambda home: given(home, True),
}
HARMS: dict[str, Callable[[Objects, str], object]] = {
    "gone": lambda objects, key: objects.pop(key),
    "overwritten": lambda objects, key: objects.update({key: bytes(len(objects[key]))}),
    "made longer": lambda objects, key: objects.update({key: bytes(1 << 20)}),
    "another's": lambda objects, key: objects.update({key: objects[next(iter(objects))]}),
}


def claim_of(exchange: SiteExchange, step: int) -> StepClaim:
    entry, boundary = boundary_at(exchange, boundaries_after(exchange, 0)[step])
    made = make_again(exchange, FIRST, boundary)
    return StepClaim(made.base, made.record, entry.number, bytes.fromhex(entry.previous), entry.body)


@pytest.mark.parametrize("name", WORLDS)
def test_what_somebody_else_did_to_the_bucket_is_no_fault(name: str, tmp_path: Path) -> None:
    world = WORLDS[name](tmp_path)
    bucket = world.bucket
    assert isinstance(bucket, MemoryBucket)
    exchange = SiteExchange(bucket, world.run)
    claim = claim_of(exchange, 0)
    assert faults_of(claim, exchange, FIRST) == []
    whole, missed = dict(bucket.objects), 0
    for key in whole:
        for harm in HARMS.values():
            bucket.objects = dict(whole)
            harm(bucket.objects, key)
            try:
                assert faults_of(claim, exchange, FIRST) == [], key
            except MissingObjectError:
                missed += 1
    assert missed >= 4 * len(world.sites), "of each contribution at least"


def test_a_lie_in_what_is_published_is_a_fault(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    exchange, step = world.keeper.exchange, world.keeper.state.step
    honest = claim_of(exchange, step - 1)
    lies(world, "mean")
    world.until(step + 1)
    entry, boundary = boundary_at(exchange, boundaries_after(exchange, 0)[step])
    record = replace(honest.record, step=step, state=boundary.digest)
    claim = StepClaim(honest.record.state, record, entry.number, bytes.fromhex(entry.previous), entry.body)
    (fault,) = faults_of(claim, exchange, FIRST)
    assert "is not what the contributions give" in fault
