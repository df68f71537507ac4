"""What a worker does next: a pure function of the chain's state and its journal.

Kills and reorganisations need no special cases: the account's counter on chain says which file is due, and the journal
says whether it exists already.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from chain.indexer.records import Account, Pool
from chain.indexer.state import Standing, State, standing_of
from worker.journal import JournalEntry


class Do(Enum):
    """Stop for good, wait and poll again, hand in a finished file, or make the next one."""

    STOP = "stop"
    WAIT = "wait"
    RESUME = "resume"
    MAKE = "make"


@dataclass(frozen=True)
class Decision:
    """`reason` is a sentence for people. `counter` is the due file's; `entry` the one to resume; `steps` those for
    which a new file may be made, newest last. `failed` tells a stop by ejection from one by a closed pool."""

    do: Do
    reason: str = ""
    counter: int = 0
    entry: JournalEntry | None = None
    steps: tuple[int, ...] = ()
    failed: bool = False


def decide(
    state: State, pool_id: int, node: str, entries: Iterable[JournalEntry], seeds: Mapping[int, bytes]
) -> Decision:
    """Return the next thing to do. `seeds`: of the steps whose seed blocks are confirmed; `entries`: the journal's."""
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
    for entry in entries:
        current = entry.step in steps and seeds[entry.step] == entry.step_seed
        takes = _promised(entry, pool, account, seeds) or (current and not _closed(pool_id, pool, standing))
        if entry.counter == account.counter and takes:
            return Decision(Do.RESUME, "a finished file is not on chain", entry.counter, entry, steps)
    closed = _closed(pool_id, pool, standing)
    waiting = next(state.unattested(pool_id, node), None) if closed and closed.do is Do.STOP else None
    if waiting is not None:
        return Decision(Do.WAIT, f"submission {waiting.sequence} is not attested yet: its receipt may be needed")
    if closed:
        return closed
    if not steps:
        return Decision(Do.WAIT, "no policy step with a confirmed seed that this node may work for")
    return Decision(Do.MAKE, "", account.counter, None, steps)


def _promised(entry: JournalEntry, pool: Pool, account: Account, seeds: Mapping[int, bytes]) -> bool:
    """Whether the pool promised by its receipt to take this file, whatever has changed since. A seed that a
    reorganisation changed makes the receipt another file's."""
    valid = entry.receipt is not None and not entry.overdue and pool.status != "settled"
    known = account.joined_step <= entry.step <= pool.step
    return valid and known and seeds.get(entry.step, entry.step_seed) == entry.step_seed


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
