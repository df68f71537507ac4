"""What the scheduler decides by: leases, files and their pace at one moment, and how many files are in flight. Pure."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from chain.indexer.records import Status
from orchestrator.pace import Pace
from protocol.api.run import InFlightEntry
from protocol.config import PoolConfig


@dataclass(frozen=True)
class Rule:
    """A pool's limits. A step takes `files_per_step` files, with an online filter up to `max_files`. Seconds:
    `lease_seconds` is the life of a lease without heartbeats, `lease_limit` its longest life with them; a node that was
    told to wait counts as waiting for `ask_window`; when training has stood still for `stall_seconds`, accepted files
    are taken to be useless to it. `ahead`: leases per node at a time. `bought`: how many accepted files a data pool
    buys, of any policy step, while nothing is trained; 0 for a pool that trains."""

    files_per_step: int
    async_level: int
    steps: int
    lease_seconds: float = 30.0
    lease_limit: float = 600.0
    ask_window: float = 5.0
    stall_seconds: float = 60.0
    ahead: int = 2
    max_files: int = 0
    bought: int = 0

    @classmethod
    def of(cls, config: PoolConfig, lease_seconds: float, lease_limit: float, stall_seconds: float) -> Self:
        """A pool's, with these times."""
        train, bought = config.train, config.bought_files
        return cls(
            bought or train.files_per_step,
            train.async_level,
            train.steps,
            lease_seconds,
            lease_limit,
            stall_seconds=stall_seconds,
            max_files=0 if bought else train.max_files,
            bought=bought,
        )

    @property
    def most_files(self) -> int:
        """The most files that a step takes."""
        return max(self.files_per_step, self.max_files)

    def room(self, behind: int) -> int:
        """How many useful files of a policy step so far behind the newest may be in flight: the next step may take the
        most, those after it take the usual number."""
        if self.bought:
            return self.bought
        left = self.async_level - behind
        return self.most_files + self.files_per_step * left if left >= 0 else 0

    @property
    def capacity(self) -> int:
        return self.room(0)


@dataclass(frozen=True)
class QueuedFile:
    """A submission that may still be trained on; `step` is the policy step it was generated with."""

    sequence: int
    node: str
    step: int
    status: Status


class Lease(NamedTuple):
    """A place for the node's file number `counter`; Unix seconds. Heartbeats move `expires`, never beyond `limit`."""

    id: str
    node: str
    step: int
    counter: int
    granted: float
    expires: float
    limit: float


@dataclass(frozen=True)
class Supply:
    """Everything a decision depends on, at one moment.

    published: newest policy step on chain, or None; usable: newest whose seed block has its confirmations, or None;
    trained: newest step that the trainer reported as made; consumed: sequences it reported; leases: the open ones;
    asked: node → when it was last told to wait; granted: node → when it last got a lease; reached: node → the newest
    step that it ever got a lease of; closed: why no more work will ever be wanted, or empty; halted: why none is taken
    for now, or empty; affordable: further files that the free budget covers; changed: when a file was last settled or
    consumed or a step published.
    """

    published: int | None
    usable: int | None
    trained: int
    consumed: Collection[int]
    files: Collection[QueuedFile]
    leases: Collection[Lease]
    asked: Mapping[str, float]
    granted: Mapping[str, float]
    reached: Mapping[str, int] = field(default_factory=dict)
    closed: str = ""
    halted: str = ""
    affordable: int = 1 << 60
    changed: float = math.inf
    pace: Pace = field(default_factory=Pace)
    count: InFlightEntry | None = None
    """What is in flight, where it was counted already."""


def live_leases(leases: Iterable[Lease], now: float) -> list[Lease]:
    """Those that have not run out at `now`."""
    return [lease for lease in leases if lease.expires > now]


def in_flight(rule: Rule, supply: Supply, now: float) -> InFlightEntry:
    """Count what is in flight.

    The trainer's reports may lag behind the chain: files that no report names yet are taken to be the oldest accepted
    ones.
    """
    published = supply.published or 0
    oldest = oldest_step(rule, supply)
    made = max(published, supply.trained)
    accepted = sorted(
        (f for f in supply.files if f.status is Status.ACCEPTED and f.sequence not in supply.consumed),
        key=lambda f: f.sequence,
    )
    unnamed = _unnamed(rule, supply)
    fresh = [f for f in accepted[unnamed:] if f.step >= oldest]
    pending = [f.node for f in supply.files if f.status is Status.PENDING and f.step >= oldest]
    leased = [lease for lease in live_leases(supply.leases, now) if lease.step >= oldest]
    least = _patience(rule, supply.pace, "")
    coming = [
        lease.node
        for lease in leased
        if now - lease.granted <= least or now - lease.granted <= _patience(rule, supply.pace, lease.node)
    ]
    shares = {node: supply.pace.share(node) for node in supply.pace.useful}
    needed = rule.bought or max(0, rule.steps - made) * rule.most_files
    expected = len(fresh) + sum([shares.get(node, 1.0) for node in pending + coming])
    return InFlightEntry(
        leased=len(leased), pending=len(pending), accepted=len(fresh), needed=needed, expected=expected
    )


def with_lease(supply: Supply, lease: Lease) -> Supply:
    """A new lease beside those that were counted; one that replaces another takes a new count."""
    count = supply.count
    if count is not None:
        expected = count.expected + supply.pace.share(lease.node)
        count = count.model_copy(update={"leased": count.leased + 1, "expected": expected})
    return replace(supply, leases=[*supply.leases, lease], count=count)


def _unnamed(rule: Rule, supply: Supply) -> int:
    """How many files the published steps were made of that no report names. A reported step may have had none."""
    if rule.bought:
        return 0
    published = supply.published or 0
    unreported = max(0, published - supply.trained) * rule.files_per_step
    if rule.most_files > rule.files_per_step:
        return unreported
    return min(unreported, max(0, published * rule.files_per_step - len(supply.consumed)))


def _patience(rule: Rule, pace: Pace, node: str) -> float:
    """Seconds after which a lease is no longer counted on, though its node is alive and may still deliver."""
    usual = max(pace.typical, pace.making.get(node, 0.0))
    return max(rule.lease_seconds, 4 * usual) if pace.typical > 0 else math.inf


def oldest_step(rule: Rule, supply: Supply) -> int:
    """The oldest policy step whose files the next training step still uses."""
    return 0 if rule.bought else max(0, (supply.published or 0) - rule.async_level)
