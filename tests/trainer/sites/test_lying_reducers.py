"""A reducer that lies is shown to by whoever computes its shard again, and nobody can frame an honest one."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainer.sites.keeping_parts as keeping_module
import trainer.sites.site as site_module
from benchmarks.site_letters import LetterTable
from protocol.errors import IntegrityError
from protocol.sites.contribution import make_contribution, seal_contribution
from protocol.sites.log import MarksOfSite, PartRefused
from protocol.sites.outer import OuterState
from tests.trainer.sites.files_world import FilesWorld, run_of
from tests.trainer.sites.replaying import agreed, book_before, boundaries, events, just_told, time_is_up_for
from tests.trainer.sites.test_excluded_sites import go_on
from tests.trainer.sites.world import SITES, TRUSTED, MemoryBucket, SitesWorld, make_run
from trainer.sites.events import OuterPhase
from trainer.sites.recomputed import boundaries_after, boundary_at, make_again
from trainer.sites.reduction import Payloads, place_of
from trainer.sites.share_of_step import OwnContribution, make_own

NAMES = [str(one.address) for one in SITES]
BAD = NAMES[2]


class LyingPayloads(Payloads):
    """Reduces to something else."""

    what: str

    def mean(self, shard: int, shares: Any) -> Any:
        made = super().mean(shard, shares)
        return [np.float32(-3) * one + np.float32(0.01) for one in made] if self.what == "mean" else made

    def write_mean(self, reducer: str, shard: int, mean: Any) -> bytes:
        data = super().write_mean(reducer, shard, mean)
        return data[:-1] if self.what == "no mean" else data

    def products(self, shard: int) -> Any:
        made = super().products(shard)
        if self.what == "products":
            return [[2 * cell + 1 for cell in row] for row in made]
        if self.what == "frames another":
            return [[float("nan") if 0 in (r, c) else one for c, one in enumerate(row)] for r, row in enumerate(made)]
        return made


def lies(world: SitesWorld, what: str) -> None:
    """Site 2 lies in whatever it tells of its shards, from the next outer step on."""
    while world.keeper.book.schedule.phase != OuterPhase.COLLECT:
        world.turn()
    reducing: Any = world.sites[2]._others

    def instead(honest: Callable[..., str]) -> Callable[..., str]:
        def lying(place: Any, made: Payloads, now: Any) -> str:
            payloads = LyingPayloads(made.limits, made.state, made.contributions, made.read)
            object.__setattr__(payloads, "what", what)
            return honest(place, payloads, now)

        return lying

    reducing._tell_products = instead(reducing._tell_products)
    reducing._tell_means = instead(reducing._tell_means)


def world_of(home: Path, sites: int = 4, **settings: Any) -> SitesWorld:
    given = {"window_seconds": 1000, "training_seconds": 1000, "shards": sites, "audited": 0, "checks": 0.0} | settings
    run = make_run(sites, "liar", exchange="shards", admission=TRUSTED, inner_steps=2, **given)
    world = SitesWorld(MemoryBucket(), run, home)
    for number in range(sites):
        world.start(number)
    world.until(1)
    while len(boundaries(world.keeper.exchange)[-1].members) < sites:
        world.turn()
    world.until(world.keeper.state.step)
    return world


LIES = ["mean", "no mean", "products", "frames another"]


@pytest.mark.parametrize("who", ["a site", "the keeper"])
@pytest.mark.parametrize("what", LIES)
def test_a_lie_that_is_drawn_moves_nothing_and_costs_its_teller_the_next_steps(
    what: str, who: str, tmp_path: Path
) -> None:
    world = world_of(tmp_path, **({"checks": 1.0} if who == "a site" else {"audited": 64}))
    if who == "a site":
        for number in (0, 1, 3):  # that one of them draws the liar is a matter of chance
            world.sites[number]._others._dice = Drawing(BAD)  # type: ignore[union-attr]
    lies(world, what)
    step = world.keeper.state.step
    world.until(step + 1)
    refused = [one for one in events(world.keeper.exchange) if isinstance(one, PartRefused)]
    assert [one.site for one in refused] == [BAD]
    made = boundaries(world.keeper.exchange)[step + 1]
    assert (made.attempt, sorted(made.made_of)) == (1, sorted({*NAMES[:2], NAMES[3]}))
    # that it saw nothing that decodes may be true of that time: no worse than silence
    silent = what == "frames another"
    assert made.marks == {BAD: MarksOfSite(marks=1 if silent else 7, until=step + (1 if silent else 64), made=0)}
    assert set(made.members) == {*NAMES[:2], NAMES[3]} | ({BAD} if silent else set())
    agreed(world)


class Drawing(random.Random):
    """Dice that fall on one reducer."""

    def __init__(self, who: str) -> None:
        super().__init__(0)
        self._who = who

    def choice(self, seq: Any) -> Any:
        return self._who if self._who in seq else super().choice(seq)


@pytest.mark.parametrize("what", ["mean"])
def test_a_lie_that_nobody_draws_is_in_the_weights(what: str, tmp_path: Path) -> None:
    """And all have the same: what anybody who computes the shard again finds is another mean."""
    world = world_of(tmp_path)
    lies(world, what)
    world.until(world.keeper.state.step + 1)
    assert len({one.state.digest for one in world.sites.values()} | {world.keeper.state.digest}) == 1
    with pytest.raises(AssertionError):
        agreed(world)


def test_a_liar_is_drawn_as_often_as_the_run_says(tmp_path: Path) -> None:
    """Of four sites, each of which computes another's part again in a quarter of the steps: 1 − (1 − 1/12)³."""
    shown, times, dice = 0, 20_000, random.Random(1)
    for _ in range(times):
        draws = [dice.choice([0, 1, 2]) for _ in range(3) if dice.random() < 0.25]
        shown += 0 in draws
    assert shown / times == pytest.approx(1 - (1 - 0.25 / 3) ** 3, abs=0.01)


