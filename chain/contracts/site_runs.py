"""Runs of several sites: stakes of sites and keeper, recorded outer steps, proofs and disputes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chain.contracts.base import ContractCall, record
from chain.contracts.token import TokenTaker
from chain.events import Event
from chain.judging import CaseOutcome
from chain.logs import accepted, decode_logs
from chain.transactions import Receipt
from protocol.accounts import LocalAccount
from protocol.errors import IntegrityError
from protocol.sites.identity import DOMAIN
from protocol.sites.recorded import RecordedContribution, StepRecord

if TYPE_CHECKING:  # commands that ask the chain need no arrays
    from protocol.sites.contradiction import KeeperContradiction, SiteContradiction
    from protocol.sites.log import LogEntry

CONSENT = "Consent(bytes32 document,address key,address owner,uint256 expiry)"
ZERO = "0x" + "00" * 20


@dataclass(frozen=True)
class RunTerms:
    """ISiteRuns.Terms. Stakes in grains, `delay` in seconds; `pool` 0: nobody judges disputes."""

    document: bytes
    start: bytes
    pool: int
    keeper: str
    site_stake: int
    keeper_stake: int
    delay: int

    @property
    def values(self) -> tuple[object, ...]:
        """As the contract takes them."""
        return (
            self.document, self.start, self.pool, self.keeper, self.site_stake, self.keeper_stake, self.delay,
        )  # fmt: skip


@dataclass(frozen=True)
class RunView:
    """ISiteRuns.Run. `owner` is the zero address for a number that no run has; `stake` is the keeper's."""

    document: bytes
    start: bytes
    pool: int
    keeper: str
    owner: str
    site_stake: int
    stake: int
    delay: int
    steps: int
    release_at: int
    disputes: int
    ejected: bool

    @property
    def exists(self) -> bool:
        return self.owner != ZERO


@dataclass(frozen=True)
class SiteView:
    """ISiteRuns.Site. `owner` is the zero address when the key never joined."""

    owner: str
    stake: int
    release_at: int
    ejected: bool

    @property
    def joined(self) -> bool:
        return self.owner != ZERO

    @property
    def active(self) -> bool:
        """Whether the keeper is to take it in."""
        return self.joined and self.release_at == 0


@dataclass(frozen=True)
class StepRecordView:
    """ISiteRuns.Step: `block` of its record, 0 if there is none; `dispute` of it, 0 if there is none."""

    block: int
    time: int
    entry: bytes
    dispute: int


@dataclass(frozen=True)
class StepDisputeView:
    """ISiteRuns.Dispute; `bond` in grains. `outcome` is NONE for a number that no dispute has."""

    run: int
    step: int
    disputer: str
    bond: int
    trial: int
    outcome: CaseOutcome
    opened_at: int


@dataclass(frozen=True)
class RecordedStep:
    """A record on chain, and what it says of the log: the entry at place `number` follows the one of SHA-256 `previous`
    and has the `body` that `LogEntry.body` gives."""

    record: StepRecord
    number: int
    previous: bytes
    body: bytes

    @property
    def entry(self) -> tuple[bytes, bytes]:
        """ISiteRuns.Entry."""
        return self.previous, self.body

    def says(self, entry: "LogEntry") -> bool:
        """Whether this is the entry that it names."""
        return self.entry == _signed_part(entry)


