"""The public documents of a run (status, dashboard, record) from the chain's state, heartbeats and reports."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from chain.indexer.records import Account, Pool, Slash, Status, Submission
from chain.indexer.state import State
from orchestrator.aggregates import ConsumedFiles
from orchestrator.heartbeats import Heartbeat, Heartbeats, node_state
from orchestrator.ledger import escrow, fees_paid, rows
from orchestrator.service import Service
from protocol.api import run
from protocol.api.run import HeldEntry, NodeState
from protocol.config import PoolConfig
from protocol.verdict import Code
from protocol.waits import WAITS

RECENT = 60
"""Rows of the short lists of the dashboard document."""
MOST_HELD = 16
"""Steps listed by who has their weights; a relay or node may report any number."""


def status(service: Service) -> run.RunStatus:
    """Return phase, step, head, waits and the state of every participant."""
    now, heartbeats, view = service.clock(), service.heartbeats(), service.view
    state = view.state
    pool = view.pool(state)
    return run.RunStatus(
        pool=view.pool_id,
        phase=phase(state, pool, service.config),
        step=pool.step if pool and pool.steps else None,
        steps=service.config.train.steps,
        head=state.head,
        time=now,
        waits=waits(heartbeats, now),
        in_flight=service.leases.in_flight(),
        chain_error=view.error,
        held=held_steps(heartbeats, service.sources.steps(), now),
        nodes=node_states(state, view.pool_id, heartbeats, now),
        validators=validator_states(state, heartbeats, now),
    )


def dashboard(service: Service) -> run.RunRecord:
    """Return the run with its newest files and reports only."""
    return _record(service, RECENT)


def record(service: Service) -> run.RunRecord:
    """Return the whole run so far, from which its summary and report are made."""
    return _record(service, None)


def _record(service: Service, recent: int | None) -> run.RunRecord:
    now, heartbeats, reports, consumed = service.clock(), service.heartbeats(), service.reports(), service.consumed()
    in_flight, reconciliation = service.leases.in_flight(), reconciliation_entry(service)
    view, config = service.view, service.config
    state = view.state
    pool = view.pool(state)
    return run.RunRecord(
        name=config.name,
        model=shown_source(config.model.source),
        task=config.environment_names,
        pool=view.pool_id,
        owner=pool.owner if pool else None,
        phase=phase(state, pool, config),
        time=now,
        started=service.started,
        head=state.head,
        chain_error=view.error,
        step=pool.step if pool and pool.steps else None,
        usable_step=view.usable_step(state),
        steps=config.train.steps,
        in_flight=in_flight,
        rewards=[reward_entry(report) for report in reports],
        reports=reports if recent is None else reports[-recent:],
        published=published_entries(pool),
        nodes=nodes(state, pool, heartbeats, now) if pool else [],
        validators=validators(state, view.pool_id, heartbeats, now),
        others=others(state, view.pool_id, heartbeats, now),
        submissions=submissions(state, pool, consumed, recent) if pool else [],
        counts=counts(state, view.pool_id),
        slashes=slashes(state, view.pool_id)[:RECENT],
        disputes=disputes(state, view.pool_id),
        canaries=canaries(state, view.pool_id),
        ledger=rows(state, pool.pool, int(now)) if pool else [],
        escrow=escrow(state, pool.pool) if pool else None,
        reconciliation=reconciliation,
        waits=waits(heartbeats, now),
        chain_id=service.uploads.pool.chain_id,
        cases=cases(state, view.pool_id),
    )


def shown_source(source: str) -> str:
    """Return a model's source without its owner's folders, which mean nothing to anybody else."""
    return source.rstrip("/").rpartition("/")[2] if source.startswith(("/", ".", "~")) else source


def published_entries(pool: Pool | None) -> list[run.PublishedEntry]:
    """Return the published policy steps, oldest first."""
    steps = pool.steps if pool else []
    return [
        run.PublishedEntry(step=one.step, time=one.time, block=one.block, tx=one.tx, manifest=one.manifest.hex())
        for one in steps
    ]


def phase(state: State, pool: Pool | None, config: PoolConfig) -> str:
    """Return where the run stands, in a few words."""
    if pool is None:
        return "waiting for the pool on chain"
    if not pool.steps:
        return "waiting for the first policy step"
    over = pool.status in ("closing", "settled") if config.data is not None else pool.step >= config.train.steps
    if over:
        return "finished"
    if not any(of == pool.pool and account.member for (of, _), account in state.accounts.items()):
        return "waiting for nodes to join"
    return "training" if config.data is None else "collecting"


def reconciliation_entry(service: Service) -> run.ReconciliationEntry | None:
    """Return the newest comparison of ledger and chain."""
    watcher = service.chain_watcher
    if watcher is None or watcher.reconciliation is None:
        return None
    return run.ReconciliationEntry(**vars(watcher.reconciliation), current=watcher.current)


def reward_entry(report: run.ReportEntry) -> run.RewardEntry:
    """Return what a report says of how good its step is."""
    names = ("reward", "task_reward_mean", "task_reward", "reward_mean")
    reward = next((report.metrics[name] for name in names if name in report.metrics), None)
    sets = report.evaluation.evaluation.results if report.evaluation else []
    return run.RewardEntry(step=report.step, reward=reward, heldout=sets[0].average if sets else None, sets=sets)


def waits(heartbeats: Heartbeats, now: float) -> list[run.WaitEntry]:
    """Return what this service and the living participants are waiting for."""
    entries = [run.WaitEntry(who="orchestrator", **wait) for wait in WAITS.report()]
    for address, heartbeat in heartbeats.items():
        if heartbeat.body.waits and heartbeat.is_alive(now):
            who = heartbeat.body.name or address
            entries += [run.WaitEntry(who=who, **vars(wait)) for wait in heartbeat.body.waits]
    return entries


# ---- participants


def nodes(state: State, pool: Pool, heartbeats: Heartbeats, now: float) -> list[run.NodeEntry]:
    """Return every node that ever joined the pool."""
    accounts = [account for (of, _), account in state.accounts.items() if of == pool.pool]
    return [node_entry(state, pool, account, heartbeats.get(account.node), now) for account in accounts]


def node_entry(state: State, pool: Pool, account: Account, heartbeat: Heartbeat | None, now: float) -> run.NodeEntry:
    """Return one node's files, pay and health."""
    files = Counter(sub.status for sub in state.submissions_of(pool.pool, account.node))
    return run.NodeEntry(
        address=account.node,
        operator=account.operator,
        accepted=files[Status.ACCEPTED],
        rejected=files[Status.REJECTED],
        pending=files[Status.PENDING],
        units=account.units_awarded,
        earned=account.units_awarded * pool.terms.rate,
        claimed=account.paid,
        slashed=account.slashed,
        ejected=Code(account.eject_code).label if account.ejected else None,
        **_health(heartbeat, now, ejected=account.ejected, left=not account.member),
    )


