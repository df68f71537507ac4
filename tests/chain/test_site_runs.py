"""Runs of sites on a real chain: what Python signs is what the contract checks, and only contradictions cost stake."""

import pytest

from chain.contracts.site_runs import RunTerms, SiteRuns
from chain.errors import ContractError
from protocol import eip712
from protocol.accounts import LocalAccount
from protocol.errors import IntegrityError
from protocol.sites import log, notes
from protocol.sites.contradiction import keeper_contradiction, site_contradiction
from protocol.sites.identity import DOMAIN
from protocol.sites.log import FIRST, LogEntry, TimeUp, seal_entry
from protocol.sites.notes import SiteNote, seal_note
from protocol.sites.recorded import RecordedContribution, StepRecord
from protocol.sites.run import SitesRun
from tests.conftest import GRAINS, Deployed

STAKE, KEEPER_STAKE, DELAY = 40 * GRAINS, 200 * GRAINS, 3600
SINK = "0x000000000000000000000000000000000000dEaD"


class ChainedRun:
    """A run of a fresh keeper and two fresh sites, all with stake."""

    def __init__(self, suite: Deployed) -> None:
        self.suite, self.keeper = suite, suite.rich(KEEPER_STAKE)
        self.sites = [suite.rich(STAKE), suite.rich(STAKE)]
        self.run = SitesRun(
            name="test", chain_id=suite.deployment.chain_id, pools=suite.deployment.address("Pools"),
            keeper=self.keeper.address, sites=tuple(one.address for one in self.sites),
            settings={"admission": {"minimum": 1, "cosine": None}},
        )  # fmt: skip
        self.runs = self.of(self.keeper)
        terms = RunTerms(
            bytes.fromhex(self.run.digest), b"\x05" * 32, 0, self.keeper.address, STAKE, KEEPER_STAKE, DELAY
        )
        self.number = self.runs.open(terms).send()
        for site in self.sites:
            self.of(site).join(self.number, STAKE, site.address).send()

    def of(self, account: LocalAccount) -> SiteRuns:
        return self.suite.suite(account).site_runs

    def note(self, number: int, digest: str, step: int = 4, attempt: int = 2, site: int = 0) -> SiteNote:
        return SiteNote(
            run=self.run.digest, site=self.sites[site].address, number=number, what="sign", step=step,
            attempt=attempt, digest=digest,
        )  # fmt: skip

    def entry(self, number: int, phase: str = "open") -> LogEntry:
        event = TimeUp(attempt=0, phase=phase)  # type: ignore[arg-type]
        return LogEntry(run=self.run.digest, number=number, previous=FIRST, chapter=0, time=1.0, events=[event])


@pytest.fixture
def world(shared_suite: Deployed) -> ChainedRun:
    return ChainedRun(shared_suite)


def test_the_contract_hashes_what_sites_and_keeper_sign(world: ChainedRun) -> None:
    note, entry, domain = world.note(3, "aa" * 32), world.entry(9), world.run.pool_id.domain(DOMAIN)
    run, site = bytes.fromhex(note.run), note.site
    signed = eip712.digest(domain, notes.STRUCT, 0, site, 3, run, 4, 2, bytes.fromhex("aa" * 32), note.body)
    on_chain = world.runs.read("noteDigest", world.number, site, 4, 2, (3, bytes.fromhex("aa" * 32), note.body))
    assert on_chain == signed
    written = eip712.digest(domain, log.STRUCT, 0, 9, run, bytes.fromhex(entry.previous), entry.body)
    assert world.runs.read("entryDigest", world.number, 9, (bytes.fromhex(entry.previous), entry.body)) == written


def test_what_is_recorded_is_read_as_it_was(world: ChainedRun) -> None:
    order = sorted((one.address for one in world.sites), key=lambda one: int(one, 16))
    step = StepRecord(
        0,
        "ab" * 32,
        (RecordedContribution(order[0], "cd" * 32, 10**9 - 1), RecordedContribution(order[1], "ef" * 32, 0)),
    )
    world.runs.record(world.number, step, world.entry(12)).send()
    found = world.runs.recorded(world.number, 0)
    assert found is not None
    assert (found.record, found.number, found.body) == (step, 12, world.entry(12).body)
    assert world.runs.recorded(world.number, 1) is None
    with pytest.raises(ContractError, match="outer step 1 is the next"):
        world.runs.record(world.number, step, world.entry(12)).send()


