"""The public documents of a run and their parts, from the chain's state, heartbeats and the trainer's reports."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from chain.indexer.records import Account, Pool, Seat, Slash, Status, Submission
from chain.indexer.state import State
from orchestrator.heartbeats import Heartbeat, node_state
from orchestrator.ledger import escrow, fees_paid, rows
from orchestrator.scheduling.aggregates import ConsumedFiles
from orchestrator.service import Service
from protocol.api import run
from protocol.api.run import NodeState
from protocol.verdict import Code
from protocol.waits import WAITS

# Rows of the short lists of the dashboard document.
RECENT = 60
# Steps listed by who has their weights; a relay or node may report any number.
MOST_HELD = 16
# A file's policy step, status, units, and the times of its submission and decision (0: none yet).
FileFacts = tuple[int, str, int, int, int]


class Snapshot:
    """What public documents are made from: a service at one moment."""

    def __init__(self, service: Service) -> None:
        self.service, self.config, self.view = service, service.config, service.view
        self.now, self.pool_id, self.state = service.clock(), service.view.pool_id, service.view.state
        self.pool = service.view.pool(self.state)

    @cached_property
    def heartbeats(self) -> dict[str, Heartbeat]:
        return self.service.heartbeats()

    @property
    def accounts(self) -> list[Account]:
        """The nodes that ever joined the pool, in that order."""
        return [account for (of, _), account in self.state.accounts.items() if of == self.pool_id]

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
        reconciliation = watcher.reconciliation if watcher else None
        return self.status_fields() | {
            "name": self.config.name,
            "model": shown_source(self.config.model.source),
            "task": self.config.environment_names,
            "owner": self.pool.owner if self.pool else None,
            "started": self.service.started,
            "usable_step": self.view.usable_step(self.state),
            "escrow": escrow(self.state, self.pool_id) if self.pool else None,
            "reconciliation": reconciliation
            and watcher
            and run.ReconciliationEntry(**vars(reconciliation), current=watcher.current),
        }

    def _phase(self) -> str:
        if self.pool is None:
            return "waiting for the pool on chain"
        if not self.pool.steps:
            return "waiting for the first policy step"
        collects = self.config.data is not None
        if self.pool.status in ("closing", "settled") if collects else self.pool.step >= self.config.train.steps:
            return "finished"
        if not any(account.member for account in self.accounts):
            return "waiting for nodes to join"
        return "collecting" if collects else "training"

    def _waits(self) -> list[run.WaitEntry]:
        """Return what this service and the living participants are waiting for."""
        entries = [run.WaitEntry(who="orchestrator", **wait) for wait in WAITS.report()]
        for address, heartbeat in self.heartbeats.items():
            if heartbeat.body.waits and heartbeat.is_alive(self.now):
                who = heartbeat.body.name or address
                entries += [run.WaitEntry(who=who, **vars(wait)) for wait in heartbeat.body.waits]
        return entries

    # Participants

    def node_states(self) -> dict[str, NodeState]:
        """Return the state of every node that ever joined the pool, in that order."""
        return {
            account.node: node_state(
                self.heartbeats.get(account.node), self.now, ejected=account.ejected, left=not account.member
            )
            for account in self.accounts
        }

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
            ejected=Code(account.eject_code).label if account.ejected else None,
            **self._health(self.heartbeats.get(account.node), ejected=account.ejected, left=not account.member),
        )

    def validators(self) -> list[run.ValidatorEntry]:
        """Return every owner of seats, with the votes, fees and penalties in this pool."""
        fees, votes = fees_paid(self.state, self.pool_id), Counter[int]()  # seat → files it revealed a vote on
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
                penalised=sum(seat.penalised for seat in seats),
                **self._health(newest, left=not any(seat.active for seat in seats)),
            )
            for owner, seats, newest in self._owners()
        ]

    def validator_states(self) -> dict[str, NodeState]:
        """Return the state of every owner of seats, by address."""
        return {
            owner: node_state(newest, self.now, left=not any(seat.active for seat in seats))
            for owner, seats, newest in self._owners()
        }

    def _owners(self) -> Iterator[tuple[str, list[Seat], Heartbeat | None]]:
        """Yield every owner of seats with the newest heartbeat of its keys."""
        by_owner: dict[str, list[Seat]] = {}
        for seat in self.state.seats.values():
            by_owner.setdefault(seat.owner, []).append(seat)
        for owner, seats in sorted(by_owner.items()):
            own = [self.heartbeats[key] for key in {owner, *(seat.voter for seat in seats)} if key in self.heartbeats]
            yield owner, seats, max(own, key=lambda heartbeat: heartbeat.last_seen, default=None)

    def others(self) -> list[run.OtherEntry]:
        """Return processes that send heartbeats and are neither nodes nor validators: the trainer."""
        known = {account.node for account in self.accounts}
        known |= {key for seat in self.state.seats.values() for key in (seat.owner, seat.voter)}
        return [
            run.OtherEntry(address=address, role=heartbeat.body.role, **self._health(heartbeat))
            for address, heartbeat in self.heartbeats.items()
            if address not in known
        ]

    def _health(self, heartbeat: Heartbeat | None, *, ejected: bool = False, left: bool = False) -> dict[str, Any]:
        """Return the fields of a ParticipantEntry that follow from its newest heartbeat and its standing on chain."""
        state = node_state(heartbeat, self.now, ejected=ejected, left=left)
        if heartbeat is None:
            return {"state": state}
        body = heartbeat.body
        copied = body.model_dump(include={"name", "engine", "version", "phase", "metrics", "weights"})
        in_trouble = body.phase == "trouble" and body.waits
        trouble = max(body.waits, key=lambda wait: wait.since).what if in_trouble else ""
        return {**copied, "last_seen": heartbeat.last_seen, "state": state, "trouble": trouble, "at_step": body.step}

    def held_steps(self) -> list[run.HeldEntry]:
        """Return who has which policy step's weights, newest first: living participants by their heartbeats, relays by
        the steps that they announced."""
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


def status(snapshot: Snapshot) -> run.RunStatus:
    """Return phase, step, head, waits and the state of every participant."""
    return run.RunStatus(
        **snapshot.status_fields(),
        head=snapshot.state.head,
        chain_error=snapshot.view.error,
        held=snapshot.held_steps(),
        nodes=snapshot.node_states(),
        validators=snapshot.validator_states(),
    )


def record(service: Service, recent: int | None = None) -> run.RunRecord:
    """Return the run so far, from which its summary and report are made, or with its `recent` newest files and reports
    only."""
    snapshot, reports, consumed = Snapshot(service), service.reports(), service.consumed()
    state, pool, pool_id = snapshot.state, snapshot.pool, snapshot.pool_id
    sequences = pool.sequences[-(recent or len(pool.sequences)) :] if pool else []
    return run.RunRecord(
        **snapshot.run_fields(),
        head=state.head,
        chain_error=snapshot.view.error,
        rewards=[reward_entry(report) for report in reports],
        reports=reports[-(recent or len(reports)) :],
        published=published_entries(pool),
        nodes=[snapshot.node(account) for account in snapshot.accounts] if pool else [],
        validators=snapshot.validators(),
        others=snapshot.others(),
        submissions=[
            run.SubmissionEntry(**submission_fields(state, state.submissions[pool_id, sequence], consumed))
            for sequence in reversed(sequences)
        ],
        counts=counts(Counter(sub.status.value for sub in state.submissions_of(pool_id))),
        slashes=slashes(state, pool_id)[:RECENT],
        disputes=disputes(state, pool_id),
        canaries=canaries(state, pool_id),
        ledger=rows(state, pool_id, int(snapshot.now)) if pool else [],
        chain_id=service.uploads.pool.chain_id,
        challenges=challenges(state, pool_id),
    )


def shown_source(source: str) -> str:
    """Return a model's source without its owner's folders, which mean nothing to anybody else."""
    return source.rstrip("/").rpartition("/")[2] if source.startswith(("/", ".", "~")) else source


def counts(found: Counter[str]) -> dict[str, int]:
    """Return how many submissions have each status."""
    return {status.value: found[status.value] for status in Status}


# Policy steps


def published_entries(pool: Pool | None) -> list[run.PublishedEntry]:
    """Return the published policy steps, oldest first."""
    return [
        run.PublishedEntry(**vars(step) | {"manifest": step.manifest.hex()}) for step in (pool.steps if pool else [])
    ]


def reward_entry(report: run.ReportEntry) -> run.RewardEntry:
    """Return what a report says of how good its step is."""
    names = ("reward", "task_reward_mean", "task_reward", "reward_mean")
    reward = next((report.metrics[name] for name in names if name in report.metrics), None)
    sets = report.evaluation.evaluation.results if report.evaluation else []
    return run.RewardEntry(step=report.step, reward=reward, heldout=sets[0].average if sets else None, sets=sets)


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
    found: dict[int, StepTally] = {}
    for step, status, units, time, decided in files:
        tally = found.setdefault(step, StepTally())
        tally.files[status] += 1
        tally.submitted = _extended(tally.submitted, time)
        if status == Status.ACCEPTED:
            tally.tokens += units
            tally.accepted = _extended(tally.accepted, decided or time)
    return found


def _extended(span: tuple[int, int] | None, time: int) -> tuple[int, int]:
    return (time, time) if span is None else (min(span[0], time), max(span[1], time))


# Files and what became of them


def submission_fields(state: State, sub: Submission, consumed: ConsumedFiles) -> dict[str, Any]:
    """Return the fields of a SubmissionEntry, and the record's other fields."""
    steps = consumed.steps(sub)
    return vars(sub) | {
        "decided": sub.decided_time or None,
        "status": sub.status.value,
        "reason": Code(sub.code).label if sub.code else "",
        "disputed": (sub.pool, sub.sequence) in state.disputes,
        "trained": max(steps, default=None),
        "trained_twice": len(steps) > 1,
        "sha256": sub.sha256.hex(),
    }


