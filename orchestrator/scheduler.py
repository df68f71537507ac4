"""Work slots: who may make which file now. Pure; the shell around it (orchestrator/leases.py) keeps the leases.

Staleness: training step k+1 uses files of steps ≥ k − async_level, k being the newest published step. Steps are made of
files, so what decides a file's age is its place in the queue, not the clock: with n useful files before it, it is used
when ⌊n / files_per_step⌋ more steps are made. A slot is granted if it is young enough then; so no worker makes what
nobody will train on, and so much is in flight that the trainer need not wait for a whole round trip. The clock comes in
where files overtake one another: a node slower than the others by whole policy steps is overtaken by that many.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum


class FileState(Enum):
    """A submission as the scheduler sees it: waiting for its outcome, accepted, or of no use (any other outcome)."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    DEAD = "dead"


@dataclass(frozen=True)
class Rule:
    """`lease_seconds`: a lease without heartbeats; `lease_limit`: a lease with heartbeats; `ask_window`: how long a
    node that was told to wait counts as waiting; `stall_seconds`: how long training may stand still before accepted
    files are taken for useless to it; `ahead`: leases per node at a time."""

    files_per_step: int
    async_level: int
    steps: int
    lease_seconds: float = 30.0
    lease_limit: float = 600.0
    ask_window: float = 5.0
    stall_seconds: float = 60.0
    ahead: int = 2

    @property
    def capacity(self) -> int:
        return self.files_per_step * (self.async_level + 1)


@dataclass(frozen=True)
class File:
    sequence: int
    node: str
    step: int
    state: FileState


@dataclass(frozen=True)
class Lease:
    """A place for the node's file number `counter`; Unix seconds. Heartbeats move `expires`, never beyond `limit`."""

    id: str
    node: str
    step: int
    counter: int
    granted: float
    expires: float
    limit: float


@dataclass(frozen=True)
class Node:
    """`counter`: the chain's next counter of this node; `barred`: why it may not submit, or empty."""

    address: str
    counter: int
    joined_step: int
    barred: str = ""


@dataclass(frozen=True)
class Pace:
    """How recent files fared. Seconds; nodes without recent files are missing.

    making: node → from its lease to its submission; typical: the same over all files; step: between two policy steps, 0
    while unknown; useful: node → the share of its files that was accepted.
    """

    making: Mapping[str, float] = field(default_factory=dict)
    typical: float = 0.0
    step: float = 0.0
    useful: Mapping[str, float] = field(default_factory=dict)

    def share(self, node: str) -> float:
        """What a file in the making counts for. Never less than half, so that many bad files cannot flood a pool."""
        return min(1.0, max(0.5, self.useful.get(node, 1.0)))


@dataclass(frozen=True)
class Supply:
    """All that decides, at one moment.

    published: newest policy step on chain or None; usable: newest whose seed block has its confirmations, or None;
    trained: newest step the trainer reported as made; consumed: sequences it reported; leases: open ones;
    asked: node → when it was last told to wait; granted: node → when it last got a lease; closed: why no more work will
    ever be wanted, or empty; paused: by the pool's owner; affordable: further files that the free budget covers;
    changed: when a file was settled, consumed or a step published for the last time.
    """

    published: int | None
    usable: int | None
    trained: int
    consumed: Collection[int]
    files: Collection[File]
    leases: Collection[Lease]
    asked: Mapping[str, float]
    granted: Mapping[str, float]
    closed: str = ""
    paused: bool = False
    affordable: int = 1 << 60
    changed: float = math.inf
    pace: Pace = Pace()


@dataclass(frozen=True)
class Grant:
    step: int
    counter: int
    expires: float
    limit: float
    replaces: str | None = None
    """Id of the lease that ends with this grant."""


@dataclass(frozen=True)
class Keep:
    """The node already has this lease; it is extended to `expires`."""

    lease: Lease
    expires: float


@dataclass(frozen=True)
class Wait:
    """`queued`: the node waits for a place, and others wait for it if it comes first."""

    seconds: float
    reason: str
    queued: bool = False


@dataclass(frozen=True)
class Refuse:
    reason: str


