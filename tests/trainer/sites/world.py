"""Runs of several sites in one process over a bucket: keeper, sites, and what they may do wrong."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.site_letters import LetterTable
from protocol.accounts import Account, LocalAccount
from protocol.errors import IntegrityError
from protocol.sites.config import AdmissionConfig, SitesConfig
from protocol.sites.outer import OuterState
from protocol.sites.run import SitesRun
from storage.keys import MissingObjectError, check_content, check_place, parse_key
from trainer.sites.exchange import SiteBucket, SiteExchange
from trainer.sites.inner import InnerWork
from trainer.sites.keeper import SitesKeeper
from trainer.sites.site import Site

KEEPER: LocalAccount = Account.from_key(b"\x77" * 32)
SITES: list[LocalAccount] = sorted(
    (Account.from_key(bytes([number + 1]) * 32) for number in range(6)), key=lambda one: str(one.address)
)
TRUSTED = AdmissionConfig(minimum=1, cosine=None)


def make_run(sites: int, name: str = "test", **settings: Any) -> SitesRun:
    given = {"inner_steps": 4, "shards": 2, "window_seconds": 2, "training_seconds": 2} | settings
    addresses = tuple(str(one.address) for one in SITES[:sites])
    run = {one: given.pop(one) for one in ("exchange", "checks", "audited") if one in given}
    return SitesRun(name=name, keeper=KEEPER.address, sites=addresses, settings=SitesConfig(**given), **run)


class MemoryBucket:
    """What sites use of a bucket (tests/storage/test_bucket.py holds a real one to the same), for tests of thousands of
    uses."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, key: str, data: bytes) -> bool:
        check_content(key, data)
        return self._put(key, data)

    def put_first(self, place: str, data: bytes) -> bool:
        return self._put(check_place(place), data)

    def get(self, key: str, limit: int) -> bytes:
        parse_key(key)
        data = self.look_up(key, limit)
        if data is None:
            raise MissingObjectError(f"no object {key}")
        check_content(key, data)
        return data

    def look(self, place: str, limit: int) -> bytes | None:
        return self.look_up(check_place(place), limit)

    def size(self, key: str) -> int | None:
        parse_key(key)
        data = self.objects.get(key)
        return None if data is None else len(data)

    def look_up(self, key: str, limit: int) -> bytes | None:
        data = self.objects.get(key)
        if data is not None and len(data) > limit:
            raise IntegrityError(f"{key} has {len(data)} bytes, at most {limit} are expected")
        return data

    def _put(self, key: str, data: bytes) -> bool:
        return self.objects.setdefault(key, data) is data


@dataclass
class SitesWorld:
    """`home`: a folder with one for each process. `work`: makes a site's inner work."""

    bucket: SiteBucket
    run: SitesRun
    home: Path
    work: Callable[[], InnerWork] = LetterTable
    keeper: SitesKeeper = field(init=False)
    sites: dict[int, Site] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start_keeper()

    def start_keeper(self) -> None:
        """Also after a kill."""
        if hasattr(self, "keeper"):
            with suppress(BaseException):  # threads of a process that is killed do not go on beside the next one
                self.keeper.finish()
        first = OuterState.start(LetterTable().weights())
        self.keeper = SitesKeeper(SiteExchange(self.bucket, self.run), KEEPER, first, self.home / "keeper")
        self.keeper.start()

    def start(self, number: int, bucket: SiteBucket | None = None) -> Site:
        """Site `number` as its disk says, also after a kill."""
        exchange = SiteExchange(bucket or self.bucket, self.run)
        site = Site(exchange, SITES[number], self.work(), self.home / f"site-{number}")
        site.start()
        self.sites[number] = site
        return site

    def keeper_turn(self) -> None:
        self.keeper.turn()

    def turn(self) -> None:
        self.keeper_turn()
        for site in self.sites.values():
            site.turn()

    def until(self, step: int, seconds: float = 60.0) -> None:
        """Until all sites have made so many outer steps."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if all(site.state.step >= step for site in self.sites.values()) and self.sites:
                return
            self.turn()
        raise AssertionError({number: (site.state.step, site.turn()) for number, site in self.sites.items()})