def node_states(state: State, pool: int, heartbeats: Heartbeats, now: float) -> dict[str, NodeState]:
    """Return the state of every node that ever joined the pool, in that order."""
    return {
        address: node_state(heartbeats.get(address), now, ejected=account.ejected, left=not account.member)
        for (of, address), account in state.accounts.items()
        if of == pool
    }


def validator_states(state: State, heartbeats: Heartbeats, now: float) -> dict[str, NodeState]:
    """Return the state of every owner of seats, by address."""
    keys: dict[str, set[str]] = {}
    active = set()
    for seat in state.seats.values():
        keys.setdefault(seat.owner, {seat.owner}).add(seat.voter)
        if seat.active:
            active.add(seat.owner)
    return {
        owner: node_state(_newest(heartbeats, own), now, left=owner not in active)
        for owner, own in sorted(keys.items())
    }


def validators(state: State, pool: int, heartbeats: Heartbeats, now: float) -> list[run.ValidatorEntry]:
    """Return every owner of seats, with the votes, fees and penalties in this pool."""
    votes, fees = _votes(state, pool), fees_paid(state, pool)
    entries = []
    for owner in sorted({seat.owner for seat in state.seats.values()}):
        seats = [seat for seat in state.seats.values() if seat.owner == owner]
        newest = _newest(heartbeats, {owner, *(seat.voter for seat in seats)})
        entries.append(
            run.ValidatorEntry(
                address=owner,
                seats=[run.SeatEntry.model_validate(seat, from_attributes=True) for seat in seats],
                votes=sum(votes[seat.seat] for seat in seats),
                fees=fees[owner],
                penalised=sum(seat.penalised for seat in seats),
                **_health(newest, now, left=not any(seat.active for seat in seats)),
            )
        )
    return entries


def _newest(heartbeats: Heartbeats, addresses: Iterable[str]) -> Heartbeat | None:
    known = [heartbeats[address] for address in addresses if address in heartbeats]
    return max(known, key=lambda heartbeat: heartbeat.last_seen, default=None)


def _votes(state: State, pool: int) -> Counter[int]:
    """Return seat → files it revealed a vote on."""
    votes = Counter[int]()
    for lane in state.lanes_of(pool):
        for voting_round in lane.rounds:
            for member in voting_round.reveals:
                votes[voting_round.seats[member]] += len(lane.sequences)
    return votes


def others(state: State, pool: int, heartbeats: Heartbeats, now: float) -> list[run.OtherEntry]:
    """Return processes that send heartbeats and are neither nodes nor validators: the trainer."""
    known = {address for of, address in state.accounts if of == pool}
    known |= {key for seat in state.seats.values() for key in (seat.owner, seat.voter)}
    return [
        run.OtherEntry(address=address, role=heartbeat.body.role, **_health(heartbeat, now))
        for address, heartbeat in heartbeats.items()
        if address not in known
    ]


