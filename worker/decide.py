"""What a worker does next: a pure function of the chain's state and its journal.

Kills and reorganisations need no special cases: the account's counter on chain says which file is due, and the journal
says whether it exists already.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from chain.indexer.records import Account, Pool, Terms
from chain.indexer.state import Standing, State, standing_of
from protocol.api.work import MOST_HANDED_IN
from worker.journal import JournalEntry


class Do(Enum):
    """Stop for good, wait and poll again, give a finished file to the service, submit one by its receipt, or make the
    next one."""

    STOP = "stop"
    WAIT = "wait"
    HAND_IN = "hand in"
    SUBMIT = "submit"
    MAKE = "make"


@dataclass(frozen=True)
class Decision:
    """`counter` is that of the file to make; `entry` the one to hand in or submit, or the one that is waited for;
    `steps` those for which a new file may be made, newest last. `failed`: a stop by ejection or removal."""

    do: Do
    reason: str = ""
    counter: int = 0
    entry: JournalEntry | None = None
    steps: tuple[int, ...] = ()
    failed: bool = False


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
) -> Decision:
    """Return the next thing to do at chain time `now`. `seeds`: of the steps whose seed blocks are confirmed;
    `entries`: the journal's; `handed_in`: the stems of those that the service has."""
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
    due = usable.get(account.counter)
    if due is not None and _is_left_out(state, due, pool, account, now):
        return Decision(Do.SUBMIT, "the service does not relay a file", entry=due)
    if counter in usable:
        return Decision(Do.HAND_IN, "a finished file is not on chain", entry=usable[counter])
    if closed and not waiting:
        return closed
    if closed or len(waiting) >= MOST_HANDED_IN:
        files = f"{len(waiting)} files wait for the service to relay them, the first is file {account.counter}"
        return Decision(Do.WAIT, files, entry=waiting[0])
    if not steps:
        return Decision(Do.WAIT, "no policy step with a confirmed seed that this node may work for")
    return Decision(Do.MAKE, "", counter, None, steps)


def _is_left_out(state: State, entry: JournalEntry, pool: Pool, account: Account, now: int) -> bool:
    """Whether the service has long had a file, and the earlier ones are on chain."""
    if entry.receipt is None or entry.overdue:
        return False
    last = state.submissions[account.pool, account.sequences[-1]].time if account.sequences else 0
    return now >= max(entry.receipt.time, last) + relay_patience(pool.terms)


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
