"""The end of a demo: every verdict final, everybody paid, the books compared with the chain, results written."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chain.records import Status
from chain.state import State
from demo.agreement import agreement
from demo.layout import POOL
from demo.watch import Watch
from orchestrator.results import save_results

if TYPE_CHECKING:
    from demo.run import Demo

SETTLE_SECONDS = 180.0


@dataclass(frozen=True)
class Outcome:
    """`good`: the books balance, cheaters were slashed, ejected and untrained, nobody honest was finally rejected, and
    honest validators agree."""

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
        left = unsettled(watch.state, POOL, demo.onboarding.client("deployer").now())
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


def write_results(demo: "Demo") -> Outcome:
    """`summary.json` and `report.html`, from the orchestrator's record; its audit compared the books with the chain."""
    cheaters = [demo.ring[f"node-{node.name}"].address for node in demo.plan.nodes if node.cheats]
    seconds = time.monotonic() - demo.started
    judges = agreement(demo.plan)
    summary = save_results(
        demo.plan.http_url,
        demo.plan.root,
        seed=demo.plan.seed,
        seconds=seconds,
        cheaters=cheaters,
        agreement=judges,
    )
    wrong = list(misgivings(summary))
    _tell(demo, summary, wrong)
    return Outcome(summary, not wrong)


def misgivings(summary: dict[str, Any]) -> Iterator[str]:
    """What a good run must not show, in words."""
    if not summary["ledger_matches_chain"]:
        yield "the ledger differs from the chain"
    if not summary["escrow_balanced"]:
        yield "the escrow does not balance"
    if summary["honest_rejected"]:
        yield f"{summary['honest_rejected']} honest files were rejected"
    for cheater in summary["cheaters"]:
        if not (cheater["slashed"] and cheater["ejected"]):
            yield f"the cheater {cheater['address']} got away"
        if cheater["rollouts_trained"]:
            yield f"{cheater['rollouts_trained']} rollouts of the cheater {cheater['address']} were trained on"
    for one in summary["agreement"]["differing"]:
        said = ", ".join(f"{name} says {code}" for name, code in one["codes"].items())
        yield f"honest validators differ on file {one['submission']}: {said}"


def _tell(demo: "Demo", summary: dict[str, Any], wrong: list[str]) -> None:
    files = summary["submissions"]
    lines = [
        f"held-out reward {shown(summary['reward_first'])} → {shown(summary['reward_last'])} "
        f"in {summary['steps']} steps, {summary['seconds']:.0f} s",
        f"files: {files['accepted']} accepted, {files['rejected']} refused; "
        f"{summary['tokens_verified']:,} tokens verified and paid",
    ]
    for one in summary["cheaters"]:
        fate = "slashed and ejected" if one["slashed"] and one["ejected"] else "NOT caught"
        lines.append(f"cheater {one['address']}: {fate} ({one['reason']}), {one['rollouts_trained']} rollouts trained")
    lines += list(_justice(summary))
    lines.append(_accord(summary["agreement"]))
    books = "yes, to the last grain" if summary["ledger_matches_chain"] else "NO"
    lines.append(f"ledger equals chain: {books}; escrow balances: {'yes' if summary['escrow_balanced'] else 'NO'}")
    lines += [f"NOT GOOD: {what}" for what in wrong]
    lines.append(f"report: {demo.plan.root / 'report.html'} · figures: {demo.plan.root / 'summary.json'}")
    for line in lines:
        demo.say(line)


def _justice(summary: dict[str, Any]) -> Iterator[str]:
    won = [one for one in summary["disputes"] if one["overturned"]]
    for one in won:
        yield f"dispute won: the jury overturned the wrong outcome of file {one['sequence']}"
    caught = [one for one in summary["canaries"] if one["slashed"]]
    if summary["canaries"]:
        yield f"canaries: {len(summary['canaries'])} opened, {len(caught)} accepted by a lazy validator, which paid"


def _accord(found: dict[str, Any]) -> str:
    judges = ", ".join(f"{one['engine']} with batch {one['batch']}" for one in found["validators"])
    return (
        f"honest validators ({judges}): {found['compared']} files judged by more than one, "
        f"{len(found['differing'])} verdicts differ"
    )


def shown(reward: float | None) -> str:
    return "not measured" if reward is None else f"{reward:.3f}"
