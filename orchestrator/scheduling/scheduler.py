"""Which node may make which file: pure decisions. `orchestrator.scheduling.leases` keeps the leases.

Staleness: training step k+1 uses files of steps ≥ k − max_off_policy_steps, where k is the newest published step. A
step consumes a fixed number of files. So a file's age when it is used follows from its place in the queue, not from the
clock: with n useful files before it, ⌊n / files_per_step⌋ more steps are made first. A lease is granted if the file
will still be fresh enough then. The clock matters only where files overtake one another: a node that is slower than the
others by whole policy steps is overtaken by as many steps' files.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple, Self

from chain.indexer.records import Pool, Status, Submission
from protocol.api.run import InFlightEntry
from protocol.api.work import MOST_HANDED_IN, MOST_LEASES
from protocol.config import PoolConfig

RECENT_FILES, _PER_NODE, _STEPS = 256, 16, 9
# How long a node that was told to wait counts as waiting.
WAITING_SECONDS = 5.0
# When training has made no progress for so long, accepted files are taken to be useless to it.
STALL_SECONDS = 60.0
# Leases at a time of a node whose pace is not known, or slow; and of a quick one, for each file that says so.
_AHEAD, _EARNED = 2, 4
# Accepted files that a node is credited with before its own record counts.
_PRIOR_FILES = 4
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Rule:
    """A pool's limits. A step takes `files_per_step` files, with an online filter up to `max_files`.

    `lease_seconds`: life of a lease without heartbeats; `lease_limit`: its longest life with them, and for how long a
    node's pace is remembered, since one that was too slow gets another try; `bought`: how many accepted files a data
    pool buys, of any policy step, while nothing is trained; 0 for a pool that trains.
    """

    files_per_step: int
    max_off_policy_steps: int
    steps: int
    lease_seconds: float = 180.0
    lease_limit: float = 600.0
    max_files: int = 0
    bought: int = 0

    @classmethod
    def of(cls, config: PoolConfig, lease_seconds: float) -> Self:
        train, bought, lease_limit = config.train, config.bought_files, config.work.making_seconds
        files, most = (bought, 0) if bought else (train.files_per_step, train.max_files)
        return cls(files, train.max_off_policy_steps, train.steps, lease_seconds, lease_limit, most, bought)

    @property
    def most_files(self) -> int:
        return max(self.files_per_step, self.max_files)

    def room(self, behind: int = 0) -> int:
        """Return how many useful files of a policy step so far behind the newest may be in flight: the next step may
        take the most, those after it take the usual number."""
        if self.bought:
            return self.bought
        left = self.max_off_policy_steps - behind
        return self.most_files + self.files_per_step * left if left >= 0 else 0


@dataclass(frozen=True)
class Pace:
    """How recent files fared, in seconds. making: node → median from lease to submission; made: node → of how many
    files; typical: over all nodes; step: between two policy steps, 0 while unknown; useful: node → the share of its
    files that was accepted."""

    making: Mapping[str, float] = field(default_factory=dict)
    made: Mapping[str, int] = field(default_factory=dict)
    typical: float = 0.0
    step: float = 0.0
    useful: Mapping[str, float] = field(default_factory=dict)


def measure(pool: Pool, files: Sequence[Submission], grants: Mapping[tuple[str, int, int], float]) -> Pace:
    """Return the pace of a pool by its newest files (in order of their sequence) and steps. `grants`: (node, counter,
    policy step) → when the lease was granted, Unix seconds. A file's making starts by the service's clock and ends by
    the chain's; only differences between nodes are used."""
    making: dict[str, list[float]] = defaultdict(list)
    decided: dict[str, list[bool]] = defaultdict(list)
    for file in reversed(files[-RECENT_FILES:]):
        granted = grants.get((file.node, file.counter, file.step))
        # Garbage is made fast: counted, it would make honest nodes look too slow to serve.
        if granted is not None and file.status is Status.ACCEPTED and len(making[file.node]) < _PER_NODE:
            making[file.node].append(file.time - granted)
        if file.status is not Status.PENDING and len(decided[file.node]) < _PER_NODE:
            decided[file.node].append(file.status is Status.ACCEPTED)
    durations = {node: seconds for node, seconds in making.items() if seconds}
    gaps = [later.time - earlier.time for earlier, later in pairwise(pool.steps[-_STEPS:])]
    return Pace(
        making={node: median(seconds) for node, seconds in durations.items()},
        made={node: len(seconds) for node, seconds in durations.items()},
        typical=median([value for seconds in durations.values() for value in seconds]) if durations else 0.0,
        step=float(median(gaps)) if gaps else 0.0,
        useful={node: (sum(good) + _PRIOR_FILES) / (len(good) + _PRIOR_FILES) for node, good in decided.items()},
    )