def test_two_contributions_to_one_attempt_cost_half_the_stake(world: ChainedRun) -> None:
    site = world.sites[0]
    stored = [seal_note(world.note(n, digest), world.run, site) for n, digest in ((1, "aa" * 32), (5, "bb" * 32))]
    proof = site_contradiction(stored[0], stored[1], world.run)
    prover = world.suite.chain.account()
    world.of(prover).accuse_site(world.number, proof).send()
    view = world.runs.site_of(world.number, site.address)
    assert (view.stake, view.ejected, view.active) == (STAKE // 2, True, False)
    assert world.suite.suite().token.balance_of(prover.address) == STAKE // 20
    assert world.runs.site_of(world.number, world.sites[1].address).stake == STAKE


def test_nobody_innocent_is_slashed(world: ChainedRun) -> None:
    site, run = world.sites[0], world.run

    def sealed(note: SiteNote, by: int = 0) -> bytes:
        return seal_note(note, run, world.sites[by])

    one = sealed(world.note(1, "aa" * 32))
    for other, why in (
        (sealed(world.note(2, "aa" * 32)), "same contribution"),
        (sealed(world.note(2, "bb" * 32, attempt=3)), "to one attempt"),
        (sealed(world.note(2, "bb" * 32, step=5)), "to one attempt"),
        (sealed(world.note(2, "bb" * 32, site=1), 1), "to one attempt"),
    ):
        with pytest.raises(IntegrityError, match=why):
            site_contradiction(one, other, run)
    # the same words as a proof, with what would be needed put in by hand
    true = site_contradiction(one, sealed(world.note(2, "bb" * 32)), run)
    later = site_contradiction(
        sealed(world.note(1, "aa" * 32, attempt=3)), sealed(world.note(2, "bb" * 32, attempt=3)), run
    )
    lie = type(true)(site.address, 4, 2, (true.notes[0], later.notes[1]))
    with pytest.raises(ContractError, match="BadSignature"):
        world.of(world.suite.chain.account()).accuse_site(world.number, lie).send()
    elsewhere = ChainedRun(world.suite)
    with pytest.raises(ContractError, match="never joined"):
        elsewhere.runs.accuse_site(elsewhere.number, true).send()
    assert world.runs.site_of(world.number, site.address).stake == STAKE


def test_two_entries_at_one_place_cost_the_keeper_and_end_the_run(world: ChainedRun) -> None:
    stored = [seal_entry(world.entry(7, phase), world.run, world.keeper) for phase in ("open", "collect")]
    with pytest.raises(IntegrityError, match="same entry"):
        keeper_contradiction(stored[0], stored[0], world.run)
    with pytest.raises(IntegrityError, match="entry 7 and entry 8"):
        keeper_contradiction(stored[0], seal_entry(world.entry(8), world.run, world.keeper), world.run)
    world.of(world.suite.chain.account()).accuse_keeper(
        world.number, keeper_contradiction(stored[0], stored[1], world.run)
    ).send()
    view = world.runs.run_of(world.number)
    assert (view.stake, view.ejected) == (KEEPER_STAKE // 2, True)
    with pytest.raises(ContractError, match="run is over"):
        world.runs.record(world.number, StepRecord(0, "ab" * 32, ()), world.entry(9)).send()


def test_a_run_without_a_pool_has_no_jury(world: ChainedRun) -> None:
    world.runs.record(world.number, StepRecord(0, "ab" * 32, ()), world.entry(9)).send()
    with pytest.raises(ContractError, match="no pool whose seats could judge"):
        world.runs.dispute(world.number, 0).send()


def test_stakes_come_back_after_the_delay(deployed: Deployed) -> None:
    world = ChainedRun(deployed)
    site = world.sites[0]
    world.of(site).leave(world.number, site.address).send()
    world.runs.close(world.number).send()
    with pytest.raises(ContractError, match="the stake is locked until"):
        world.of(site).withdraw(world.number, site.address).send()
    deployed.chain.later(DELAY + 1)
    assert world.of(site).withdraw(world.number, site.address).send() == STAKE
    assert world.runs.withdraw_keeper(world.number).send() == KEEPER_STAKE
