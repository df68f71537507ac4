"""The end of a demo: every verdict final, everybody paid, the books compared with the chain, results written."""

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cli.demo.watch import Watch
from protocol.chain.records import Status
from protocol.chain.state import State

if TYPE_CHECKING:
    from cli.demo.run import Demo

SETTLE_SECONDS = 180.0


@dataclass(frozen=True)
class Outcome:
    """`good`: the books balance, cheaters were slashed, ejected and untrained, nobody honest was finally rejected."""

    summary: dict[str, Any]
    good: bool


def settle_accounts(demo: "Demo", watch: Watch) -> None:
    """Wait, bounded, until every outcome is final, vested pay is claimed and fees are paid out."""
    demo.say("waiting for the last verdicts, challenge windows and claims")
    end = time.monotonic() + SETTLE_SECONDS
    last = ""
    while time.monotonic() < end:
        demo.stop.check()
        demo.network.supervisor.check()
        watch.look()
        left = unsettled(watch.state, demo.pool, demo.economy.client("deployer").now())
        if not left:
            return
        if left != last:
            demo.say(f"left: {left}")
            last = left
        time.sleep(1.0)
    demo.say(f"not everything settled within {SETTLE_SECONDS:.0f} s: {last}")


def unsettled(state: State, pool: int, now: int) -> str:
    """What still has to happen on chain, in words; empty when the books can be closed."""
    files = state.submissions_of(pool)
    pending = sum(f.status is Status.PENDING for f in files)
    open_ones = sum(not f.is_final(now) for f in files) - pending
    unclaimed = sum(
        a.units_accepted > a.units_drawn for (of, _), a in state.accounts.items() if of == pool and not a.ejected
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


def write_results(demo: "Demo", watch: Watch) -> Outcome:
    """Summary and report of the run, from the chain, the trainer's records and the orchestrator's."""
    summary: dict[str, Any] = {}
    (demo.plan.root / "summary.json").write_text(json.dumps(summary, indent=2))
    return Outcome(summary, good=False)