Decision = Grant | Keep | Wait | Refuse


@dataclass(frozen=True)
class InFlight:
    """Files in flight: open leases, waiting for a verdict, accepted and still to be trained on."""

    leased: int
    pending: int
    accepted: int
    needed: int
    """Files that the training steps still to come can use at most."""
    expected: float = 0.0
    """How many of those in flight will be of use, by how recent files of the same nodes fared."""

    @property
    def total(self) -> int:
        return self.leased + self.pending + self.accepted


def decide(rule: Rule, supply: Supply, node: Node, counter: int | None, now: float) -> Decision:
    """What a node that asks for work at `now` is told; `counter` is the file it wants to make, None for its next."""
    if node.barred:
        return Refuse(node.barred)
    if supply.closed:
        return Refuse(supply.closed)
    if supply.paused:
        return Wait(5.0, "the pool's owner has paused it")
    mine = {lease.counter: lease for lease in live_leases(supply.leases, now) if lease.node == node.address}
    wanted = node.counter if counter is None else counter
    if wanted < node.counter and counter is not None:
        return Wait(1.0, f"file {wanted} of this node is on chain already, its next is {node.counter}")
    if wanted >= node.counter + rule.ahead:
        return Wait(2.0, f"file {wanted} is too far ahead of file {node.counter}, the next that the chain expects")
    step = _step(rule, supply, node)
    if isinstance(step, Wait):
        return step
    held = mine.get(wanted)
    if held is not None and held.step == step:
        return Keep(held, min(now + rule.lease_seconds, held.limit))
    if held is None and len(mine) >= rule.ahead:
        return Wait(2.0, f"this node has {len(mine)} open slots; submit one or let it run out")
    if held is None or held.step < _oldest(rule, supply):
        wait = _place(rule, supply, node, step, now)
        if wait is not None:
            return wait
    limit = held.limit if held else now + rule.lease_limit
    return Grant(step, wanted, min(now + rule.lease_seconds, limit), limit, held.id if held else None)


def renew(rule: Rule, lease: Lease, now: float) -> float:
    """When a lease ends after a heartbeat at `now`; an expired lease stays expired."""
    return lease.expires if lease.expires <= now else max(lease.expires, min(now + rule.lease_seconds, lease.limit))


def live_leases(leases: Iterable[Lease], now: float) -> list[Lease]:
    return [lease for lease in leases if lease.expires > now]


def flight(rule: Rule, supply: Supply, now: float) -> InFlight:
    """Count what is in flight.

    The trainer's reports may lag behind the chain: a published step k has consumed k × files_per_step files, and what
    the reports leave unnamed of these is taken from the oldest accepted files.
    """
    published = supply.published or 0
    oldest = _oldest(rule, supply)
    made = max(published, supply.trained)
    accepted = sorted(
        (f for f in supply.files if f.state is FileState.ACCEPTED and f.sequence not in supply.consumed),
        key=lambda f: f.sequence,
    )
    unnamed = max(0, published * rule.files_per_step - len(supply.consumed))
    fresh = [f for f in accepted[unnamed:] if f.step >= oldest]
    pending = [f.node for f in supply.files if f.state is FileState.PENDING and f.step >= oldest]
    leased = [lease for lease in live_leases(supply.leases, now) if lease.step >= oldest]
    coming = [lease.node for lease in leased if now - lease.granted <= _patience(rule, supply.pace, lease.node)]
    needed = max(0, rule.steps - made) * rule.files_per_step
    expected = len(fresh) + sum(supply.pace.share(node) for node in pending + coming)
    return InFlight(len(leased), len(pending), len(fresh), needed, expected)


def _patience(rule: Rule, pace: Pace, node: str) -> float:
    """Seconds after which a lease is no longer counted on, though its node is alive and may still deliver."""
    usual = max(pace.typical, pace.making.get(node, 0.0))
    return max(rule.lease_seconds, 4 * usual) if pace.typical > 0 else math.inf


def _oldest(rule: Rule, supply: Supply) -> int:
    return max(0, (supply.published or 0) - rule.async_level)


