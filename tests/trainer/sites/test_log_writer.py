"""A keeper never signs two entries for one place of its log, whatever becomes of its requests and processes: on chain
that would cost it half of its stake."""

import random
from collections import defaultdict
from pathlib import Path

import pytest

from protocol.encoding import sha256_hex
from protocol.errors import UnreachableError
from tests.trainer.sites.world import MemoryBucket, SitesWorld, make_run


class KeeperKilled(BaseException):
    """As a kill."""


class LossyBucket(MemoryBucket):
    """Of entries of the log every few are lost before or after they arrive, with an error or with the process; a
    stranger takes some of their places. `signed`: what anybody could have seen, by place."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self.signed: dict[str, set[str]] = defaultdict(set)
        self.calm = False

    def put_first(self, place: str, data: bytes) -> bool:
        if "/log/" not in place:
            return super().put_first(place, data)
        self.signed[place].add(sha256_hex(data))
        fate = 1.0 if self.calm else self._random.random()
        if fate < 0.1 and not place.endswith("0000000000"):
            self.objects.setdefault(place, b"a stranger's")
        if 0.1 <= fate < 0.25:
            super().put_first(place, data)
        if 0.05 <= fate < 0.35:
            raise UnreachableError("the answer did not come") if fate < 0.2 else KeeperKilled
        return super().put_first(place, data)


@pytest.mark.parametrize("seed", range(6))
def test_one_entry_is_signed_for_each_place(seed: int, tmp_path: Path) -> None:
    bucket = LossyBucket(seed)
    bucket.calm = True
    world = SitesWorld(bucket, make_run(3), tmp_path)
    for number in range(3):
        world.start(number)
    bucket.calm = False
    kills = losses = 0
    while world.keeper.state.step < 12:
        try:
            world.keeper.turn()
        except UnreachableError:
            losses += 1
        except KeeperKilled:
            kills += 1
            started = False
            while not started:
                try:
                    world.start_keeper()
                    started = True
                except (UnreachableError, KeeperKilled):
                    pass
        for site in world.sites.values():
            site.turn()
    assert kills
    assert losses
    assert all(len(found) == 1 for found in bucket.signed.values()), {
        place[-4:]: len(found) for place, found in bucket.signed.items()
    }


def test_the_first_entry_too(tmp_path: Path) -> None:
    for seed in range(20):
        bucket = LossyBucket(seed)
        while True:
            try:
                SitesWorld(bucket, make_run(3), tmp_path / str(seed))
                break
            except (UnreachableError, KeeperKilled):
                pass
        assert all(len(found) == 1 for found in bucket.signed.values())