class Lease(NamedTuple):
    """Permission to make the node's file number `counter`. Heartbeats move `expires`, never beyond `limit`."""

    id: str
    node: str
    step: int
    counter: int
    granted: float
    expires: float
    limit: float


@dataclass(frozen=True)
class QueueState:
    """Everything a decision depends on, at one moment.

    published: newest policy step on chain, or None; usable: newest whose seed block has its confirmations, or None;
    trained: newest step that the trainer reported as made; consumed: sequences it reported; files: those that may still
    be trained on; leases: the open ones; asked: node → when it was last told to wait; granted: node → when it last got
    a lease; reached: node → the newest step that it ever got a lease of; closed: why no more work will ever be wanted,
    or empty; halted: why none is taken for now, or empty; affordable: further files that the free budget covers;
    changed: when a file was last settled or consumed or a step published; count: the files in flight, if counted;
    over: whether the trainer reported a last step.
    """

    published: int | None
    usable: int | None = None
    trained: int = 0
    consumed: Collection[int] = ()
    files: Collection[Submission] = ()
    leases: Collection[Lease] = ()
    asked: Mapping[str, float] = field(default_factory=dict)
    granted: Mapping[str, float] = field(default_factory=dict)
    reached: Mapping[str, int] = field(default_factory=dict)
    closed: str = ""
    halted: str = ""
    affordable: int = 1 << 60
    changed: float = math.inf
    pace: Pace = field(default_factory=Pace)
    count: InFlightEntry | None = None
    over: bool = False


def oldest_step(rule: Rule, queue: QueueState) -> int:
    """Return the oldest policy step whose files the next training step still uses."""
    return 0 if rule.bought else max(0, (queue.published or 0) - rule.max_off_policy_steps)


def _useful(rule: Rule, queue: QueueState, now: float) -> tuple[list[Lease], list[str]]:
    """Return the leases that have not run out, and the nodes of pending files, all young enough for the next step."""
    oldest = oldest_step(rule, queue)
    leases = [lease for lease in queue.leases if lease.expires > now and lease.step >= oldest]
    return leases, [file.node for file in queue.files if file.status is Status.PENDING and file.step >= oldest]


def in_flight(rule: Rule, queue: QueueState, now: float) -> InFlightEntry:
    """Count the files in flight. The trainer's reports may lag behind the chain: files that no report names yet are
    taken to be the oldest accepted ones."""
    published = max(queue.published or 0, queue.trained)
    accepted = sorted(
        (f for f in queue.files if f.status is Status.ACCEPTED and f.sequence not in queue.consumed),
        key=lambda f: f.sequence,
    )
    fresh = [f for f in accepted[_unreported(rule, queue) :] if f.step >= oldest_step(rule, queue)]
    leased, pending = _useful(rule, queue, now)
    coming = [lease.node for lease in leased if now - lease.granted <= _patience(rule, queue.pace, lease.node)]
    needed = rule.bought or max(0, rule.steps - published) * rule.most_files
    # A node's record counts for half at least, so that many bad files cannot flood a pool.
    weights = {node: min(1.0, max(0.5, share)) for node, share in queue.pace.useful.items()}
    expected = len(fresh) + sum([weights.get(node, 1.0) for node in pending + coming])
    return InFlightEntry(
        leased=len(leased), pending=len(pending), accepted=len(fresh), needed=needed, expected=expected
    )


def _unreported(rule: Rule, queue: QueueState) -> int:
    """Return how many files the published steps were made of that no report names."""
    if rule.bought:
        return 0
    published = queue.published or 0
    unreported = max(0, published - queue.trained) * rule.files_per_step
    if rule.most_files > rule.files_per_step:
        return unreported
    return min(unreported, max(0, published * rule.files_per_step - len(queue.consumed)))


def _patience(rule: Rule, pace: Pace, node: str) -> float:
    """Return the seconds after which a lease no longer counts as coming, though its node is alive."""
    usual = max(pace.typical, pace.making.get(node, 0.0))
    return max(rule.lease_seconds, 4 * usual) if pace.typical > 0 else math.inf


