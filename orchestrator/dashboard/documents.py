"""The public documents of a run and their parts, from the chain's state, heartbeats and the trainer's reports."""

import threading
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from chain.indexer.records import Account, Seat, Slash, Status, Submission
from orchestrator.heartbeats import KEY_SHARED, Heartbeat, node_state
from orchestrator.ledger import fees_paid, label, penalties, rows
from orchestrator.scheduling.aggregates import ConsumedFiles
from orchestrator.service import Service
from protocol.api import run
from protocol.api.run import NodeState
from protocol.verdict import Code, challenge_label
from protocol.waits import WAITS

T = TypeVar("T")
CACHED_ANSWERS = 256
# An answer that took a second to compute is computed again after ten at the earliest.
REST = 10
# Rows of the short lists of the dashboard document.
RECENT = 60
# Steps listed by who has their weights; a relay or node may report any number.
MOST_HELD = 16
# A file's policy step, status, units, and the times of its submission and decision (0: none yet).
FileFacts = tuple[int, str, int, int, int]


class AnswerCache:
    """The newest answer under each key, computed again once it is `seconds` and ten times its own computing time old:
    no view takes more than a tenth of a core. The CACHED_ANSWERS used last are kept. Thread-safe."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        self._answers: OrderedDict[object, _Answer] = OrderedDict()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """Return what `make` returned for `key` a moment ago, or call it; what it raises is not kept."""
        with self._lock:
            answer = self._answers.setdefault(key, _Answer())
            self._answers.move_to_end(key)
            while len(self._answers) > CACHED_ANSWERS:
                self._answers.popitem(last=False)
        with answer.lock:
            start = self._clock()
            if start >= answer.until:
                answer.value = make()
                took = self._clock() - start
                answer.until = start + took + (max(self._seconds, REST * took) if self._seconds else 0.0)
            value: T = answer.value
            return value


@dataclass
class _Answer:
    lock: threading.Lock = field(default_factory=threading.Lock)
    until: float = float("-inf")
    value: Any = None


class Snapshot:
    """A service at one moment. What several documents need and is expensive is computed once for all by `answers`."""

    def __init__(self, service: Service, answers: AnswerCache | None = None) -> None:
        self.service, self.config, self.view = service, service.config, service.view
        self.answers = answers or AnswerCache(0.0)
        self.now, self.pool_id, self.state = service.clock(), service.view.pool_id, service.view.state
        self.pool = service.view.pool(self.state)

    @cached_property
    def heartbeats(self) -> dict[str, Heartbeat]:
        return self.service.heartbeats.newest()

    @cached_property
    def reports(self) -> list[run.ReportEntry]:
        return self.service.reports()

    @cached_property
    def consumed(self) -> ConsumedFiles:
        return self.service.consumed()

    @property
    def accounts(self) -> list[Account]:
        """The nodes that ever joined the pool, in that order."""
        return [account for account in self.state.accounts.values() if account.pool == self.pool_id]

    def status_fields(self) -> dict[str, Any]:
        """Return the fields that status, dashboard, record and overview share."""
        return {
            "pool": self.pool_id,
            "phase": self._phase(),
            "step": self.pool.step if self.pool and self.pool.steps else None,
            "steps": self.config.train.steps,
            "time": self.now,
            "in_flight": self.service.leases.in_flight(),
            "waits": self._waits(),
        }

    def run_fields(self) -> dict[str, Any]:
        """Return the fields that dashboard, record and overview share."""
        watcher = self.service.chain_watcher
        reconciled = watcher.reconciliation if watcher else None
        compared = (
            run.ReconciliationEntry(**vars(reconciled), current=watcher.current) if watcher and reconciled else None
        )
        return self.status_fields() | {
            "name": self.config.name,
            "model": shown_source(self.config.model.source),
            "task": self.config.environment_names,
            "owner": self.pool.owner if self.pool else None,
            "started": self.service.started,
            "usable_step": self.view.usable_step(self.state),
            "escrow": self.service.leases.escrow(),
            "reconciliation": compared,
        }

    def _phase(self) -> str:
        if self.pool is None:
            return "waiting for the pool on chain"
        if not self.pool.steps:
            return "waiting for the first policy step"
        collects, done = self.config.data is not None, self.consumed.over or self.pool.step >= self.config.train.steps
        if self.pool.status in ("closing", "settled") if collects else done:
            return "finished"
        if not any(account.member for account in self.accounts):
            return "waiting for nodes to join"
        return "collecting" if collects else "training"

    def _waits(self) -> list[run.WaitEntry]:
        entries = [run.WaitEntry(who="orchestrator", **wait) for wait in WAITS.report()]
        for address, heartbeat in self.heartbeats.items():
            if heartbeat.body.waits and heartbeat.is_alive(self.now):
                who = heartbeat.body.name or address
                entries += [run.WaitEntry(who=who, **vars(wait)) for wait in heartbeat.body.waits]
        return entries

    # Participants

    def node_state(self, account: Account) -> NodeState:
        heartbeat = self.heartbeats.get(account.node)
        return node_state(heartbeat, self.now, ejected=account.ejected, left=not account.member)

    def node_states(self) -> dict[str, NodeState]:
        """Return the state of every node that ever joined the pool, in that order."""
        return {account.node: self.node_state(account) for account in self.accounts}

    def node(self, account: Account) -> run.NodeEntry:
        """Return one node's files, pay and health."""
        assert self.pool is not None
        files = Counter(sub.status for sub in self.state.submissions_of(self.pool_id, account.node))
        return run.NodeEntry(
            address=account.node,
            operator=account.operator,
            accepted=files[Status.ACCEPTED],
            rejected=files[Status.REJECTED],
            pending=files[Status.PENDING],
            units=account.units_awarded,
            earned=account.units_awarded * self.pool.terms.rate,
            claimed=account.paid,
            slashed=account.slashed,
            ejected=account.eject_label if account.ejected else None,
            **self._health(self.heartbeats.get(account.node), self.node_state(account)),
        )

    def _health(self, heartbeat: Heartbeat | None, state: NodeState) -> dict[str, Any]:
        if heartbeat is None:
            return {"state": state}
        body = heartbeat.body
        copied = body.model_dump(include={"name", "engine", "version", "phase", "metrics", "weights"})
        in_trouble = body.phase == "trouble" and body.waits
        trouble = max(body.waits, key=lambda wait: wait.since).what if in_trouble else ""
        trouble = KEY_SHARED if heartbeat.is_shared(self.now) else trouble
        return {**copied, "last_seen": heartbeat.last_seen, "state": state, "trouble": trouble, "at_step": body.step}

    def owners(self) -> Iterator[tuple[str, list[Seat], Heartbeat | None, NodeState]]:
        """Yield every owner of seats with the newest heartbeat of its keys and its state."""
        by_owner: dict[str, list[Seat]] = {}
        for seat in self.state.seats.values():
            by_owner.setdefault(seat.owner, []).append(seat)
        for owner, seats in sorted(by_owner.items()):
            own = [self.heartbeats[key] for key in {owner, *(seat.voter for seat in seats)} if key in self.heartbeats]
            newest = max(own, key=lambda heartbeat: heartbeat.last_seen, default=None)
            yield owner, seats, newest, node_state(newest, self.now, left=not any(seat.active for seat in seats))

    def validators(self) -> list[run.ValidatorEntry]:
        """Return every owner of seats, with the votes, fees and penalties in this pool."""
        return self.answers.get("validators", self._validators)

    def _validators(self) -> list[run.ValidatorEntry]:
        fees, lost = fees_paid(self.state, self.pool_id), penalties(self.state, self.pool_id)
        votes = Counter[int]()  # seat → files it revealed a vote on
        for lane in self.state.lanes_of(self.pool_id):
            for voting_round in lane.rounds:
                for member in voting_round.reveals:
                    votes[voting_round.seats[member]] += len(lane.sequences)
        return [
            run.ValidatorEntry(
                address=owner,
                seats=[run.SeatEntry.model_validate(seat, from_attributes=True) for seat in seats],
                votes=sum(votes[seat.seat] for seat in seats),
                fees=fees[owner],
                penalised=lost[owner],
                **self._health(newest, state),
            )
            for owner, seats, newest, state in self.owners()
        ]

    def others(self) -> list[run.OtherEntry]:
        """Return processes that send heartbeats and are neither nodes nor validators: the trainer."""
        known = {account.node for account in self.accounts}
        known |= {key for seat in self.state.seats.values() for key in (seat.owner, seat.voter)}
        return [
            run.OtherEntry(address=address, role=beat.body.role, **self._health(beat, node_state(beat, self.now)))
            for address, beat in self.heartbeats.items()
            if address not in known
        ]

    def held_steps(self) -> list[run.HeldEntry]:
        """Return who has which step's weights, newest first: participants by heartbeats, relays as announced."""
        holders = {role: Counter[int]() for role in ("worker", "validator", "relay")}
        for heartbeat in self.heartbeats.values():
            role, step = heartbeat.body.role, heartbeat.body.weights
            if step is not None and role in holders and heartbeat.is_alive(self.now):
                holders[role][step] += 1
        holders["relay"].update(step for step in self.service.sources.steps() if step is not None)
        nodes, validators, relays = holders.values()
        steps = sorted({*nodes, *validators, *relays}, reverse=True)[:MOST_HELD]
        return [
            run.HeldEntry(step=step, nodes=nodes[step], validators=validators[step], relays=relays[step])
            for step in steps
        ]

    def ledger(self) -> list[run.LedgerEntry]:
        return self.answers.get("ledger", lambda: rows(self.state, self.pool_id, int(self.now)) if self.pool else [])

    def tallies(self) -> dict[int, "StepTally"]:
        return self.answers.get("tallies", self._tallies)

    def _tallies(self) -> dict[int, "StepTally"]:
        files = self.state.submissions_of(self.pool_id)
        return tallies((file.step, file.status.value, file.units, file.time, file.decided_time) for file in files)

    # Policy steps, files and what became of them

    def published(self) -> list[run.PublishedEntry]:
        """Return the published policy steps, oldest first."""
        steps = self.pool.steps if self.pool else []
        return [run.PublishedEntry(**vars(step) | {"manifest": step.manifest.hex()}) for step in steps]

    def submission_fields(self, sub: Submission) -> dict[str, Any]:
        """Return the fields of a SubmissionEntry, and the record's other fields."""
        steps = self.consumed.steps(sub)
        return vars(sub) | {
            "decided": sub.decided_time or None,
            "status": sub.status.value,
            "reason": label(sub.code),
            "disputed": (sub.pool, sub.sequence) in self.state.disputes,
            "trained": max(steps, default=None),
            "trained_twice": len(steps) > 1,
            "sha256": sub.sha256.hex(),
        }

    def slashes(self) -> list[run.SlashEntry]:
        """Return the penalties of nodes and seats, newest first."""
        return slash_entries(slash for slash in reversed(self.state.slashes) if slash.pool == self.pool_id)

    def disputes(self) -> list[run.DisputeEntry]:
        return [
            run.DisputeEntry(**vars(dispute), outcome=Code(dispute.code).label if dispute.resolved else "before a jury")
            for dispute in self.state.disputes.values()
            if dispute.pool == self.pool_id
        ]

    def canaries(self) -> list[run.CanaryEntry]:
        """Return every opened canary, with the seats it accuses."""
        entries = []
        for canary in self.state.canaries.values():
            if canary.pool == self.pool_id:
                slashed = {str(seat): amount for seat, amount in canary.slashed.items()}
                shown = {"reason": Code(canary.reason).label, "accused": list(canary.accused), "slashed": slashed}
                entries.append(run.CanaryEntry(**vars(canary) | shown))
        return entries

    def challenges(self) -> list[run.ChallengeEntry]:
        """Return every challenge of a node, with its jury's votes."""
        entries = []
        for challenge in self.state.challenges.values():
            if challenge.pool == self.pool_id:
                jury = self.state.trials[challenge.trial]
                shown = {
                    "sequences": list(challenge.sequences),
                    "trial": jury.trial,
                    "jurors": jury.size,
                    "drawn": jury.drawn,
                    "committed": len(jury.commits),
                    "votes": dict(Counter(challenge_label(Code(code)) for code, _ in jury.reveals.values())),
                    "outcome": challenge.outcome.name.lower(),
                    "reason": challenge_label(Code(challenge.code)) if challenge.code else "",
                }
                entries.append(run.ChallengeEntry(**vars(challenge) | shown))
        return entries


