"""Who is no site of the run's document has no part in it, whatever the keeper signs: with keys of its own it would
outvote the others, and no jury would find anything wrong with the steps."""

import time
from pathlib import Path

import pytest

from protocol.errors import IntegrityError
from protocol.sites.log import FIRST, Boundary, ContributionRefused, LogEntry, LogEvent, Noted, seal_entry
from tests.trainer.sites.replaying import boundaries, replayed
from tests.trainer.sites.world import KEEPER, SITES, TRUSTED, MemoryBucket, SitesWorld, make_run
from trainer.sites.catching_up import step_to
from trainer.sites.evidence import _check_refusal
from trainer.sites.exchange import SiteExchange
from trainer.sites.logbook import Logbook

OUTSIDER = str(SITES[3].address)


def world_of(home: Path) -> SitesWorld:
    world = SitesWorld(MemoryBucket(), make_run(2, "outsiders", admission=TRUSTED, training_seconds=1000), home)
    for number in (0, 1):
        world.start(number)
    world.until(1)
    return world


def write(exchange: SiteExchange, number: int, previous: str, chapter: int, event: LogEvent) -> None:
    """As a keeper that heeds no rule."""
    entry = LogEntry(
        run=exchange.run.digest, number=number, previous=previous, chapter=chapter, time=time.time(), events=[event]
    )
    assert exchange.append(number, seal_entry(entry, exchange.run, KEEPER))


def test_sites_stop_where_the_keeper_takes_one_in(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    site = world.sites[0]
    while site.book.number < world.keeper.book.number:
        site.turn()
    book = world.keeper.book
    joined = Noted(site=OUTSIDER, note=0, what="join", digest=book.schedule.digest.hex())
    write(site.exchange, book.number, book.tip, book.chapter, joined)
    with pytest.raises(IntegrityError, match=f"{OUTSIDER} is no site of outsiders"):
        site.turn()


@pytest.mark.parametrize("where", ["members", "waiting"])
def test_nobody_begins_at_a_boundary_that_names_one(where: str) -> None:
    exchange = SiteExchange(MemoryBucket(), make_run(2, "outsiders", admission=TRUSTED))
    write(exchange, 0, FIRST, 0, Boundary.model_validate({"step": 0, "digest": "ab" * 32, where: [OUTSIDER]}))
    with pytest.raises(IntegrityError, match="is no site of outsiders"):
        Logbook.newest(exchange)


def test_a_step_that_one_contributed_to_does_not_follow(tmp_path: Path) -> None:
    """As a jury makes it again, which may read no more of the log than its boundaries."""
    world = world_of(tmp_path)
    world.until(3)
    exchange = world.keeper.exchange
    states, made = replayed(exchange), boundaries(exchange)
    step = next(one.step for one in made if len(one.made_of) == 2)
    alone = exchange.run.model_copy(update={"sites": exchange.run.sites[:1]})
    assert step_to(exchange, states[step - 1], made[step])[0].digest == states[step].digest
    with pytest.raises(IntegrityError, match="is no site of outsiders"):
        step_to(SiteExchange(world.bucket, alone), states[step - 1], made[step])


def test_a_keepers_words_are_no_terminal_commands(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(tmp_path)
    refused = ContributionRefused(
        site=str(SITES[1].address), note=0, document="ab" * 32, why="bad\x1b[2J\nanother line"
    )
    _check_refusal(world.sites[0].book, refused, world.sites[0].state)
    (line,) = (one.getMessage() for one in caplog.records if "is refused: " in one.getMessage())
    assert line.endswith("bad?[2J?another line")