@dataclass(frozen=True)
class Requester:
    """A node that asks for work. `counter`: its next one on chain; `barred`: why it may not submit, or empty; `ready`:
    the newest policy step whose weights it says it has, or None if it says nothing; `leases`: its open ones;
    `handed_in`: its files from that counter on that wait to be relayed."""

    address: str
    counter: int
    joined_step: int
    barred: str = ""
    ready: int | None = None
    leases: Collection[Lease] = ()
    handed_in: int = 0


@dataclass(frozen=True)
class Grant:
    """The node has this lease from now on: one that it had, extended, or a new one, which has no `id` yet and ends the
    lease `replaces`."""

    lease: Lease
    replaces: str = ""


@dataclass(frozen=True)
class Wait:
    """The node may ask again after `seconds`. `queued`: others wait for it if it comes first."""

    seconds: float
    reason: str
    queued: bool = False


@dataclass(frozen=True)
class Refuse:
    """The node may not work in this pool, for this `reason`."""

    reason: str


Decision = Grant | Wait | Refuse


def decide(rule: Rule, queue: QueueState, node: Requester, counter: int | None, now: float) -> Decision:
    """Decide for a node that asks for work at `now`; `counter` is the file it wants to make, None for its next."""
    if why := node.barred or queue.closed:
        return Refuse(why)
    if queue.halted:
        return Wait(5.0, queue.halted)
    wanted = node.counter if counter is None else counter
    if wanted < node.counter:
        return Wait(1.0, f"file {wanted} of this node is on chain already, its next is {node.counter}")
    most = _most_leases(rule, queue.pace, node.address)
    due = node.counter + min(node.handed_in, max(MOST_HANDED_IN, most))
    if wanted >= due + most:
        return Wait(2.0, f"file {wanted} is too far ahead of file {due}, the next that this node is to hand in")
    step = _step(rule, queue, node)
    if isinstance(step, Wait):
        return step
    own = {lease.counter: lease for lease in node.leases if lease.expires > now}
    current = own.get(wanted)
    making = sum(submitted >= due for submitted in own)
    if current is None and making >= most:
        return Wait(2.0, f"this node has {making} open leases; hand in a file or let one run out")
    if _may_finish_download(rule, queue, node, step) and (current is None or current.step < step):
        earlier = _lease(rule, queue, node, step - 1, wanted, current, now)
        if not isinstance(earlier, Wait):
            return earlier
    return _lease(rule, queue, node, step, wanted, current, now)


def _most_leases(rule: Rule, pace: Pace, address: str) -> int:
    """Return how many leases a node may hold. One with many GPUs computes rows of many files at a time; but one that
    takes more than half a lease's life for a file would lose those that it holds besides, and one that delivers little
    must not keep the places of others."""
    making = pace.making.get(address)
    if making is None or making > rule.lease_limit / 2:
        return _AHEAD
    return min(MOST_LEASES, max(_AHEAD, _EARNED * pace.made.get(address, 0)))


def renew(rule: Rule, lease: Lease, now: float) -> float:
    """Return when a lease ends after a heartbeat at `now`; an expired lease stays expired."""
    return lease.expires if lease.expires <= now else max(lease.expires, min(now + rule.lease_seconds, lease.limit))


def _lease(
    rule: Rule, queue: QueueState, node: Requester, step: int, counter: int, current: Lease | None, now: float
) -> Grant | Wait:
    """Decide on a lease of policy step `step`, in place of the one that the node may hold for this counter."""
    if current is not None and current.step == step:
        return Grant(current._replace(expires=renew(rule, current, now)))
    if current is None or current.step < oldest_step(rule, queue):
        wait = _place(rule, queue, node, step, now)
        if wait is not None:
            return wait
    limit = current.limit if current else now + rule.lease_limit
    lease = Lease("", node.address, step, counter, now, min(now + rule.lease_seconds, limit), limit)
    return Grant(lease, replaces=current.id if current else "")


def _step(rule: Rule, queue: QueueState, node: Requester) -> int | Wait:
    if queue.published is None:
        return Wait(1.0, "the first policy step is not published yet")
    if not rule.bought and (queue.over or max(queue.published, queue.trained) >= rule.steps):
        return Wait(10.0, "all training steps are done")
    if queue.usable is None or (not rule.bought and queue.usable < queue.published - rule.max_off_policy_steps):
        return Wait(0.5, f"the seed block of policy step {queue.published} is not confirmed yet")
    if queue.usable < node.joined_step:
        return Wait(1.0, f"this node joined late: it may work from policy step {node.joined_step} on")
    return queue.usable