def record(service: Service, recent: int | None = None) -> run.RunRecord:
    """Return the run so far, or with its `recent` newest files and reports only."""
    snapshot = Snapshot(service)
    reports, files = snapshot.reports, snapshot.state.submissions_of(snapshot.pool_id)
    newest = files[-(recent or len(files)) :]
    return run.RunRecord(
        **snapshot.run_fields(),
        head=snapshot.state.head,
        chain_error=snapshot.view.error,
        rewards=[reward_entry(report) for report in reports],
        reports=reports[-(recent or len(reports)) :],
        published=snapshot.published(),
        nodes=[snapshot.node(account) for account in snapshot.accounts] if snapshot.pool else [],
        validators=snapshot.validators(),
        others=snapshot.others(),
        submissions=[run.SubmissionEntry(**snapshot.submission_fields(sub)) for sub in reversed(newest)],
        counts=counts(Counter(sub.status.value for sub in files)),
        slashes=snapshot.slashes()[:RECENT],
        disputes=snapshot.disputes(),
        canaries=snapshot.canaries(),
        ledger=snapshot.ledger(),
        chain_id=service.uploads.pool.chain_id,
        challenges=snapshot.challenges(),
    )


def shown_source(source: str) -> str:
    """Return a model's source without its owner's folders, which mean nothing to anybody else."""
    return source.rstrip("/").rpartition("/")[2] if source.startswith(("/", ".", "~")) else source