def _step(rule: Rule, supply: Supply, node: Node) -> int | Wait:
    if supply.published is None:
        return Wait(1.0, "the first policy step is not published yet")
    if max(supply.published, supply.trained) >= rule.steps:
        return Wait(10.0, f"all {rule.steps} training steps are done")
    if supply.usable is None or supply.usable < supply.published - rule.async_level:
        return Wait(0.5, f"the seed block of policy step {supply.published} is not confirmed yet")
    if supply.usable < node.joined_step:
        return Wait(1.0, f"this node joined late: it may work from policy step {node.joined_step} on")
    return supply.usable


def _place(rule: Rule, supply: Supply, node: Node, step: int, now: float) -> Wait | None:
    """Why there is no place for a new file of policy step `step`, or None."""
    count = flight(rule, supply, now)
    if count.leased >= supply.affordable:
        return Wait(5.0, "the pool's free budget covers no further file")
    # With so many useful files before it, a file would be too old when its turn comes.
    room = rule.files_per_step * (rule.async_level + 1 - max(0, (supply.published or 0) - step))
    free = _whole(min(room, count.needed) - count.expected)
    # A file that the trainer cannot use must not hold a place for ever: without it the run could not end.
    still = count.expected <= count.accepted and now - supply.changed >= rule.stall_seconds
    if free <= 0 and still and count.needed:
        free = 1
    if free <= 0:
        return _full(rule, supply, count, room)
    # The next training step needs files from whoever makes them; beyond it, only such as come in time.
    overtaking = _overtaking(rule, supply, node, now)
    if overtaking and count.expected >= rule.files_per_step and count.expected + overtaking >= room:
        own, usual = supply.pace.making[node.address], supply.pace.typical
        return Wait(2.0, f"this node's files take {own:.0f} s, others' {usual:.0f} s: now they would come too late")
    return _turn(rule, supply, node, free, now)


def _whole(places: float) -> int:
    return math.floor(places + 1e-6)


def _full(rule: Rule, supply: Supply, count: InFlight, room: int) -> Wait:
    if count.needed - count.expected < 1:
        why = f"the {count.needed} files that the last training steps need are in the making"
        return Wait(2.0, why, queued=True)
    if room < rule.capacity:
        why = f"policy step {supply.published} is about to be usable; files of the one before would come too late"
        return Wait(_soon(supply), why, queued=True)
    why = f"{count.total} files are in flight, as many as training can use ({rule.capacity})"
    return Wait(_soon(supply), why, queued=True)


def _soon(supply: Supply) -> float:
    """Seconds until a node that waits for a place asks again: all together about fifty times a second at most."""
    return min(4.0, max(0.4, len(supply.asked) / 50))


def _overtaking(rule: Rule, supply: Supply, node: Node, now: float) -> int:
    """Files that will be asked for later than the node's next one and yet be there earlier."""
    pace = supply.pace
    own = pace.making.get(node.address)
    if own is None or pace.step <= 0:
        return 0
    # When steps become rarer than they were, fewer overtake.
    return _whole(max(0.0, own - pace.typical) / max(pace.step, now - supply.changed)) * rule.files_per_step


def _turn(rule: Rule, supply: Supply, node: Node, free: int, now: float) -> Wait | None:
    """Of several nodes that ask for `free` places, those with the fewest files in flight come first."""
    rivals = [other for other, when in supply.asked.items() if other != node.address and now - when <= rule.ask_window]
    if len(rivals) < free:
        return None
    load = _load(rule, supply, now)
    me = _rank(node.address, load, supply.granted)
    before = sum(1 for other in rivals if _rank(other, load, supply.granted) < me)
    if before < free:
        return None
    return Wait(_soon(supply), f"{before} nodes with less in flight are served first", queued=True)


def _load(rule: Rule, supply: Supply, now: float) -> Counter[str]:
    oldest = _oldest(rule, supply)
    load = Counter(lease.node for lease in live_leases(supply.leases, now))
    load.update(f.node for f in supply.files if f.state is FileState.PENDING and f.step >= oldest)
    return load


def _rank(node: str, load: Counter[str], granted: Mapping[str, float]) -> tuple[int, float, str]:
    return load[node], granted.get(node, 0.0), node
