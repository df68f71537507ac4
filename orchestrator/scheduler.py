"""Work slots: who may make which file now. Pure; the shell around it (orchestrator/leases.py) keeps the leases.

Staleness: training step k+1 uses files of steps ≥ k − async_level, k being the newest published step. A step consumes a
fixed number of files, so a file's age when it is used follows from its place in the queue, not from the clock: with n
useful files before it, ⌊n / files_per_step⌋ more steps are made first. A slot is granted if the file will still be
fresh enough then: no worker makes a file that nobody will train on, and enough are in flight that the trainer need not
wait for a whole round trip. The clock matters only where files overtake one another: a node that is slower than the
others by whole policy steps is overtaken by as many steps' files.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from chain.indexer.records import Status
from orchestrator.supply import Lease, Rule, Supply, in_flight, live_leases, oldest_step
from protocol.api.run import InFlightEntry


@dataclass(frozen=True)
class Requester:
    """A node that asks for work. `counter`: its next one on chain; `barred`: why it may not submit, or empty; `ready`:
    the newest policy step whose weights it says it has, or None if it says nothing; `leases`: its open ones."""

    address: str
    counter: int
    joined_step: int
    barred: str = ""
    ready: int | None = None
    leases: Collection[Lease] = ()


@dataclass(frozen=True)
class Grant:
    """A new lease; Unix seconds."""

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
    """The node may not work in this pool, now or later, for this `reason`."""

    reason: str


Decision = Grant | Keep | Wait | Refuse


def decide(rule: Rule, supply: Supply, node: Requester, counter: int | None, now: float) -> Decision:
    """What a node that asks for work at `now` is told; `counter` is the file it wants to make, None for its next."""
    if node.barred:
        return Refuse(node.barred)
    if supply.closed:
        return Refuse(supply.closed)
    if supply.halted:
        return Wait(5.0, supply.halted)
    mine = {lease.counter: lease for lease in live_leases(node.leases, now)}
    wanted = node.counter if counter is None else counter
    if wanted < node.counter and counter is not None:
        return Wait(1.0, f"file {wanted} of this node is on chain already, its next is {node.counter}")
    if wanted >= node.counter + rule.ahead:
        return Wait(2.0, f"file {wanted} is too far ahead of file {node.counter}, the next that the chain expects")
    step = _step(rule, supply, node)
    if isinstance(step, Wait):
        return step
    held = mine.get(wanted)
    if held is None and len(mine) >= rule.ahead:
        return Wait(2.0, f"this node has {len(mine)} open slots; submit one or let it run out")
    if _may_finish_download(rule, supply, node, step) and (held is None or held.step < step):
        earlier = _lease(rule, supply, node, step - 1, wanted, held, now)
        if not isinstance(earlier, Wait):
            return earlier
    return _lease(rule, supply, node, step, wanted, held, now)


def _lease(
    rule: Rule, supply: Supply, node: Requester, step: int, counter: int, held: Lease | None, now: float
) -> Grant | Keep | Wait:
    """A lease of policy step `step`, in place of the one that the node may hold for this counter."""
    if held is not None and held.step == step:
        return Keep(held, min(now + rule.lease_seconds, held.limit))
    if held is None or held.step < oldest_step(rule, supply):
        wait = _place(rule, supply, node, step, now)
        if wait is not None:
            return wait
    limit = held.limit if held else now + rule.lease_limit
    return Grant(step, counter, min(now + rule.lease_seconds, limit), limit, held.id if held else None)


def renew(rule: Rule, lease: Lease, now: float) -> float:
    """When a lease ends after a heartbeat at `now`; an expired lease stays expired."""
    return lease.expires if lease.expires <= now else max(lease.expires, min(now + rule.lease_seconds, lease.limit))


def _step(rule: Rule, supply: Supply, node: Requester) -> int | Wait:
    if supply.published is None:
        return Wait(1.0, "the first policy step is not published yet")
    if not rule.bought and max(supply.published, supply.trained) >= rule.steps:
        return Wait(10.0, f"all {rule.steps} training steps are done")
    if supply.usable is None or (not rule.bought and supply.usable < supply.published - rule.async_level):
        return Wait(0.5, f"the seed block of policy step {supply.published} is not confirmed yet")
    if supply.usable < node.joined_step:
        return Wait(1.0, f"this node joined late: it may work from policy step {node.joined_step} on")
    return supply.usable


def _may_finish_download(rule: Rule, supply: Supply, node: Requester, step: int) -> bool:
    """Whether a node that does not have `step`, the newest usable one, may make files of the one before meanwhile.

    Only who was granted that one while it was the newest may: nobody stays behind for two steps running, whatever they
    say. Their files have to be as young as everybody's when their turn comes, so there are fewer places for them.
    """
    earlier = step - 1
    if node.ready != earlier or supply.reached.get(node.address) != earlier:
        return False
    return earlier >= max(node.joined_step, oldest_step(rule, supply))


def _place(rule: Rule, supply: Supply, node: Requester, step: int, now: float) -> Wait | None:
    """Why there is no place for a new file of policy step `step`, or None."""
    count = supply.count or in_flight(rule, supply, now)
    if count.leased >= supply.affordable:
        return Wait(5.0, "the pool's free budget covers no further file")
    # Behind this many useful files, a file would be too old when its turn comes.
    room = rule.room(max(0, (supply.published or 0) - step))
    free = _whole(min(room, count.needed) - count.expected)
    # An accepted file that the trainer cannot use must not hold a place forever, or the run could never end.
    still = count.expected <= count.accepted and now - supply.changed >= rule.stall_seconds
    if free <= 0 and still and count.needed and not rule.bought:
        free = 1
    if free <= 0:
        return _full(rule, supply, count, room)
    # The next training step takes files from anyone; beyond it, only files that will arrive in time are wanted.
    overtaking = _overtaking(rule, supply, node, now)
    if overtaking and count.expected >= rule.files_per_step and count.expected + overtaking >= room:
        own, usual = supply.pace.making[node.address], supply.pace.typical
        return Wait(2.0, f"this node's files take {own:.0f} s, others' {usual:.0f} s: now they would come too late")
    return _turn(rule, supply, node, free, now)


def _whole(places: float) -> int:
    return math.floor(places + 1e-6)


def _full(rule: Rule, supply: Supply, count: InFlightEntry, room: int) -> Wait:
    if rule.bought and count.accepted >= count.needed:
        return Wait(10.0, f"the {count.needed} files that the pool buys are accepted")
    if count.needed - count.expected < 1:
        buyer = "the pool buys" if rule.bought else "the last training steps need"
        why = f"the {count.needed} files that {buyer} are in the making"
        return Wait(2.0, why, queued=True)
    if room < rule.capacity:
        why = f"policy step {supply.published} is about to be usable; files of the one before would come too late"
        return Wait(_soon(supply), why, queued=True)
    why = f"{count.total} files are in flight, as many as training can use ({rule.capacity})"
    return Wait(_soon(supply), why, queued=True)


def _soon(supply: Supply) -> float:
    """Seconds until a waiting node asks again, so that all of them together ask about fifty times a second at most."""
    return min(4.0, max(0.4, len(supply.asked) / 50))


def _overtaking(rule: Rule, supply: Supply, node: Requester, now: float) -> int:
    """How many files that are requested after the node's next one will be submitted before it."""
    pace = supply.pace
    own = pace.making.get(node.address)
    if own is None or pace.step <= 0:
        return 0
    # When steps take longer than they did, fewer files overtake.
    return _whole(max(0.0, own - pace.typical) / max(pace.step, now - supply.changed)) * rule.files_per_step


def _turn(rule: Rule, supply: Supply, node: Requester, free: int, now: float) -> Wait | None:
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
    oldest = oldest_step(rule, supply)
    load = Counter(lease.node for lease in live_leases(supply.leases, now))
    load.update(f.node for f in supply.files if f.status is Status.PENDING and f.step >= oldest)
    return load


def _rank(node: str, load: Counter[str], granted: Mapping[str, float]) -> tuple[int, float, str]:
    return load[node], granted.get(node, 0.0), node
