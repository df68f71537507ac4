"""Slot requests that are answered together, each as if those before it had been answered alone."""

import secrets
from collections import ChainMap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import cast

from orchestrator.scheduler import Decision, Grant, Keep, Requester, Wait, decide
from orchestrator.supply import Lease, Rule, Supply, in_flight, with_lease


@dataclass(frozen=True)
class Ask:
    """What the node `address` asks for: its file `counter`, or None for its next; `ready`: the newest policy step whose
    weights it says it has."""

    address: str
    counter: int | None = None
    ready: int | None = None


Told = tuple[Decision, str | None]
"""A decision, and the id of the lease that the node holds now."""


class Deciding:
    """Decisions of one moment. `supply` is what the next one depends on, `asked` who waits after those so far;
    `open_leases` are those that are open now but for what is granted here.

    Nothing of it lasts before somebody wrote `granted` (leases, and the ids of those that they replace) and renewed
    what was `kept`.
    """

    def __init__(self, rule: Rule, supply: Supply, now: float, open_leases: Callable[[], Iterable[Lease]]) -> None:
        self._rule, self._now, self._open_leases = rule, now, open_leases
        self.asked = dict(supply.asked)
        self.granted: list[tuple[Lease, str | None]] = []
        self.kept: list[Keep] = []
        self._own: dict[str, list[Lease]] = {}
        self._ended: set[str | None] = set()
        self.learn(supply)

    def learn(self, supply: Supply) -> None:
        """Go on with what has become known, before anything is granted."""
        assert not self.granted, "what was granted would be forgotten"
        self._when: dict[str, float] = {}
        self._reached: dict[str, int] = {}
        self.supply = replace(
            supply,
            asked=self.asked,
            granted=ChainMap(self._when, cast(dict[str, float], supply.granted)),
            reached=ChainMap(self._reached, cast(dict[str, int], supply.reached)),
        )

    def held(self, address: str, before: Iterable[Lease]) -> list[Lease]:
        """What a node holds now that held `before` when this began."""
        return [lease for lease in (*before, *self._own.get(address, ())) if lease.id not in self._ended]

    def decide(self, node: Requester, counter: int | None) -> Decision:
        """What a node would be told now."""
        return decide(self._rule, self.supply, node, counter, self._now)

    def take(self, address: str, decision: Decision) -> Told:
        """Let the following decisions know this one."""
        self.asked.pop(address, None)
        if isinstance(decision, Grant):
            return decision, self._open(address, decision).id
        if isinstance(decision, Keep):
            self.kept.append(decision)
            return decision, decision.lease.id
        if isinstance(decision, Wait) and decision.queued:
            self.asked[address] = self._now
        return decision, None

    def replaces(self) -> bool:
        """Whether anything that was granted ends another lease."""
        return any(replaced is not None for _, replaced in self.granted)

    def _open(self, address: str, grant: Grant) -> Lease:
        now = self._now
        lease = Lease(secrets.token_hex(16), address, grant.step, grant.counter, now, grant.expires, grant.limit)
        self.granted.append((lease, grant.replaces))
        self._own.setdefault(address, []).append(lease)
        self._ended.add(grant.replaces)
        self._when[address] = now
        self._reached[address] = max(lease.step, self.supply.reached.get(address, 0))
        self.supply = with_lease(self.supply, lease) if grant.replaces is None else self._recounted()
        return lease

    def _recounted(self) -> Supply:
        known = (*self._open_leases(), *(lease for lease, _ in self.granted))
        supply = replace(self.supply, leases=[lease for lease in known if lease.id not in self._ended], count=None)
        return replace(supply, count=in_flight(self._rule, supply, self._now))
