"""Follows a run from the outside, through the chain and the trainer's records, and prints what happens."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chain.projection import Projection
from chain.records import Status
from chain.state import State
from protocol.amounts import show_tokens
from protocol.errors import MusterError
from protocol.verdict import Code
from trainer.records import read_records

SILENCE_SECONDS = 6.0


@dataclass
class RunMonitor:
    """One line whenever something worth a line happens, and at least every few seconds how things stand."""

    projection: Projection
    pool: int
    steps: int
    home: Path
    say: Callable[[str], None]
    names: dict[str, str]
    printed: set[tuple[Any, ...]] = field(default_factory=set)
    last: float = 0.0
    problem: str = ""

    @property
    def state(self) -> State:
        return self.projection.state

    def look(self) -> None:
        """Refresh and print what is new. A chain that is down is reported, not raised."""
        try:
            self.projection.refresh()
            self.problem = ""
        except MusterError as error:
            self.problem = error.what
        self._report_steps()
        self._report_enforcement()
        if time.monotonic() - self.last > SILENCE_SECONDS:
            self._line(self.problem or self.standing())

    def metrics(self) -> list[dict[str, Any]]:
        """The trainer's records, one per step (the last one written counts), in its home folder."""
        found = [record for path in self.home.glob("*/metrics.jsonl") for record in read_records(path)]
        by_step = {record["step"]: record for record in found if "step" in record}
        return [by_step[step] for step in sorted(by_step)]

    def standing(self) -> str:
        files = self.state.submissions_of(self.pool)
        count = {status: sum(f.status == status for f in files) for status in Status}
        earned = sum(a.units_awarded for (p, _), a in self.state.accounts.items() if p == self.pool)
        pool = self.state.pools.get(self.pool)
        rate = pool.terms.rate if pool else 0
        refused = len(files) - count[Status.ACCEPTED] - count[Status.PENDING]
        return (
            f"files: {count[Status.ACCEPTED]} accepted, {refused} refused, {count[Status.PENDING]} being checked · "
            f"{earned:,} tokens verified · {show_tokens(earned * rate)} MUS earned"
        )

    def _report_steps(self) -> None:
        for record in self.metrics():
            step = record["step"]
            if step and self._first("step", step):
                reward = record.get("reward_mean", record.get("reward"))
                shown = f"reward {reward:.3f}" if isinstance(reward, float) else "trained"
                self._line(f"step {step:>2}/{self.steps} · {shown} · {self.standing()}")

    def _report_enforcement(self) -> None:
        state = self.state
        for (pool, node), account in list(state.accounts.items()):
            if pool != self.pool:
                continue
            who = self.names.get(node, node)
            if account.frozen_at and self._first("frozen", node, account.frozen_at):
                self._line(f"⚖ {who}: a file was rejected, its stake is frozen until the challenge window ends")
            if account.ejected and self._first("ejected", node):
                reason = Code(account.eject_code).label
                self._line(f"⚖ {who} SLASHED {show_tokens(account.slashed)} MUS and EJECTED: {reason}")
        for dispute in state.disputes.values():
            who = self.names.get(dispute.disputer, dispute.disputer)
            if self._first("dispute", dispute.sequence):
                self._line(f"⚖ {who} disputes the outcome of file {dispute.sequence}: a jury is drawn")
            if dispute.resolved and self._first("resolved", dispute.sequence):
                verb = "OVERTURNED" if dispute.overturned else "upheld"
                self._line(f"⚖ the jury {verb} file {dispute.sequence}: {Code(dispute.code).label}")
        for canary in state.canaries.values():
            if self._first("canary", canary.sequence):
                self._line(f"⚖ file {canary.sequence} was a canary; seats {list(canary.accused)} accepted it")
            if canary.concluded and self._first("canary done", canary.sequence):
                lost = ", ".join(f"seat {seat} loses {show_tokens(g)} MUS" for seat, g in canary.slashed.items())
                self._line(
                    f"⚖ canary {canary.sequence} {'upheld' if canary.upheld else 'refused'}: {lost or 'nobody pays'}"
                )

    def _first(self, *what: Any) -> bool:
        if what in self.printed:
            return False
        self.printed.add(what)
        return True

    def _line(self, text: str) -> None:
        self.say(text)
        self.last = time.monotonic()