class SiteRuns(TokenTaker):
    """Called by keepers, sites and whoever pays for them; by anybody with a proof or a doubt."""

    name = "SiteRuns"

    def open(self, terms: RunTerms, expiry: int = 0, consent: bytes = b"") -> ContractCall[int]:
        """Open a run and lock its keeper's stake, with the keeper's consent unless it is the caller; returns its
        number."""
        call = self._taking(terms.keeper_stake, "open", terms.values, expiry, consent)
        return self._returning(call, "RunOpened", "run")

    def sign_consent(self, key: LocalAccount, document: bytes, owner: str, expiry: int) -> bytes:
        """The consent of a site's or keeper's key that `owner` pays for it, usable until `expiry` (chain time)."""
        return self.signed(key, DOMAIN, CONSENT, document, key.address, owner, expiry)

    def join(self, run: int, stake: int, site: str, expiry: int = 0, consent: bytes = b"") -> ContractCall[Receipt]:
        """Lock the run's `stake` grains for `site`, who consents unless it is the caller."""
        return self._taking(stake, "join", run, site, expiry, consent)

    def leave(self, run: int, site: str) -> ContractCall[Receipt]:
        return self.call("leave", run, site)

    def close(self, run: int) -> ContractCall[Receipt]:
        """End a run, as the owner of its keeper's stake."""
        return self.call("close", run)

    def withdraw(self, run: int, site: str) -> ContractCall[int]:
        """Take the stake of a site that has left back; returns grains."""
        return self._returning(self.call("withdraw", run, site), "StakeWithdrawn", "amount")

    def withdraw_keeper(self, run: int) -> ContractCall[int]:
        """Take the keeper's stake of a run that is over back; returns grains."""
        return self._returning(self.call("withdrawKeeper", run), "StakeWithdrawn", "amount")

    def record(self, run: int, step: StepRecord, entry: "LogEntry") -> ContractCall[Receipt]:
        """Record, as the keeper, an outer step; `entry`: the boundary after it."""
        contributions = [(one.site, one.weight, bytes.fromhex(one.document)) for one in step.contributions]
        state = bytes.fromhex(step.state)
        call = self.call("record", run, step.step, state, entry.number, _signed_part(entry), contributions)
        # on top of what is not mined yet: a record whose answer was lost is not paid for twice
        return replace(call, pending=True)

    def accuse_site(self, run: int, proof: "SiteContradiction") -> ContractCall[Receipt]:
        """Show two contributions of a site to one attempt. The client's account gets the reward."""
        parts = [((note.number, note.document, note.body), signature) for note, signature in proof.notes]
        call = self.call("accuseSite", run, proof.site, proof.step, proof.attempt, *parts[0], *parts[1])
        return replace(call, pending=True)

    def accuse_keeper(self, run: int, proof: "KeeperContradiction") -> ContractCall[Receipt]:
        """Show two entries at one place of the log."""
        parts = [(_signed_part(entry), signature) for entry, signature in proof.entries]
        return replace(self.call("accuseKeeper", run, proof.number, *parts[0], *parts[1]), pending=True)

    def accuse_record(
        self, run: int, recorded: RecordedStep, other: "LogEntry", signature: bytes
    ) -> ContractCall[Receipt]:
        """Show that the keeper wrote `other` where by its record another entry stands."""
        where = run, recorded.record.step, recorded.number
        return replace(self.call("accuseRecord", *where, recorded.entry, _signed_part(other), signature), pending=True)

    def dispute(self, run: int, step: int) -> ContractCall[int]:
        """Say that a recorded step does not follow from what was published. Takes the bond; returns its number."""
        return self._returning(self._taking(self.bond(run), "dispute", run, step), "StepDisputed", "dispute")

    def conclude(self, dispute: int) -> ContractCall[Receipt]:
        """Once its jury is done, end a dispute or have its jury replaced."""
        return self.call("conclude", dispute)

    def bond(self, run: int) -> int:
        """What a dispute of a step of the run takes: grains."""
        return int(self.read("bondOf", run))

    def run_of(self, run: int) -> RunView:
        return record(RunView, self.read("runOf", run))

    def site_of(self, run: int, site: str) -> SiteView:
        return record(SiteView, self.read("siteOf", run, site))

    def sites_of(self, run: int, sites: Sequence[str]) -> list[SiteView]:
        """Several, in that order."""
        return [record(SiteView, one) for one in self.read("sitesOf", run, list(sites))]

    def step_of(self, run: int, step: int) -> StepRecordView:
        return record(StepRecordView, self.read("stepOf", run, step))

    def steps_of(self, run: int, steps: Sequence[int]) -> list[StepRecordView]:
        """Several, in that order, in one round trip."""
        views = [self.view("stepOf", run, step) for step in steps]
        return [record(StepRecordView, one) for one in self.client.read_many(views)] if views else []

    def reward(self, receipt: Receipt) -> int:
        """What an accusation brought to who made it, in grains."""
        return int(self.event(receipt, "SignerEjected").args["reward"])

    def dispute_of(self, dispute: int) -> StepDisputeView:
        values = self.read("disputeOf", dispute)
        return record(StepDisputeView, values | {"outcome": CaseOutcome(values["outcome"])})

    def recorded(self, run: int, step: int) -> RecordedStep | None:
        """What is recorded of a step, None if nothing is yet. Raises UnreachableError; IntegrityError where the chain's
        endpoint has no event of a record that it has."""
        view = self.step_of(run, step)
        if not view.block:
            return None
        for event in self._events(view.block):
            if event.name == "StepRecorded" and (event.args["run"], event.args["step"]) == (run, step):
                return _recorded(event)
        raise IntegrityError(f"block {view.block} lacks the record of outer step {step}", "ask another endpoint")

    def _events(self, number: int) -> list[Event]:
        """Of this contract in one block."""
        block = self.client.block(number)
        if block is None:
            raise IntegrityError(f"the chain's endpoint lacks block {number}", "ask another endpoint")
        query = {"address": self.address, "fromBlock": hex(number), "toBlock": hex(number)}
        logs = accepted(self.client.batch([("eth_getLogs", [query])])[0], number, number, block.hash)
        return decode_logs(logs, self.deployment)


def _signed_part(entry: "LogEntry") -> tuple[bytes, bytes]:
    """ISiteRuns.Entry."""
    return bytes.fromhex(entry.previous), entry.body


def _recorded(event: Event) -> RecordedStep:
    a = event.args
    contributions = tuple(
        RecordedContribution(one["site"], bytes(one["document"]).hex(), one["weight"]) for one in a["contributions"]
    )
    made, entry = StepRecord(a["step"], bytes(a["state"]).hex(), contributions), a["entry"]
    return RecordedStep(made, a["number"], bytes(entry["previous"]), bytes(entry["body"]))
