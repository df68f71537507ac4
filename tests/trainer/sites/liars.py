"""A run on a real chain in which one site, or the keeper, signs what cannot both be."""

from pathlib import Path

import pytest

from protocol.accounts import LocalAccount
from protocol.sites.log import open_entry, seal_entry
from protocol.sites.notes import SiteNote, seal_note
from tests.conftest import Deployed
from tests.trainer.sites.chain_world import SiteChainWorld, chain_world
from tests.trainer.sites.world import KEEPER, SITES, MemoryBucket, make_run

LIAR = 3


def lying_world(deployed: Deployed, home: Path, monkeypatch: pytest.MonkeyPatch) -> SiteChainWorld:
    """Three honest sites, which have made an outer step, and one with stake that has said nothing yet. Whoever finds
    something shows it at once."""
    monkeypatch.setattr("trainer.sites.contradiction_watch._SPREAD", 0.0)
    made = chain_world(deployed, home, make_run(4), joining=4)
    made.recorder.look()
    for number in range(3):
        made.start(number)
    made.until(1)
    made.recorder.look()
    return made


def objects(world: SiteChainWorld) -> dict[str, bytes]:
    assert isinstance(world.bucket, MemoryBucket)
    return world.bucket.objects


def say(world: SiteChainWorld, number: int, digest: str, attempt: int = 0, site: int = LIAR) -> bytes:
    """A note of a site that signs a contribution to outer step 1."""
    note = SiteNote(
        run=world.run.digest, site=SITES[site].address, number=number, what="sign", step=1, attempt=attempt,
        digest=digest * 32,
    )  # fmt: skip
    data = seal_note(note, world.run, SITES[site])
    world.bucket.put_first(f"sites/{world.run.digest}/notes/{note.site.lower()}/{number:010d}", data)
    return data


def entry_place(world: SiteChainWorld, number: int) -> str:
    return f"sites/{world.run.digest}/log/{number:010d}"


def signed_otherwise(world: SiteChainWorld, number: int) -> bytes:
    """Another entry of the keeper's for a place of its log."""
    entry = open_entry(objects(world)[entry_place(world, number)], world.run, number, None)
    return seal_entry(entry.model_copy(update={"time": entry.time + 1}), world.run, KEEPER)


def stake_of(world: SiteChainWorld, number: int) -> int:
    return world.runs.site_of(world.number, SITES[number].address).stake


def sent_by(world: SiteChainWorld, account: LocalAccount) -> int:
    client = world.deployed.chain.client()
    return int(client.ask("nonce", lambda eth: eth.get_transaction_count(account.address)))


def proofs(world: SiteChainWorld, home: str) -> list[str]:
    return sorted(path.name for path in (world.home / home / "contradictions").glob("0x*"))
