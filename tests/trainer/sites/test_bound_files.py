"""Each file that is given to sites is trained on by the one that it is dealt to, by the log and by signed words: who
names others is refused."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import protocol.sites.contribution as contribution_module
import trainer.sites.site as site_module
from benchmarks.site_letters import LetterTable
from protocol.errors import IntegrityError
from protocol.sites.contribution import Contribution, SignedContribution
from protocol.sites.forms import MalformedContribution
from protocol.sites.log import Boundary, ContributionRefused, LogEvent
from protocol.sites.outer import OuterState
from tests.protocol.sites.samples import sealed_as_it_is
from tests.trainer.sites.files_world import BAD, NAMES, FilesWorld, run_of
from tests.trainer.sites.world import MemoryBucket
from trainer.sites.catching_up import caught_up, limits_at, step_to
from trainer.sites.logbook import Logbook
from trainer.sites.share_of_step import OwnContribution, make_own


@pytest.fixture
def world(tmp_path: Path) -> FilesWorld:
    return FilesWorld(MemoryBucket(), run_of(3), tmp_path)


Chosen = Callable[[Sequence[str], Sequence[str]], Sequence[str]]
ATTACKS: dict[str, tuple[Chosen, str]] = {
    "another's": (lambda mine, others: others[: len(mine)], "which is not dealt to"),
    "one more": (lambda mine, others: sorted((*mine, others[0])), "which is not dealt to"),
    "one that nobody was given": (lambda mine, _: sorted((*mine[1:], "ee" * 32)), "which is not dealt to"),
    "none": (lambda *_: (), "does not name file"),
    "one less": (lambda mine, _: mine[1:], "does not name file"),
    "one twice": (lambda mine, _: (mine[0], *mine), "twice"),
}


class OtherFiles:
    """In the place of `make_own`: from outer step 1 on the bad site signs that it trained on files of its choice, or
    hands in what it made of step 0 again."""

    def __init__(self, chosen: Chosen | None) -> None:
        self._chosen, self._first = chosen, b""

    def __call__(self, state: OuterState, inner: Any, limits: Any, account: Any, *rest: Any) -> OwnContribution:
        own = make_own(state, inner, limits, account, *rest)
        if account.address != BAD:
            return own
        if state.step == 0:
            self._first = own.document
            return own
        if self._chosen is None:
            return replace(own, document=self._first)
        made = SignedContribution.model_validate_json(own.document).contribution
        others = sorted(item for name in NAMES[:2] for item in limits.items(name))
        named = made.model_copy(update={"items": list(self._chosen(made.items, others))})
        return replace(own, document=sealed_as_it_is(named, account))


def attacked(world: FilesWorld, chosen: Chosen | None, monkeypatch: pytest.MonkeyPatch) -> Boundary:
    """The boundary after outer step 1, in which the bad site does so."""
    monkeypatch.setattr(site_module, "make_own", OtherFiles(chosen))
    world.begin(0, 1, 2)
    world.until(1)
    assert set(world.files_of(0).values()) == set(NAMES[:3])
    world.until(2)
    return next(one for one in world.events() if isinstance(one, Boundary) and one.step == 2)


@pytest.mark.parametrize("name", [*ATTACKS, "an older step's"])
def test_a_site_that_names_other_files_is_refused_with_words(
    name: str, world: FilesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, word = ATTACKS.get(name, (None, "it is for outer step 0, this is 1"))
    boundary = attacked(world, chosen, monkeypatch)
    refused = next(one for one in world.events() if isinstance(one, ContributionRefused))
    assert refused.site == BAD
    assert word in refused.why
    assert sorted(boundary.made_of) == boundary.counted == NAMES[:2]
    assert sorted(world.files_of(1).values()) == sorted(NAMES[:2] * 3), "all files, each once, without it"
    assert word in world.keeper.excluded[BAD]
    states = {site.state.digest for site in world.sites.values()}
    assert states == {world.keeper.state.digest} == {world.replayed().digest}
    assert world.keeper.book.schedule.members >= set(NAMES[:2])
    assert BAD in world.keeper.book.schedule.members | world.keeper.book.schedule.waiting, "it may come back"


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "one twice"])
def test_and_counts_where_files_are_not_compared(name: str, world: FilesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contribution_module, "_check_items", lambda made, limits: None)
    boundary = attacked(world, ATTACKS[name][0], monkeypatch)
    assert boundary.counted == NAMES[:3]


def test_a_keeper_that_lets_other_files_count_is_found_out(world: FilesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = contribution_module._check_items
    told = world.keeper.turn

    def blind() -> bool:
        monkeypatch.setattr(contribution_module, "_check_items", lambda made, limits: None)
        try:
            return told()
        finally:
            monkeypatch.setattr(contribution_module, "_check_items", checks)

    monkeypatch.setattr(world.keeper, "turn", blind)
    with pytest.raises(MalformedContribution, match="which is not dealt to"):
        attacked(world, ATTACKS["another's"][0], monkeypatch)


def test_a_keeper_that_refuses_what_is_right_is_found_out(world: FilesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    right = world.keeper._handed.document

    def wrong(site: str, digest: str, limits: Any) -> Contribution:
        if site == NAMES[0]:
            raise MalformedContribution("I do not like it")
        return right(site, digest, limits)

    monkeypatch.setattr(world.keeper._handed, "document", wrong)
    world.begin(0, 1, 2)
    with pytest.raises(IntegrityError, match=f"refuses a contribution of {NAMES[0]} to outer step 0 that is right"):
        world.until(1)


def test_a_contribution_of_an_attempt_that_is_over_is_refused(
    world: FilesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sites of three are left, so four files are dealt to the one that had two; it hands in the old one again."""

    def stubborn(site: Any, own: OwnContribution) -> None:
        site._own = replace(own, attempt=site.book.schedule.attempt)

    monkeypatch.setattr(site_module.Site, "_offer_again", stubborn)
    world.begin(0, 1, 2)
    while NAMES[0] not in world.keeper.book.schedule.documents:
        world.keeper_turn()
        for site in list(world.sites.values())[: None if world.keeper.book.items is None else 1]:
            site.turn()
    world.sites.pop(2)._mouth.say("leave", world.keeper.book.schedule, None)
    for _ in range(20):
        world.turn()
    refused = next(one for one in world.events() if isinstance(one, ContributionRefused))
    assert refused.site == NAMES[0]
    assert "dealt to" in refused.why