def until_phase(world: SitesWorld, phase: OuterPhase) -> None:
    while world.keeper.book.schedule.phase != phase:
        world.turn()
    for site in world.sites.values():
        while site.book.advance() is not None:
            pass


FRAMED: dict[str, Callable[[Any], str]] = {
    "its products": lambda now: str(now.products[BAD]),
    "its means": lambda now: str(now.means[BAD]),
    "its contribution": lambda now: str(now.documents[BAD]),
}


@pytest.mark.parametrize("what", FRAMED)
def test_a_keeper_that_refuses_what_is_right_is_found_out(what: str, tmp_path: Path) -> None:
    world = world_of(tmp_path)
    until_phase(world, OuterPhase.CHECK)
    now = world.keeper.book.schedule
    shard = next(iter(place_of(
        world.run, world.keeper.state, now.attempt, now.contributors, now.reducers).part(BAD)))  # fmt: skip
    world.keeper._tell(PartRefused(site=BAD, document=FRAMED[what](now), shard=shard, why="it is wrong"))
    for number in (0, 1, 2):
        with pytest.raises(IntegrityError, match="that is right"):
            go_on(world.sites[number])


@pytest.mark.parametrize("what", FRAMED)
def test_a_keeper_that_refuses_a_shard_that_there_is_none_of_is_found_out(what: str, tmp_path: Path) -> None:
    world = world_of(tmp_path)
    until_phase(world, OuterPhase.CHECK)
    now = world.keeper.book.schedule
    world.keeper._tell(PartRefused(site=BAD, document=FRAMED[what](now), shard=999, why="it is wrong"))
    for number in (0, 2):
        with pytest.raises(IntegrityError, match="shard 999"):
            go_on(world.sites[number])


def test_a_keeper_that_makes_up_a_part_is_found_out_by_its_site(tmp_path: Path) -> None:
    """The note that it names says something else."""
    world = world_of(tmp_path)
    until_phase(world, OuterPhase.CHECK)
    now, keeper = world.keeper.book.schedule, world.keeper
    shard = place_of(world.run, keeper.state, now.attempt, now.contributors, now.reducers).part(BAD)[0]
    keeper._tell(PartRefused(site=BAD, document=now.means[BAD], shard=shard, why="it is wrong"))
    for number in (0, 2):
        world.sites[number].book.said["means", BAD] -= 1
        with pytest.raises(IntegrityError, match="did not say in note"):
            go_on(world.sites[number])


def test_who_says_that_an_honest_reducer_lies_is_not_believed(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    until_phase(world, OuterPhase.CHECK)
    now, step = world.keeper.book.schedule, world.keeper.state.step
    assert not now.checked
    world.sites[2]._mouth.say("accuse", now, now.means[NAMES[0]])
    world.sites.pop(2)
    time_is_up_for(world, BAD)
    world.until(step + 1)
    assert not any(isinstance(one, PartRefused) for one in events(world.keeper.exchange))
    made = boundaries(world.keeper.exchange)[step + 1]
    assert (made.attempt, len(made.made_of)) == (0, 4)
    assert world.keeper.book.schedule.marks[BAD].marks == 1, "it has not said that it has the means"
    agreed(world)


def test_a_site_that_has_shown_a_lie_takes_no_step_that_is_made_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path, checks=1.0)
    world.sites[0]._others._dice = Drawing(BAD)  # type: ignore[union-attr]
    world.sites[1]._others._dice = Drawing(NAMES[0])  # type: ignore[union-attr]
    world.sites[3]._others._dice = Drawing(NAMES[0])  # type: ignore[union-attr]
    lies(world, "mean")
    monkeypatch.setattr(keeping_module.PartsKeeping, "_doubted", lambda *_: False)
    step = world.keeper.state.step
    time_is_up_for(world, NAMES[0])
    with pytest.raises(IntegrityError, match="which is shown to be wrong"):
        world.until(step + 1)


