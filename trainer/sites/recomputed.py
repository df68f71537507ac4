"""A recorded outer step made again, from the log and what was published: by the keeper after a restart, by sites, by
jurors, and by anybody who doubts it."""

from dataclasses import dataclass

from protocol.errors import IntegrityError
from protocol.sites.log import MAX_ENTRIES, Boundary, LogEntry
from protocol.sites.outer import OuterState
from protocol.sites.recorded import StepRecord, differences, step_record
from trainer.sites.catching_up import caught_up, limits_at, step_to
from trainer.sites.exchange import SiteExchange
from trainer.sites.judged_exchange import JudgedExchange
from trainer.sites.logbook import Logbook, dealing_before
from trainer.sites.reduction import Parts, Payloads, place_of


@dataclass(frozen=True)
class MadeStep:
    """An outer step as it follows from what was published: from the state of digest `base`, and what is to be recorded
    of it."""

    base: str
    record: StepRecord


@dataclass(frozen=True)
class StepClaim:
    """What the chain says of an outer step: the `record`, from the state of digest `base` (of the record before), and
    of its entry in the log, at place `number`, what it follows (`previous`) and what it says (`body`)."""

    base: str
    record: StepRecord
    number: int
    previous: bytes
    body: bytes


def boundaries_after(exchange: SiteExchange, step: int) -> dict[int, int]:
    """Of all outer steps from `step` on that the log has, the place of the boundary after each. Raises IntegrityError,
    UnreachableError."""
    book = Logbook.newest(exchange)
    found: dict[int, int] = {}
    if book is None:
        return found
    for number, boundary in book.chapters_back():
        if boundary.step <= step:
            break
        found[boundary.step - 1] = number
    return found


def boundary_at(exchange: SiteExchange, number: int) -> tuple[LogEntry, Boundary]:
    """The entry at a place of the log and the boundary that it ends with. Raises IntegrityError, UnreachableError."""
    found = exchange.entry(number, None)
    boundary = None if found is None else found[0].boundary
    if found is None or boundary is None:
        raise IntegrityError(f"entry {number} of the log begins no outer step")
    return found[0], boundary


def make_again(exchange: SiteExchange, first: OuterState, boundary: Boundary) -> MadeStep:
    """The outer step that led to `boundary`. `first`: the run's first state, or any later one. Where sites reduced
    shards, their parts are computed again too, all of them. Raises IntegrityError where it does not lead there;
    MissingObjectError, UnreachableError."""
    if boundary.before is None:
        raise IntegrityError("the log's first boundary ends no outer step")
    made = list(caught_up(exchange, first, Logbook.at(exchange, boundary.before)))
    state = made[-1] if made else first
    _, judged = step_to(exchange, state, boundary)
    if exchange.run.reducing and boundary.made_of:
        _check_parts(exchange, state, boundary)
    return MadeStep(state.digest.hex(), step_record(boundary, judged.shares))


def _check_parts(exchange: SiteExchange, state: OuterState, boundary: Boundary) -> None:
    """Raises IntegrityError where what a reducer published is not what the contributions give."""
    limits = limits_at(exchange, state, dealing_before(exchange, boundary))
    place = place_of(exchange.run, state, boundary.attempt, boundary.made_of, boundary.means.keys())
    parts = Parts.opened(exchange, place, limits, boundary.products, boundary.means)
    made = {site: exchange.contribution(named, site, limits) for site, named in boundary.made_of.items()}
    payloads, judged = Payloads(limits, state, made, exchange.shard), parts.judged(exchange.run)
    for reducer in sorted(parts.means):
        shard = parts.wrong_products(payloads, reducer)
        if shard is None:
            shard = parts.wrong_mean(payloads, reducer, judged.shares)
        if shard is not None:
            raise IntegrityError(f"what {reducer} published of shard {shard} is not what the contributions give")


def faults_of(claim: StepClaim, exchange: SiteExchange, first: OuterState) -> list[str]:
    """What of a recorded step does not follow from log and bucket, in words; empty if all of it does. Raises
    MissingObjectError, UnreachableError where that cannot be said, because something is gone, or something else lies
    in its place."""
    exchange, faults = JudgedExchange(exchange), list[str]()
    if claim.number >= MAX_ENTRIES:
        return [f"it names entry {claim.number}, and a log has {MAX_ENTRIES} at most"]
    try:
        entry, boundary = boundary_at(exchange, claim.number)
        if (bytes.fromhex(entry.previous), entry.body) != (claim.previous, claim.body):
            faults.append(f"the log has another entry at place {claim.number} than the record names")
        if boundary.step != claim.record.step + 1:
            faults.append(f"entry {claim.number} is the boundary after outer step {boundary.step - 1}")
            return faults
        made = make_again(exchange, first, boundary)
    except IntegrityError as error:
        return [*faults, error.what]
    if made.base != claim.base:
        faults.append(f"it starts from state {made.base[:16]}…, recorded before it is {claim.base[:16]}…")
    return faults + differences(claim.record, made.record)
