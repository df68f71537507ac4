"""What a worker does next: a pure function of the chain's state and its journal.

Kills and reorganisations need no special cases: the account's counter on chain says which file is due, and the journal
says whether it exists already.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from chain.indexer.records import Account, Pool, Terms
from chain.indexer.state import Standing, State, standing_of
from protocol.api.work import MOST_HANDED_IN, MOST_LEASES
from worker.journal import JournalEntry

_FULL = 1.25  # requests for each slot of the batch, from which on nothing more is taken


class Do(Enum):
    """What to do with the files that are finished: stop for good, wait and poll again, give one to the service, or
    submit one by its receipt."""

    STOP = "stop"
    WAIT = "wait"
    HAND_IN = "hand in"
    SUBMIT = "submit"


@dataclass(frozen=True)
class Decision:
    """`entry` is the file to hand in or submit, or the one that is waited for. `counter` is that of the file to make
    meanwhile, None if none is to be made; `steps` those for which it may be made, newest last. `failed`: a stop by
    ejection or removal."""

    do: Do
    reason: str = ""
    entry: JournalEntry | None = None
    counter: int | None = None
    steps: tuple[int, ...] = ()
    failed: bool = False


@dataclass(frozen=True)
class Load:
    """What a worker's engines compute now, and how fast. `slots`: requests that they compute at once; `waiting`: those
    that did not end yet; `rate`: tokens per second, 0 while unknown; `tokens`: of a row, on average."""

    files: int
    slots: int
    waiting: int
    rate: float = 0.0
    tokens: float = 0.0


def has_room(load: Load, rows: int, seconds: float) -> bool:
    """Return whether a worker should take another file of `rows` rows, whose lease ends for good after `seconds`. One
    is always made. More are taken as long as the batch would run short, and all of them are likely to be done within
    half of that time: a slow machine holds no lease that it cannot use."""
    if load.files == 0:
        return True
    if load.files >= MOST_LEASES or load.waiting >= load.slots * _FULL:
        return False
    return load.rate > 0 and (load.waiting + rows) * load.tokens / load.rate <= seconds / 2


def relay_patience(terms: Terms) -> int:
    """Return the seconds after which a node submits by itself what the service does not relay."""
    return min(terms.receiptWindow // 2, 600)


def decide(
    state: State,
    pool_id: int,
    node: str,
    entries: Iterable[JournalEntry],
    seeds: Mapping[int, bytes],
    handed_in: Container[str],
    now: int,
    making: Container[int] = (),
) -> Decision:
    """Return the next thing to do at chain time `now`. `seeds`: of the steps whose seed blocks are confirmed;
    `entries`: the journal's; `handed_in`: the stems of those that the service has; `making`: counters under way."""
    pool, account = state.pools.get(pool_id), state.accounts.get((pool_id, node))
    standing = standing_of(account)
    if pool is None:
        return Decision(Do.WAIT, f"pool {pool_id} is not on this chain (yet)")
    if account is None:
        return Decision(Do.WAIT, f"the node has not joined pool {pool_id}")
    if standing is Standing.EJECTED:
        return Decision(Do.STOP, f"the node was ejected from pool {pool_id}: {account.eject_reason}", failed=True)
    if standing is Standing.FROZEN:
        return Decision(Do.WAIT, "one of the node's files was refused and is not final: no submissions until it is")
    # The contract takes files for these, and their seeds are deep enough to be built on.
    oldest = max(account.joined_step, pool.step - pool.terms.maxLag, 0)
    steps = tuple(step for step in range(oldest, pool.step + 1) if step in seeds)
    closed = _closed(pool_id, pool, standing)

    def takes(entry: JournalEntry) -> bool:
        current = entry.step in steps and seeds[entry.step] == entry.step_seed
        return _promised(entry, pool, account, seeds) or (current and not closed)

    counter, waiting = account.counter, list[JournalEntry]()
    usable = {entry.counter: entry for entry in entries if takes(entry)}
    while counter in usable and usable[counter].stem in handed_in:
        waiting.append(usable[counter])
        counter += 1
    next_file = counter
    while next_file in usable or next_file in making:
        next_file += 1
    full = len(waiting) >= _most_waiting(waiting, pool.terms, now)
    makes = bool(steps) and not closed and not full
    decided = partial(Decision, counter=next_file if makes else None, steps=steps)
    due = usable.get(account.counter)
    if due is not None and _is_left_out(state, due, pool, account, now):
        return decided(Do.SUBMIT, "the service does not relay a file", due)
    if counter in usable:
        return decided(Do.HAND_IN, "a finished file is not on chain", usable[counter])
    if closed and not waiting:
        return closed
    if closed or full:
        files = f"{len(waiting)} files wait for the service to relay them, the first is file {account.counter}"
        return decided(Do.WAIT, files, waiting[0])
    if not steps:
        return Decision(Do.WAIT, "no policy step with a confirmed seed that this node may work for")
    return decided(Do.WAIT)


def _most_waiting(waiting: Sequence[JournalEntry], terms: Terms, now: int) -> int:
    """Return how many files may wait for the service while another one is made. It relays a full lane at once, so a
    node that fills lanes goes on while none waits long. A service that stops relaying costs it few files, or what it
    makes in a tenth of its patience."""
    receipt = waiting[0].receipt if waiting else None
    soon = receipt is not None and now < receipt.time + relay_patience(terms) / 10
    return MOST_LEASES if soon else MOST_HANDED_IN


def _is_left_out(state: State, entry: JournalEntry, pool: Pool, account: Account, now: int) -> bool:
    """Whether the service has long had a file, or its receipt ends soon, and the earlier ones are on chain."""
    if entry.receipt is None or entry.overdue:
        return False
    last = state.submissions[account.pool, account.sequences[-1]].time if account.sequences else 0
    patience, ends = relay_patience(pool.terms), entry.receipt.time + pool.terms.receiptWindow
    # Of many files each would otherwise wait for the one before, and the last beyond their receipts.
    return now >= max(entry.receipt.time, last) + patience or ends - patience / 2 <= now <= ends


def _promised(entry: JournalEntry, pool: Pool, account: Account, seeds: Mapping[int, bytes]) -> bool:
    """Whether the pool promised by its receipt to take this file, unless a reorganisation changed its seed: that of a
    newer step is known once it is confirmed, that of an older one no longer asked for."""
    valid = entry.receipt is not None and not entry.overdue and pool.status != "settled"
    known = account.joined_step <= entry.step <= pool.step
    older = entry.step < pool.step - pool.terms.maxLag
    return valid and known and seeds.get(entry.step, entry.step_seed if older else None) == entry.step_seed


def _closed(pool_id: int, pool: Pool, standing: Standing) -> Decision | None:
    """Return why nothing new is taken from this node, if so."""
    if standing is Standing.REMOVED:
        return Decision(Do.STOP, f"the owner removed the node from pool {pool_id}", failed=True)
    if pool.status in ("closing", "settled"):
        return Decision(Do.STOP, f"pool {pool_id} is {pool.status}: no more files are taken")
    if standing is Standing.LEFT:
        return Decision(Do.WAIT, f"the node has not joined pool {pool_id}")
    if pool.status == "paused":
        return Decision(Do.WAIT, f"pool {pool_id} is paused by its owner")
    if pool.status == "understaffed":
        return Decision(Do.WAIT, f"too few seats judge pool {pool_id}: it takes no work until more opt in")
    return None
