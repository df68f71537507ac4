"""The end of a run on chain: every verdict final, vested pay claimed, committees' fees paid out."""

import time
from collections.abc import Callable

from chain.records import Status
from chain.state import State
from localnet.monitor import RunMonitor
from localnet.plan import POOL

SETTLE_SECONDS = 180.0


def settle_accounts(
    monitor: RunMonitor, chain_time: Callable[[], int], check: Callable[[], None], say: Callable[[str], None]
) -> None:
    """Wait, bounded, until nothing of the pool is unsettled. `chain_time` gives the chain's clock in seconds; `check`
    keeps the network up."""
    say("waiting for the last verdicts, challenge windows and claims")
    end = time.monotonic() + SETTLE_SECONDS
    last = ""
    while time.monotonic() < end:
        check()
        monitor.look()
        left = unsettled(monitor.state, POOL, chain_time())
        if not left:
            return
        if left != last:
            say(f"left: {left}")
            last = left
        time.sleep(1.0)
    say(f"not everything settled within {SETTLE_SECONDS:.0f} s: {last}")


def unsettled(state: State, pool: int, now: int) -> str:
    """What still has to happen on chain, in words; empty when the books can be closed."""
    files = state.submissions_of(pool)
    pending = sum(f.status is Status.PENDING for f in files)
    open_ones = sum(not f.is_final(now) for f in files) - pending
    unclaimed = sum(
        a.units_awarded > a.units_spent for (of, _), a in state.accounts.items() if of == pool and not a.ejected
    )
    unpaid = sum(
        len(one.closed) < len(one.seats)
        for (of, _), lane in state.lanes.items()
        for one in lane.rounds
        if of == pool and one.settled
    )
    parts = {
        "files being checked": pending,
        "outcomes inside their challenge window": open_ones,
        "nodes with unclaimed pay": unclaimed,
        "committees without their fees": unpaid,
    }
    return ", ".join(f"{count} {what}" for what, count in parts.items() if count)