def _may_finish_download(rule: Rule, queue: QueueState, node: Requester, step: int) -> bool:
    """Return whether a node that does not have `step`, the newest usable one, may make files of the one before
    meanwhile. Only a node that was granted that one while it was the newest may, whatever it says. Its files have to be
    as young as everybody's when their turn comes, so there are fewer places for them."""
    earlier = step - 1
    if node.ready != earlier or queue.reached.get(node.address) != earlier:
        return False
    return earlier >= max(node.joined_step, oldest_step(rule, queue))


def _place(rule: Rule, queue: QueueState, node: Requester, step: int, now: float) -> Wait | None:
    """Return why there is no place for a new file of policy step `step`, or None."""
    count = queue.count or in_flight(rule, queue, now)
    if count.leased >= queue.affordable:
        return Wait(5.0, "the pool's free budget covers no further file")
    # Behind this many useful files, a file would be too old when its turn comes.
    room = rule.room(max(0, (queue.published or 0) - step))
    free = math.floor(min(room, count.needed) - count.expected + _ROUNDING)
    # An accepted file that the trainer cannot use must not hold a place forever, or the run could never end.
    stalled = count.expected <= count.accepted and now - queue.changed >= STALL_SECONDS
    if free <= 0 and stalled and count.needed and not rule.bought:
        free = 1
    if free <= 0:
        return _full(rule, queue, count, room)
    # The next training step takes files from anyone; beyond it, only files that will arrive in time are wanted.
    overtaking = _overtaking(rule, queue, node, now)
    if overtaking and count.expected >= rule.files_per_step and count.expected + overtaking >= room:
        own, usual = queue.pace.making[node.address], queue.pace.typical
        return Wait(2.0, f"this node's files take {own:.0f} s, others' {usual:.0f} s: now they would come too late")
    return _turn(rule, queue, node, free, now)


def _full(rule: Rule, queue: QueueState, count: InFlightEntry, room: int) -> Wait:
    if rule.bought and count.accepted >= count.needed:
        return Wait(10.0, f"the {count.needed} files that the pool buys are accepted")
    if count.needed - count.expected < 1:
        buyer = "the pool buys" if rule.bought else "the last training steps need"
        return Wait(2.0, f"the {count.needed} files that {buyer} are being made", queued=True)
    if room < rule.room():
        reason = f"policy step {queue.published} is about to be usable; files of the one before would come too late"
        return Wait(_ask_again(queue), reason, queued=True)
    reason = f"{count.total} files are in flight, as many as training can use ({rule.room()})"
    return Wait(_ask_again(queue), reason, queued=True)


def _ask_again(queue: QueueState) -> float:
    """Return after how many seconds a waiting node asks again: a twentieth of what a file takes, so that places stay
    free for a short time only, and all together ask at most 50 times a second."""
    return min(4.0, max(0.4, queue.pace.typical / 20, len(queue.asked) / 50))


def _overtaking(rule: Rule, queue: QueueState, node: Requester, now: float) -> int:
    """Return how many files that are requested after the node's next one will be submitted before it."""
    pace = queue.pace
    own = pace.making.get(node.address)
    if own is None or pace.step <= 0:
        return 0
    # When steps take longer than they did, fewer files overtake.
    steps = max(0.0, own - pace.typical) / max(pace.step, now - queue.changed)
    return math.floor(steps + _ROUNDING) * rule.files_per_step


def _turn(rule: Rule, queue: QueueState, node: Requester, free: int, now: float) -> Wait | None:
    """Return why other nodes come first for the `free` places, or None: those with less in flight do."""
    rivals = [other for other, when in queue.asked.items() if other != node.address and now - when <= WAITING_SECONDS]
    if len(rivals) < free:
        return None
    _, pending = _useful(rule, queue, now)
    load = Counter([*pending, *(lease.node for lease in queue.leases if lease.expires > now)])

    def rank(address: str) -> tuple[int, float, str]:
        return load[address], queue.granted.get(address, 0.0), address

    before = sum(rank(other) < rank(node.address) for other in rivals)
    if before < free:
        return None
    return Wait(_ask_again(queue), f"{before} nodes with less in flight are served first", queued=True)
