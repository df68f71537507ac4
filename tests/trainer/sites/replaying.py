"""What was published of a run, made again: by whoever has the bucket and the first weights, and no state of others."""

from collections.abc import Iterator

import pytest

from benchmarks.site_letters import LetterTable
from protocol.sites.log import Boundary, LogEvent, TimeUp
from protocol.sites.outer import OuterState
from tests.trainer.sites.world import SitesWorld
from trainer.sites.catching_up import limits_at, step_to
from trainer.sites.events import OuterPhase
from trainer.sites.exchange import SiteExchange
from trainer.sites.logbook import Logbook, dealing_before
from trainer.sites.reduction import Parts, Payloads, place_of
from trainer.sites.replica import judge


def boundaries(exchange: SiteExchange) -> list[Boundary]:
    book = Logbook.newest(exchange)
    assert book is not None
    while book.advance() is not None:  # past boundaries that strangers' places hide
        pass
    return [boundary for _, boundary in book.chapters_back()][::-1]


def audited(exchange: SiteExchange) -> list[OuterState]:
    """The states of a run, with every shard of every step reduced again from the contributions."""
    state = OuterState.start(LetterTable().weights())
    states, run = [state], exchange.run
    for boundary in boundaries(exchange)[1:]:
        limits = limits_at(exchange, state, dealing_before(exchange, boundary))
        made = {site: exchange.contribution(one, site, limits) for site, one in boundary.made_of.items()}
        payloads = Payloads(limits, state, made, exchange.shard)
        place = place_of(run, state, boundary.attempt, boundary.made_of, boundary.means.keys())
        parts = Parts.opened(exchange, place, limits, boundary.products, boundary.means)
        judged = judge(state, {site: exchange.gradient(one, limits, state) for site, one in made.items()}, run.settings)
        assert parts.judged(run) == judged, "lengths and cosines are sums over shards"
        for reducer in boundary.means:
            assert parts.wrong_products(payloads, reducer) is None
            assert parts.wrong_mean(payloads, reducer, judged.shares) is None
        state, _ = step_to(exchange, state, boundary)
        states.append(state)
    return states


def agreed(world: SitesWorld) -> list[OuterState]:
    states = audited(SiteExchange(world.keeper.exchange._bucket, world.run))
    assert {site.state.digest for site in world.sites.values()} == {states[-1].digest} == {world.keeper.state.digest}
    return states


def replayed(exchange: SiteExchange) -> list[OuterState]:
    """The states of a run."""
    states = [OuterState.start(LetterTable().weights())]
    for boundary in boundaries(exchange)[1:]:
        states.append(step_to(exchange, states[-1], boundary)[0])
    return states


def time_is_up_for(world: SitesWorld, site: str) -> None:
    """Once nobody else is waited for."""
    for _ in range(1000):
        now = world.keeper.book.schedule
        missing = now.documents.keys() - now.opened if now.phase == OuterPhase.OPEN else now.untold
        if set(missing) == {site}:
            break
        world.turn()
    world.keeper._tell(TimeUp.model_validate({"attempt": now.attempt, "phase": now.phase.value}))


def events(exchange: SiteExchange) -> Iterator[LogEvent]:
    """All that a log tells of."""
    book = Logbook.at(exchange, 0)
    while (entry := book.advance()) is not None:
        yield from entry.events


def book_before(exchange: SiteExchange, boundary: Boundary) -> Logbook:
    """The log as it stands before one of its boundaries, in the middle of an entry."""
    assert boundary.before is not None
    book = Logbook.at(exchange, boundary.before)
    while (found := book.upcoming()) is not None and found[0].boundary is None:
        book.take(*found)
    assert found is not None
    for event in found[0].events[:-1]:
        book.apply(event, found[0].time)
    return book


def just_told(world: SitesWorld, phase: OuterPhase) -> None:
    """The log stands in `phase`, and no site has read that yet."""
    while world.keeper.book.schedule.phase != phase:
        for site in world.sites.values():
            site.turn()
        world.keeper_turn()


def held_at_the_end(world: SitesWorld) -> None:
    """All payloads of the step under way are in the log, and the keeper has not settled it."""
    keeper = world.keeper
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper, "_settle", lambda: None)
        for _ in range(10_000):
            if keeper.book.schedule.phase == OuterPhase.SETTLE:
                return
            world.turn()
    raise AssertionError(keeper.waiting_for())
