"""What was published of a run, made again: by whoever has the bucket and the first weights, and no state of others."""

from benchmarks.site_letters import LetterTable
from protocol.sites.log import Boundary, TimeUp
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