def test_a_liar_of_two_that_must_stay_reduces_no_more_of_the_step(tmp_path: Path) -> None:
    """Fewer than `minimum` are left without it, so that it comes back; the other reduces all."""
    admission = TRUSTED.model_copy(update={"minimum": 2})
    world = SitesWorld(
        MemoryBucket(),
        make_run(2, "two", exchange="shards", admission=admission, window_seconds=1000, training_seconds=1000,
                 audited=64),
        tmp_path,
    )  # fmt: skip
    for number in (0, 1):
        world.start(number)
    world.until(1)
    world.sites[2] = world.sites.pop(1)
    lies(world, "mean")
    step = world.keeper.state.step
    world.until(step + 1)
    made = boundaries(world.keeper.exchange)[step + 1]
    assert (made.attempt, set(made.made_of), set(made.means)) == (2, set(NAMES[:2]), {NAMES[0]})
    assert made.marks[NAMES[1]].marks == 7


class Undecodable:
    """From outer step 1 on the payload of the bad site is no payload."""

    def __init__(self, make: Callable[..., OwnContribution]) -> None:
        self._make = make

    def __call__(self, state: Any, inner: Any, limits: Any, account: Any, *rest: Any) -> OwnContribution:
        own = self._make(state, inner, limits, account, *rest)
        if account.address != BAD or state.step == 0:
            return own
        payload = (own.payload[0][:-1], *own.payload[1:])
        made = make_contribution(limits, BAD, 1, 1, payload)
        return OwnContribution(seal_contribution(made, account), payload, own.base, own.attempt, own.dealt, None)


@pytest.mark.parametrize("work", ["own", "given"])
def test_a_payload_that_does_not_decode_has_no_part_in_the_step(
    work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_module, "make_own", Undecodable(make_own))
    if work == "own":
        world = world_of(tmp_path, sites=3)
    else:
        world = FilesWorld(MemoryBucket(), reducing(run_of(3, 2)), tmp_path)
        world.begin(0, 1, 2)
        world.until(1)
    world.until(max(2, world.keeper.state.step))
    refused = [one for one in events(world.keeper.exchange) if isinstance(one, PartRefused)]
    assert refused
    assert {one.site for one in refused} == {BAD}
    assert all(BAD not in one.made_of for one in boundaries(world.keeper.exchange)[2:])
    agreed(world)


def reducing(run: Any) -> Any:
    return run.model_copy(update={"exchange": "shards"})


def test_files_that_are_given_are_used_once_each(tmp_path: Path) -> None:
    world = FilesWorld(MemoryBucket(), reducing(run_of(3, 2)), tmp_path)
    world.begin(0, 1, 2)
    world.until(2)
    world.start_keeper()
    world.start(1)
    world.until(4)
    for step in range(4):
        assert set(world.files_of(step).values()) == set(NAMES[:3])
    agreed(world)


def test_a_reducer_of_given_files_that_is_gone_has_them_dealt_anew(tmp_path: Path) -> None:
    world = FilesWorld(MemoryBucket(), reducing(run_of(3, 2)), tmp_path)
    world.begin(0, 1, 2)
    world.until(1)
    just_told(world, OuterPhase.MEANS)
    step = world.keeper.state.step
    world.sites.pop(2)
    world.given = 2
    time_is_up_for(world, BAD)
    world.until(step + 1)
    assert set(world.files_of(step).values()) == set(NAMES[:2])
    agreed(world)


def test_a_boundary_of_other_parts_than_were_told_is_refused(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    right = boundaries(world.keeper.exchange)[-1]
    assert right.before is not None
    updates: list[dict[str, Any]] = [{"means": right.products}, {"products": {}}]
    for update in updates:
        book = book_before(world.keeper.exchange, right)
        assert book.next(right).step == right.step
        with pytest.raises(IntegrityError, match="does not follow"):
            book.next(right.model_copy(update=update))


def test_whoever_makes_a_step_again_finds_a_lie_that_nobody_drew(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    first, exchange = OuterState.start(LetterTable().weights()), world.keeper.exchange
    before = world.keeper.state.step
    lies(world, "mean")
    world.until(before + 1)
    honest, lying = (boundary_at(exchange, boundaries_after(exchange, 0)[step])[1] for step in (before - 1, before))
    assert make_again(exchange, first, honest).record.state == honest.digest
    with pytest.raises(IntegrityError, match=f"what {BAD} published of shard"):
        make_again(exchange, first, lying)
