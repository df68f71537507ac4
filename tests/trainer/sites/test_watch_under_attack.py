"""Watching a run while strangers, its sites or its keeper do what they can against it: nobody pays for what it did not
sign, and no contradiction is missed for junk, floods, a broken log, a bucket that is gone or a full disk."""

import json
from pathlib import Path

import pytest

from protocol.errors import UnreachableError
from protocol.sites.log import LogEntry, TimeUp, seal_entry
from protocol.sites.notes import SiteNote, seal_note
from tests.conftest import Deployed
from tests.trainer.sites.chain_world import SITE_STAKE, SiteChainWorld
from tests.trainer.sites.liars import (
    LIAR,
    entry_place,
    lying_world,
    objects,
    proofs,
    say,
    stake_of,
)
from tests.trainer.sites.world import KEEPER, SITES
from trainer.sites.statement_reader import StatementReader


@pytest.fixture
def world(shared_suite: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SiteChainWorld:
    return lying_world(shared_suite, tmp_path, monkeypatch)


def test_strangers_words_are_nobodys(world: SiteChainWorld) -> None:
    """Whoever may write to the bucket forges what it likes, of any length; nobody pays for it."""
    watch = world.contradictions(world.deployed.chain.account(), "watch")
    say(world, 0, "aa")
    watch.look()
    true = seal_note(
        SiteNote(
            run=world.run.digest, site=SITES[0].address, number=1, what="sign", step=1, attempt=0, digest="bb" * 32
        ),
        world.run,
        SITES[0],
    )
    forged = json.loads(true)
    forged["note"]["site"] = SITES[LIAR].address
    place = f"sites/{world.run.digest}/notes/{SITES[LIAR].address.lower()}/"
    for number, junk in enumerate((true, json.dumps(forged).encode(), b"", b"\xff" * 10_000, b"[" * 2000), 1):
        objects(world)[f"{place}{number:010d}"] = junk
    for number in range(world.keeper.book.number, world.keeper.book.number + 5):
        objects(world)[entry_place(world, number)] = b"\x00" * (1 << 17)
    assert watch.attempt(), watch.problem
    assert proofs(world, "watch") == []
    say(world, 6, "bb")  # the site's own word, behind them, is read all the same
    watch.look()
    assert stake_of(world, LIAR) == SITE_STAKE // 2


def test_a_bucket_that_is_gone_keeps_no_proof_from_being_shown(world: SiteChainWorld) -> None:
    say(world, 0, "aa")
    say(world, 1, "bb")
    prover = world.deployed.chain.account()
    world.contradictions(prover, "watch", accuse=False).look()

    def gone(*_: object) -> None:
        raise UnreachableError("no bucket")

    watch = world.contradictions(prover, "watch")
    watch._reader._exchange._bucket = type("Gone", (), {"look": staticmethod(gone)})()
    assert not watch.attempt()
    assert watch.problem == "no bucket"
    assert stake_of(world, LIAR) == SITE_STAKE // 2


def test_a_site_that_floods_its_notes_is_read_in_bounded_pieces(world: SiteChainWorld) -> None:
    reader = StatementReader(world.keeper.exchange, "")
    uses = 0
    look = world.bucket.look

    def counted(place: str, limit: int) -> bytes | None:
        nonlocal uses
        uses += "/notes/" in place
        return look(place, limit)

    for number in range(200):
        say(world, number, "aa", attempt=number)
    world.bucket.look = counted  # type: ignore[method-assign]
    assert list(reader.read()) == []
    assert uses <= 4 * 65
    say(world, 200, "bb", attempt=7)
    assert [proof.accused for _ in range(4) for proof in reader.read()] == [SITES[LIAR].address]


def test_a_broken_log_blinds_nobody(world: SiteChainWorld) -> None:
    """The newest entry names a boundary that is none, so no log can be followed from there."""
    say(world, 0, "aa")
    say(world, 1, "bb")
    number = world.keeper.book.number
    broken = LogEntry(
        run=world.run.digest, number=number, previous=world.keeper.book.tip, chapter=number - 1, time=9.0,
        events=[TimeUp(attempt=0, phase="open")],
    )  # fmt: skip
    objects(world)[entry_place(world, number)] = seal_entry(broken, world.run, KEEPER)
    watch = world.contradictions(world.deployed.chain.account(), "watch")
    assert watch.attempt(), watch.problem
    assert stake_of(world, LIAR) == SITE_STAKE // 2


def test_a_full_disk_ends_no_watch(world: SiteChainWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = world.contradictions(world.deployed.chain.account(), "watch")
    say(world, 0, "aa")
    say(world, 1, "bb")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "showing.json")

    with monkeypatch.context() as disk:
        disk.setattr("trainer.sites.proof_folder.write_folder", full)
        assert not watch.attempt()
        assert "No space left" in watch.problem
        assert stake_of(world, LIAR) == SITE_STAKE
    assert watch.attempt(), watch.problem
    assert stake_of(world, LIAR) == SITE_STAKE // 2
