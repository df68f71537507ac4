"""Who signs two things that cannot both be is shown to the contract by whoever watches: once, also after a kill, and
whatever lies in the bucket. Nobody else is."""

import time
from pathlib import Path
from typing import Any

import pytest

from chain.errors import TransactionError
from protocol.accounts import LocalAccount
from protocol.encoding import sha256_hex
from protocol.sites.log import LogEntry, TimeUp, seal_entry
from tests.conftest import Deployed
from tests.trainer.sites.chain_world import KEEPER_STAKE, SITE_STAKE, SiteChainWorld
from tests.trainer.sites.liars import (
    LIAR,
    entry_place,
    lying_world,
    objects,
    proofs,
    say,
    sent_by,
    signed_otherwise,
    stake_of,
)
from tests.trainer.sites.world import KEEPER, SITES
from trainer.sites import accusing
from trainer.sites.recomputed import boundaries_after, boundary_at


@pytest.fixture
def world(shared_suite: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SiteChainWorld:
    return lying_world(shared_suite, tmp_path, monkeypatch)


def test_honest_sites_and_keeper_are_not_shown(world: SiteChainWorld) -> None:
    watch = world.contradictions(world.deployed.chain.account(), "watch")
    for _ in range(3):
        watch.look()
        world.until(world.keeper.state.step + 1)
        world.recorder.look()
    say(world, 0, "aa")
    say(world, 1, "bb", attempt=1)  # another attempt
    say(world, 2, "aa")  # the same again
    watch.look()
    assert watch.status() == {"found": {}, "problem": ""}
    assert proofs(world, "watch") == []
    assert world.runs.run_of(world.number).stake == KEEPER_STAKE


def test_a_site_that_signs_two_contributions_is_shown_once(world: SiteChainWorld, monkeypatch: Any) -> None:
    prover, other = world.deployed.chain.account(), world.deployed.chain.account()
    first, second = world.contradictions(prover, "first"), world.contradictions(other, "second")
    say(world, 0, "aa")
    first.look()
    objects(world)[f"sites/{world.run.digest}/notes/{SITES[LIAR].address.lower()}/{1:010d}"] = b"junk of a stranger's"
    say(world, 2, "bb")
    first.look()
    found = world.runs.site_of(world.number, SITES[LIAR].address)
    assert (found.ejected, found.stake) == (True, SITE_STAKE // 2)
    assert world.deployed.suite().token.balance_of(prover.address) == SITE_STAKE // 20
    second.look()
    first.look()
    assert (sent_by(world, prover), sent_by(world, other)) == (1, 0), "one transaction is enough"
    assert first.status()["found"] == second.status()["found"] == {SITES[LIAR].address: "it was shown"}
    again = world.contradictions(prover, "first")  # killed and started again
    again.look()
    assert sent_by(world, prover) == 1
    assert [stake_of(world, number) for number in range(3)] == [SITE_STAKE] * 3


def test_what_was_found_before_a_kill_is_shown_after_it(world: SiteChainWorld) -> None:
    prover = world.deployed.chain.account()
    say(world, 0, "aa")
    say(world, 1, "bb")
    silent = world.contradictions(prover, "watch", accuse=False)
    silent.look()
    assert stake_of(world, LIAR) == SITE_STAKE
    assert silent.status()["found"] == {SITES[LIAR].address: "this process does not show it"}
    for key in [key for key in objects(world) if "/notes/" in key]:
        del objects(world)[key]  # whoever holds the bucket's key takes them away
    world.contradictions(prover, "watch").look()
    assert stake_of(world, LIAR) == SITE_STAKE // 2


def test_a_lost_answer_costs_no_second_transaction(world: SiteChainWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    prover = world.deployed.chain.account()
    watch = world.contradictions(prover, "watch")
    say(world, 0, "aa")
    say(world, 1, "bb")
    client = watch.chain.runs().client
    send = client.send

    def stuck(*_: object, **__: object) -> None:
        """It is on its way, and not mined for long."""
        raise TransactionError("not mined", tx_hash="0x12")

    monkeypatch.setattr(client, "send", stuck)
    watch.look()
    monkeypatch.setattr(client, "send", send)
    watch.look()
    assert sent_by(world, prover) == 0, "the first one may still be mined"
    restarted = world.contradictions(prover, "watch")
    restarted.look()
    assert sent_by(world, prover) == 0
    now = time.time()
    restarted._accuser._clock = lambda: now + accusing._SENT_SECONDS + 60  # type: ignore[union-attr]
    restarted.look()
    assert (sent_by(world, prover), stake_of(world, LIAR)) == (1, SITE_STAKE // 2)


def test_it_is_not_sent_for_ever(world: SiteChainWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, tries = world.contradictions(world.deployed.chain.account(), "watch"), []
    say(world, 0, "aa")
    say(world, 1, "bb")

    def stuck(*_: object, **__: object) -> None:
        tries.append(1)
        raise TransactionError("not mined", tx_hash="0x12")

    monkeypatch.setattr(watch.chain.runs().client, "send", stuck)
    now = time.time()
    for count in range(6):
        watch._accuser._clock = lambda count=count: now + 700 * count  # type: ignore[union-attr]
        watch.look()
    assert len(tries) == accusing._MOST_SENT
    assert "muster site accuse" in watch.status()["found"][SITES[LIAR].address]


def test_a_key_without_funds_keeps_the_proof(world: SiteChainWorld, caplog: pytest.LogCaptureFixture) -> None:
    from protocol.accounts import Account

    poor: LocalAccount = Account.create()
    watch = world.contradictions(poor, "watch")
    say(world, 0, "aa")
    say(world, 1, "bb")
    now = time.time()
    for count in range(4):
        watch._accuser._clock = lambda count=count: now + 100 * count  # type: ignore[union-attr]
        assert watch.attempt(), watch.problem
    assert "send some ETH to it" in watch.status()["found"][SITES[LIAR].address]
    assert caplog.text.count("send some ETH to it") == 1
    world.deployed.chain.fund(poor.address)
    watch._accuser._clock = lambda: now + 1000  # type: ignore[union-attr]
    watch.look()
    assert stake_of(world, LIAR) == SITE_STAKE // 2
    folder = world.home / "watch" / "contradictions" / SITES[LIAR].address
    assert sorted(path.name for path in folder.iterdir()) == ["1.json", "2.json", "showing.json"]


def test_nobody_shows_itself(world: SiteChainWorld) -> None:
    say(world, 0, "aa")
    say(world, 1, "bb")
    world.deployed.chain.fund(SITES[LIAR].address)
    world.contradictions(SITES[LIAR], "liar").look()
    assert stake_of(world, LIAR) == SITE_STAKE
    number = boundaries_after(world.keeper.exchange, 0)[0]
    own = world.contradictions(KEEPER, "keeping")
    own.look()
    objects(world)[entry_place(world, number)] = signed_otherwise(world, number)
    own.look()
    assert world.runs.run_of(world.number).stake == KEEPER_STAKE
    assert stake_of(world, LIAR) == SITE_STAKE // 2, "the keeper shows the site"


def test_a_keeper_that_goes_on_from_another_entry_is_shown(world: SiteChainWorld) -> None:
    """The bucket is its own: it puts another entry in the place of the newest, and goes on from there."""
    prover = world.deployed.chain.account()
    watch = world.contradictions(prover, "watch")
    watch.look()
    tip = world.keeper.book.number - 1
    replaced = signed_otherwise(world, tip)
    objects(world)[entry_place(world, tip)] = replaced
    now = world.keeper.book.schedule
    following = LogEntry(
        run=world.run.digest, number=tip + 1, previous=sha256_hex(replaced), chapter=world.keeper.book.chapter,
        time=9.0, events=[TimeUp.model_validate({"attempt": now.attempt, "phase": now.phase.value})],
    )  # fmt: skip
    objects(world)[entry_place(world, tip + 1)] = seal_entry(following, world.run, KEEPER)
    watch.look()
    view = world.runs.run_of(world.number)
    assert (view.ejected, view.stake) == (True, KEEPER_STAKE // 2)
    assert world.deployed.suite().token.balance_of(prover.address) == KEEPER_STAKE // 20


def test_a_keeper_that_records_another_entry_is_shown(world: SiteChainWorld) -> None:
    world.until(2)
    number = boundaries_after(world.keeper.exchange, 1)[1]
    entry, _ = boundary_at(world.keeper.exchange, number)
    other = entry.model_copy(update={"time": entry.time + 1})
    world.runs.record(world.number, world.recorder._made[1], other).send()
    watch = world.contradictions(world.deployed.chain.account(), "watch")
    watch.look()
    view = world.runs.run_of(world.number)
    assert (view.ejected, view.stake) == (True, KEEPER_STAKE // 2)
    watch.look()
    assert watch.status()["found"] == {KEEPER.address: "it was shown"}


def test_a_record_of_a_place_that_no_log_has_stops_no_watch(world: SiteChainWorld) -> None:
    world.until(2)
    number = boundaries_after(world.keeper.exchange, 1)[1]
    entry, _ = boundary_at(world.keeper.exchange, number)
    far = entry.model_construct(**{**dict(entry), "number": 1 << 255})
    world.runs.record(world.number, world.recorder._made[1], far).send()
    watch = world.contradictions(world.deployed.chain.account(), "watch")
    assert watch.attempt(), watch.problem
    assert watch.status()["found"] == {}
