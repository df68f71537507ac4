"""The state of the whole suite, projected from events alone: the view that every role shares.

    projection = Projection(follower)        # replays what the follower stored
    while ...:
        if projection.refresh():             # True when anything changed, rollbacks included
            state = projection.state

`State` holds (records in `chain.records`; amounts in grains):

- `pools[pool]` → Pool (owner, terms, steps with manifest and seed block, money)
- `accounts[pool, node]` → Account (counter, units, joined step, ejection)
- `submissions[pool, sequence]` → Submission (status, code, file hashes, times, `file_ref`, `file_data`, `inner`)
- `lanes[pool, lane]` → Lane (its submissions' sequences; rounds with committee, seed, commits, reveals, outcome)
- `seats[seat]` → Seat, `nodes[node]` → Node, `trials[trial]` → Trial
- `disputes[pool, sequence]` → Dispute, `canaries[pool, sequence]` → Canary
- `slashes`, `payments`: lists in chain order; `balances[address]`: token balances; `params`, `paused`
- `head`: the block up to which events are folded

Everything here is pure: the same events give the same state. After a rollback the projection is folded anew from the
follower's store; nothing is ever undone in place.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from chain.events import Event
from chain.records import (
    Account,
    Canary,
    Dispute,
    Lane,
    Node,
    Payment,
    Pool,
    Round,
    Seat,
    Slash,
    Status,
    Step,
    Submission,
    Terms,
    Trial,
)

__all__ = [
    "Account",
    "Batch",
    "Canary",
    "Dispute",
    "Event",
    "Lane",
    "Node",
    "Payment",
    "Pool",
    "Projection",
    "Round",
    "Seat",
    "Slash",
    "State",
    "Status",
    "Step",
    "Submission",
    "Terms",
    "Trial",
    "apply",
    "fold",
]


@dataclass
class State:
    """See the module's docstring."""

    head: int = 0
    pools: dict[int, Pool] = field(default_factory=dict)
    accounts: dict[tuple[int, str], Account] = field(default_factory=dict)
    submissions: dict[tuple[int, int], Submission] = field(default_factory=dict)
    lanes: dict[tuple[int, int], Lane] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    seats: dict[int, Seat] = field(default_factory=dict)
    trials: dict[int, Trial] = field(default_factory=dict)
    disputes: dict[tuple[int, int], Dispute] = field(default_factory=dict)
    canaries: dict[tuple[int, int], Canary] = field(default_factory=dict)
    slashes: list[Slash] = field(default_factory=list)
    payments: list[Payment] = field(default_factory=list)
    pending_slashes: dict[str, tuple[int, int]] = field(default_factory=dict)
    balances: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    params: dict[str, int] = field(default_factory=dict)
    paused: bool = False

    def submissions_of(self, pool: int, node: str | None = None) -> list[Submission]:
        """In order of their sequence; of one node, or of all."""
        if node is None:
            order = self.pools[pool].sequences if pool in self.pools else []
        else:
            account = self.accounts.get((pool, node))
            order = account.sequences if account else []
        return [self.submissions[pool, sequence] for sequence in order]

    def lane_of(self, submission: Submission) -> Lane:
        return self.lanes[submission.pool, submission.lane]

    def files_of(self, lane: Lane) -> list[Submission]:
        """The lane's submissions in order of their places."""
        return [self.submissions[lane.pool, sequence] for sequence in lane.sequences]

    def open_lanes(self, pool: int) -> list[Lane]:
        """Lanes whose newest round is not settled."""
        return [lane for (of, _), lane in self.lanes.items() if of == pool and not lane.decided]

    def seats_of_voter(self, voter: str) -> list[Seat]:
        return [seat for seat in self.seats.values() if seat.voter == voter and not seat.closed]

    def accepted(self, pool: int, step: int | None = None) -> list[Submission]:
        """Submissions whose outcome is an acceptance now, by sequence; of one step, or of all."""
        return [
            s for s in self.submissions_of(pool) if s.status == Status.ACCEPTED and (step is None or s.step == step)
        ]

    def claim_hint(self, pool: int, node: str, now: int) -> Submission | None:
        """The submission to name in `claim`, so that all that vested by `now` (chain time) is paid.

        None if nothing would be."""
        account = self.accounts.get((pool, node))
        if account is None:
            return None
        vested = [
            sub
            for sub in (self.submissions[pool, sequence] for sequence in account.sequences)
            if sub.cumulative > account.units_drawn
            and sub.final_time <= now
            and (not account.barrier or sub.final_time <= account.barrier)
        ]
        return max(vested, key=lambda sub: sub.cumulative, default=None)


@dataclass(frozen=True)
class Batch:
    """What one poll of the follower brought. `rollback_to`: events above this block were withdrawn (None: no
    reorganisation); `events`: the new ones in chain order; `head`: the block followed up to."""

    rollback_to: int | None
    events: list[Event]
    head: int


class EventSource(Protocol):
    """What a projection needs of a follower."""

    @property
    def head(self) -> int: ...
    def history(self) -> Iterable[Event]: ...
    def poll(self) -> Batch: ...


def apply(state: State, event: Event) -> None:
    """Fold one event into the state, in place. Events without meaning for it are ignored."""
    from chain.reducers import HANDLERS

    handler = HANDLERS.get(event.key)
    if handler is not None:
        handler(state, event)
    state.head = max(state.head, event.block)


def fold(events: Iterable[Event]) -> State:
    """The state after `events`, in chain order."""
    state = State()
    for event in events:
        apply(state, event)
    return state


class Projection:
    """A state kept up to date with a follower. `generation` grows with every rollback: hold no records across it."""

    def __init__(self, follower: EventSource) -> None:
        self._follower = follower
        self.generation = 0
        self.state = self._refold()

    def refresh(self) -> bool:
        """Poll the chain once; whether the state changed (new events or a rollback; not for a new head alone)."""
        batch = self._follower.poll()
        if batch.rollback_to is not None:
            self.generation += 1
            self.state = self._refold()
            return True
        for event in batch.events:
            apply(self.state, event)
        self.state.head = batch.head
        return bool(batch.events)

    def _refold(self) -> State:
        state = fold(self._follower.history())
        state.head = self._follower.head
        return state


def describe(record: Any) -> dict[str, Any]:
    """A record as JSON-ready values (bytes as lower-case hex without 0x), for status pages and `--json`."""
    return {name: _plain(value) for name, value in vars(record).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(v) for v in (sorted(value) if isinstance(value, set) else value)]
    return describe(value) if hasattr(value, "__dataclass_fields__") else value
