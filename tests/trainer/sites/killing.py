"""Sites and keepers that are killed at any use of bucket or disk, and started again."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.site_letters import LetterTable
from tests.trainer.sites.world import MemoryBucket, SitesWorld
from trainer.sites.inner import Saving


class SiteKilled(BaseException):
    """As a kill: nothing of the process goes on."""


class Fuse:
    """A bucket, and a disk, of a process that is killed before or after its `left`-th use of them (-1: never)."""

    def __init__(self, bucket: MemoryBucket) -> None:
        self._bucket = bucket
        self.arm(-1)

    def arm(self, left: int) -> None:
        self._left, self.dead = left, False

    def burn(self) -> None:
        self.dead = self.dead or self._left == 0
        self._left -= self._left > 0
        if self.dead:
            raise SiteKilled

    def put(self, key: str, data: bytes) -> bool:
        return bool(self._call(self._bucket.put, key, data))

    def put_first(self, place: str, data: bytes) -> bool:
        return bool(self._call(self._bucket.put_first, place, data))

    def get(self, key: str, limit: int) -> bytes:
        return bytes(self._call(self._bucket.get, key, limit))

    def size(self, key: str) -> int | None:
        return self._bucket.size(key)

    def look(self, place: str, limit: int) -> bytes | None:
        if self.dead:
            raise SiteKilled
        return self._bucket.look(place, limit)

    def _call(self, of: Callable[..., Any], *given: Any) -> Any:
        self.burn()
        answer = of(*given)
        self.burn()
        return answer


class BurningTable(LetterTable):
    """SiteKilled before or after it has written itself down, too."""

    fuse: Fuse

    def save(self, folder: Path) -> Saving:
        self.fuse.burn()
        saving = super().save(folder)
        self.fuse.burn()
        return saving


def kill_site_anywhere(world: SitesWorld, monkeypatch: pytest.MonkeyPatch, places: int, turns: int) -> int:
    """Site 0 is killed at its first use of bucket or disk, then at the second after that, and so on round the step, of
    which there are about so many, each time within so many `turns`; how often. Then it and site 1 make one more."""
    assert isinstance(world.bucket, MemoryBucket)
    fuse, dice, kills = Fuse(world.bucket), random.Random(3), 0
    world.start(1)
    BurningTable.fuse = fuse
    monkeypatch.setattr("tests.trainer.sites.world.LetterTable", BurningTable)
    for point in [*range(places), *(dice.randrange(places) for _ in range(8))]:
        fuse.arm(point)
        try:
            site = world.start(0, fuse)
            for _ in range(turns):
                site.turn()
                world.keeper.turn()
                world.sites[1].turn()
        except SiteKilled:
            kills += 1
        fuse.arm(-1)
        world.sites.pop(0, None)
    world.start(0)
    world.until(world.keeper.state.step + 1)
    return kills


def kill_keeper_anywhere(world: SitesWorld, places: int, turns: int) -> int:
    """The same of the keeper, beside sites 0 and 1."""
    assert isinstance(world.bucket, MemoryBucket)
    fuse, kills = Fuse(world.bucket), 0
    for number in range(2):
        world.start(number)
    world.until(1)
    world.bucket = fuse
    for point in range(places):
        fuse.arm(point)
        try:
            world.start_keeper()
            for _ in range(turns):
                world.turn()
        except SiteKilled:
            kills += 1
    fuse.arm(-1)
    world.start_keeper()
    world.until(world.keeper.state.step + 1)
    return kills