def test_what_was_judged_in_one_attempt_is_judged_anew_in_the_next(world: FilesWorld) -> None:
    """Also where a site signs for the next one before that has begun."""
    world.begin(0, 1, 2)
    while BAD not in world.keeper.book.schedule.documents:
        world.keeper_turn()
        for site in list(world.sites.values())[0 if world.keeper.book.items is None else 2 :]:
            site.turn()
    now, own = world.keeper.book.schedule, world.sites[2]._own
    assert own is not None
    world.sites[0]._mouth.say("leave", now, None)
    world.sites[2]._mouth.say("sign", replace(now, attempt=now.attempt + 1), own.digest)
    world.keeper.turn()
    assert [one.site for one in world.events() if isinstance(one, ContributionRefused)] == [BAD]


def test_anybody_who_comes_later_judges_the_same(world: FilesWorld, caplog: pytest.LogCaptureFixture) -> None:
    """Each refusal follows again from the log and the bucket, with the same words."""
    with caplog.at_level(logging.CRITICAL), pytest.MonkeyPatch.context() as monkeypatch:
        attacked(world, ATTACKS["one more"][0], monkeypatch)
    exchange, book = world.keeper.exchange, Logbook.at(world.keeper.exchange, 0)
    found: list[LogEvent] = []
    states = {0: OuterState.start(LetterTable().weights())}
    newest = Logbook.newest(exchange)
    assert newest is not None
    boundaries = list(newest.chapters_back())[-2::-1]
    for _, boundary in boundaries:
        states[boundary.step] = step_to(exchange, states[boundary.step - 1], boundary)[0]

    def look(before: Logbook, event: LogEvent) -> None:
        if isinstance(event, ContributionRefused):
            limits = limits_at(exchange, states[before.schedule.step], before.dealing)
            with pytest.raises(MalformedContribution) as caught:
                exchange.contribution(event.document, BAD, limits)
            assert caught.value.what == event.why
            found.append(event)

    while (upcoming := book.upcoming()) is not None:
        book.take(*upcoming, look)
    assert len(found) == 1
    assert list(caught_up(exchange, states[0], newest))[-1].digest == world.keeper.state.digest