def _health(heartbeat: Heartbeat | None, now: float, *, ejected: bool = False, left: bool = False) -> dict[str, Any]:
    """Return the fields of a ParticipantEntry that follow from its newest heartbeat and its standing on chain."""
    state = node_state(heartbeat, now, ejected=ejected, left=left)
    if heartbeat is None:
        return {"state": state}
    body = heartbeat.body
    copied = body.model_dump(include={"name", "engine", "version", "phase", "metrics", "weights"})
    in_trouble = body.phase == "trouble" and body.waits
    trouble = max(body.waits, key=lambda wait: wait.since).what if in_trouble else ""
    return {**copied, "last_seen": heartbeat.last_seen, "state": state, "trouble": trouble, "at_step": body.step}


def held_steps(heartbeats: Heartbeats, relays: Iterable[int | None], now: float) -> list[HeldEntry]:
    """Return who has which policy step's weights, newest first: living participants by their heartbeats, relays by the
    steps that they announced."""
    holders = {role: Counter[int]() for role in ("worker", "validator", "relay")}
    for heartbeat in heartbeats.values():
        role, step = heartbeat.body.role, heartbeat.body.weights
        if step is not None and role in holders and heartbeat.is_alive(now):
            holders[role][step] += 1
    holders["relay"].update(step for step in relays if step is not None)
    steps = sorted({step for held in holders.values() for step in held}, reverse=True)[:MOST_HELD]
    return [
        HeldEntry(
            step=step,
            nodes=holders["worker"][step],
            validators=holders["validator"][step],
            relays=holders["relay"][step],
        )
        for step in steps
    ]


# ---- files and what became of them


def submissions(state: State, pool: Pool, consumed: ConsumedFiles, recent: int | None) -> list[run.SubmissionEntry]:
    """Return the pool's files, newest first; at most `recent`, if that is given."""
    sequences = pool.sequences if recent is None else pool.sequences[-recent:]
    newest = [state.submissions[pool.pool, sequence] for sequence in reversed(sequences)]
    return [run.SubmissionEntry(**submission_fields(state, sub, consumed)) for sub in newest]


def submission_fields(state: State, sub: Submission, consumed: ConsumedFiles) -> dict[str, Any]:
    """Return the fields of a SubmissionEntry, and the record's other fields."""
    steps = consumed.steps(sub)
    derived = {
        "decided": sub.decided_time or None,
        "status": sub.status.value,
        "reason": Code(sub.code).label if sub.code else "",
        "disputed": (sub.pool, sub.sequence) in state.disputes,
        "trained": max(steps, default=None),
        "trained_twice": len(steps) > 1,
        "sha256": sub.sha256.hex(),
    }
    return vars(sub) | derived


def counts(state: State, pool: int) -> dict[str, int]:
    """Return how many submissions have each status."""
    found = Counter(sub.status for sub in state.submissions_of(pool))
    return {status.value: found[status] for status in Status}


def slashes(state: State, pool: int) -> list[run.SlashEntry]:
    """Return the penalties of nodes and seats, newest first."""
    return slash_entries(slash for slash in reversed(state.slashes) if slash.pool in (pool, 0))


def slash_entries(found: Iterable[Slash]) -> list[run.SlashEntry]:
    """Return penalties with their reasons in words."""
    seat = "minority, withheld or overturned vote"
    return [run.SlashEntry(**vars(one), reason=Code(one.code).label if one.code else seat) for one in found]


def disputes(state: State, pool: int) -> list[run.DisputeEntry]:
    """Return every dispute of a file."""
    return [
        run.DisputeEntry(**vars(one), outcome=Code(one.code).label if one.resolved else "before a jury")
        for (of, _), one in state.disputes.items()
        if of == pool
    ]


def canaries(state: State, pool: int) -> list[run.CanaryEntry]:
    """Return every opened canary, with the seats it accuses."""
    entries = []
    for (of, _), canary in state.canaries.items():
        if of == pool:
            slashed = {str(seat): amount for seat, amount in canary.slashed.items()}
            derived = {"reason": Code(canary.reason).label, "accused": list(canary.accused), "slashed": slashed}
            entries.append(run.CanaryEntry(**vars(canary) | derived))
    return entries


def cases(state: State, pool: int) -> list[run.CaseEntry]:
    """Return every challenge of a node, with its jury's votes."""
    entries = []
    for case in state.cases.values():
        if case.pool == pool:
            jury = state.trials[case.trial]
            derived = {
                "sequences": list(case.sequences),
                "trial": jury.trial,
                "jurors": jury.size,
                "drawn": jury.drawn,
                "committed": len(jury.commits),
                "votes": dict(Counter(Code(code).label for code, _ in jury.reveals.values())),
                "outcome": case.outcome.name.lower(),
                "reason": Code(case.code).label if case.code else "",
            }
            entries.append(run.CaseEntry(**vars(case) | derived))
    return entries