def counts(by_status: Counter[str]) -> dict[str, int]:
    """Return how many submissions have each status."""
    return {status.value: by_status[status.value] for status in Status}


def reward_entry(report: run.ReportEntry) -> run.RewardEntry:
    """Return what a report says of how good its step is."""
    names = ("reward", "task_reward_mean", "task_reward", "reward_mean")
    reward = next((report.metrics[name] for name in names if name in report.metrics), None)
    sets = report.evaluation.evaluation.results if report.evaluation else []
    return run.RewardEntry(step=report.step, reward=reward, heldout=sets[0].average if sets else None, sets=sets)


def slash_entries(slashes: Iterable[Slash]) -> list[run.SlashEntry]:
    """Return penalties with their reasons in words."""
    unnamed = "minority, withheld or overturned vote"
    return [run.SlashEntry(**vars(slash), reason=label(slash.code) or unnamed) for slash in slashes]


@dataclass
class StepTally:
    """Files generated with one step: how many have each status, accepted output tokens, and the earliest and latest
    times of submission and acceptance."""

    files: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    submitted: tuple[int, int] | None = None
    accepted: tuple[int, int] | None = None


def tallies(files: Iterable[FileFacts]) -> dict[int, StepTally]:
    """Return policy step → its tally."""
    tallies = defaultdict[int, StepTally](StepTally)
    for step, status, units, submitted, decided in files:
        tally = tallies[step]
        tally.files[status] += 1
        tally.submitted = _extended(tally.submitted, submitted)
        if status == Status.ACCEPTED:
            tally.tokens += units
            tally.accepted = _extended(tally.accepted, decided or submitted)
    return tallies


def _extended(span: tuple[int, int] | None, time: int) -> tuple[int, int]:
    return (time, time) if span is None else (min(span[0], time), max(span[1], time))