def slashes(state: State, pool: int) -> list[run.SlashEntry]:
    """Return the penalties of nodes and seats, newest first."""
    return list(slash_entries(slash for slash in reversed(state.slashes) if slash.pool in (pool, 0)))


def slash_entries(found: Iterable[Slash]) -> Iterator[run.SlashEntry]:
    """Yield penalties with their reasons in words."""
    for slash in found:
        reason = Code(slash.code).label if slash.code else "minority, withheld or overturned vote"
        yield run.SlashEntry(**vars(slash), reason=reason)


def disputes(state: State, pool: int) -> list[run.DisputeEntry]:
    """Return every dispute of a file."""
    return [
        run.DisputeEntry(**vars(dispute), outcome=Code(dispute.code).label if dispute.resolved else "before a jury")
        for dispute in state.disputes.values()
        if dispute.pool == pool
    ]


def canaries(state: State, pool: int) -> list[run.CanaryEntry]:
    """Return every opened canary, with the seats it accuses."""
    return [
        run.CanaryEntry(
            **vars(canary)
            | {
                "reason": Code(canary.reason).label,
                "accused": list(canary.accused),
                "slashed": {str(seat): amount for seat, amount in canary.slashed.items()},
            }
        )
        for canary in state.canaries.values()
        if canary.pool == pool
    ]


def challenges(state: State, pool: int) -> list[run.ChallengeEntry]:
    """Return every challenge of a node, with its jury's votes."""
    entries = []
    for challenge in state.challenges.values():
        if challenge.pool == pool:
            jury = state.trials[challenge.trial]
            derived = {
                "sequences": list(challenge.sequences),
                "trial": jury.trial,
                "jurors": jury.size,
                "drawn": jury.drawn,
                "committed": len(jury.commits),
                "votes": dict(Counter(Code(code).label for code, _ in jury.reveals.values())),
                "outcome": challenge.outcome.name.lower(),
                "reason": Code(challenge.code).label if challenge.code else "",
            }
            entries.append(run.ChallengeEntry(**vars(challenge) | derived))
    return entries
