"""What the status and dashboard routes tell: plain JSON values from the chain's state, heartbeats and reports.

Grains are decimal strings, since JavaScript's numbers end at 2⁵³.
"""

import json
from dataclasses import asdict
from typing import Any

from orchestrator.ledger import Row, escrow, reason, rows
from orchestrator.models import Heartbeat
from orchestrator.nodes import NodeState, node_state
from orchestrator.service import Service
from orchestrator.trained import Trained
from protocol.chain.records import Account, Pool, Seat, Status, Submission
from protocol.chain.state import State
from protocol.waiting import WAITS

RECENT = 60


def status(service: Service) -> dict[str, Any]:
    """Phase, step, head, waits and the state of every participant."""
    full = dashboard(service)
    keys = ("pool", "phase", "step", "steps", "head", "time", "waits", "flight", "chain_error")
    return {
        **{key: full[key] for key in keys},
        "nodes": {node["address"]: node["state"] for node in full["nodes"]},
        "validators": {one["address"]: one["state"] for one in full["validators"]},
    }


def dashboard(service: Service) -> dict[str, Any]:
    """What the page shows, at one moment: the newest files only."""
    return _view(service, RECENT)


def record(service: Service) -> dict[str, Any]:
    """The whole run so far: what `orchestrator/summary.py` and `orchestrator/report.py` are made from."""
    return _view(service, None)


def _view(service: Service, recent: int | None) -> dict[str, Any]:
    now, beats, reports, trained = service.clock(), service.beats(), service.reports(), service.trained()
    flight = service.leases.flight()
    watch = service.watch
    with watch.reading() as state:
        pool = watch.pool(state)
        step = pool.step if pool and pool.steps else None
        out: dict[str, Any] = {
            "name": service.config.name,
            "model": service.config.model.source,
            "task": service.config.task.name,
            "pool": watch.pool_id,
            "owner": pool.owner if pool else None,
            "time": now,
            "started": service.started,
            "head": state.head,
            "chain_error": watch.error,
            "step": step,
            "usable_step": watch.usable_step(state),
            "steps": service.config.train.steps,
            "flight": asdict(flight),
            "rewards": _rewards(reports),
            "reports": reports if recent is None else reports[-recent:],
            "published": _published(pool) if pool else [],
            "nodes": _nodes(state, pool, beats, now) if pool else [],
            "validators": _validators(state, watch.pool_id, beats, now),
            "others": _others(state, watch.pool_id, beats, now),
            "submissions": _files(state, pool, trained, recent) if pool else [],
            "counts": _counts(state, watch.pool_id),
            "slashes": _slashes(state, watch.pool_id),
            "disputes": _disputes(state, watch.pool_id),
            "canaries": _canaries(state, watch.pool_id),
            "ledger": [_money(row) for row in rows(state, watch.pool_id, int(now))] if pool else [],
            "escrow": _escrow(state, pool) if pool else None,
        }
    out["audit"] = _audit(service)
    out["waits"] = _waits(beats, now)
    out["phase"] = phase(out)
    return out


def phase(view: dict[str, Any]) -> str:
    """Where the run stands, in a word or two."""
    if view["owner"] is None:
        return "waiting for the pool on chain"
    if view["step"] is None:
        return "waiting for the first policy step"
    return "finished" if view["step"] >= view["steps"] else "training"


def _audit(service: Service) -> dict[str, Any] | None:
    """The newest comparison of ledger and chain; `current`: nothing has changed since."""
    indexer = service.indexer
    if indexer is None or indexer.audit is None:
        return None
    return {**indexer.audit.document(), "current": indexer.current}


def reward_of(report: dict[str, Any]) -> float | None:
    """The mean task reward of the files a step was trained on."""
    metrics: dict[str, float] = report["metrics"]
    names = ("reward", "task_reward_mean", "task_reward", "reward_mean")
    return next((metrics[name] for name in names if name in metrics), None)


def _rewards(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"step": report["step"], "reward": reward_of(report), "heldout": report["heldout"]} for report in reports]


def _beat(beat: Heartbeat | None) -> dict[str, Any]:
    if beat is None:
        return {"name": "", "engine": "", "version": "", "phase": "", "at_step": None, "last_seen": None, "metrics": {}}
    return {
        "name": beat.name,
        "engine": beat.engine,
        "version": beat.version,
        "phase": beat.phase,
        "at_step": beat.step,
        "last_seen": beat.last_seen,
        "metrics": json.loads(beat.metrics),
    }


def _nodes(state: State, pool: Pool, beats: dict[str, Heartbeat], now: float) -> list[dict[str, Any]]:
    out = []
    for (of, address), account in state.accounts.items():
        if of != pool.pool:
            continue
        beat = beats.get(address)
        files = state.submissions_of(pool.pool, address)
        out.append(
            {
                "address": address,
                "operator": account.operator,
                "state": _account_state(account, beat, now).value,
                "accepted": sum(sub.status is Status.ACCEPTED for sub in files),
                "rejected": sum(sub.status is Status.REJECTED for sub in files),
                "pending": sum(sub.status is Status.PENDING for sub in files),
                "units": account.units_accepted,
                "earned": str(account.units_accepted * pool.terms.rate),
                "claimed": str(account.paid),
                "slashed": str(account.slashed),
                "ejected": reason(account.eject_code) if account.ejected else None,
                **_beat(beat),
            }
        )
    return out


def _account_state(account: Account, beat: Heartbeat | None, now: float) -> NodeState:
    left = not account.member and not account.ejected
    return node_state(beat.last_seen if beat else None, now, ejected=account.ejected, left=left)


def _validators(state: State, pool: int, beats: dict[str, Heartbeat], now: float) -> list[dict[str, Any]]:
    votes = _votes(state, pool)
    fees: dict[str, int] = {}
    for payment in state.payments:
        if payment.kind in ("fee", "jury") and payment.pool == pool:
            fees[payment.to] = fees.get(payment.to, 0) + payment.amount
    out = []
    for owner in sorted({seat.owner for seat in state.seats.values()}):
        seats = [seat for seat in state.seats.values() if seat.owner == owner]
        beat = _newest([beats.get(key) for key in {owner, *(seat.voter for seat in seats)}])
        out.append(
            {
                "address": owner,
                "state": node_state(beat.last_seen if beat else None, now, left=all(not s.active for s in seats)).value,
                "seats": [_seat(seat) for seat in seats],
                "votes": sum(votes.get(seat.seat, 0) for seat in seats),
                "fees": str(fees.get(owner, 0)),
                "penalised": str(sum(seat.penalised for seat in seats)),
                **_beat(beat),
            }
        )
    return out


def _newest(beats: list[Heartbeat | None]) -> Heartbeat | None:
    return max((beat for beat in beats if beat is not None), key=lambda beat: beat.last_seen, default=None)


def _seat(seat: Seat) -> dict[str, Any]:
    return {"seat": seat.seat, "voter": seat.voter, "bond": str(seat.bond), "active": seat.active}


def _votes(state: State, pool: int) -> dict[int, int]:
    """Seat → files it revealed a vote on."""
    votes: dict[int, int] = {}
    for (of, _), lane in state.lanes.items():
        for one in lane.rounds if of == pool else ():
            for member in one.reveals:
                votes[one.seats[member]] = votes.get(one.seats[member], 0) + len(lane.sequences)
    return votes


def _others(state: State, pool: int, beats: dict[str, Heartbeat], now: float) -> list[dict[str, Any]]:
    known = {address for of, address in state.accounts if of == pool}
    known |= {key for seat in state.seats.values() for key in (seat.owner, seat.voter)}
    return [
        {"address": beat.address, "role": beat.role, "state": node_state(beat.last_seen, now).value, **_beat(beat)}
        for beat in beats.values()
        if beat.address not in known
    ]


def _published(pool: Pool) -> list[dict[str, Any]]:
    return [{"step": step.step, "time": step.time, "block": step.block} for step in pool.steps]


def _files(state: State, pool: Pool, trained: Trained, recent: int | None) -> list[dict[str, Any]]:
    """Newest first."""
    wanted = pool.sequences if recent is None else pool.sequences[-recent:]
    newest = [state.submissions[pool.pool, sequence] for sequence in reversed(wanted)]
    return [_submission(state, sub, trained) for sub in newest]


def _submission(state: State, sub: Submission, trained: Trained) -> dict[str, Any]:
    return {
        "sequence": sub.sequence,
        "node": sub.node,
        "step": sub.step,
        "counter": sub.counter,
        "units": sub.units,
        "rows": sub.rows,
        "block": sub.block,
        "time": sub.time,
        "decided": sub.decided_time or None,
        "status": sub.status.value,
        "reason": reason(sub.code) if sub.code else "",
        "disputed": (sub.pool, sub.sequence) in state.disputes,
        "trained": max(trained.steps(sub), default=None),
        "trained_twice": len(trained.steps(sub)) > 1,
    }


def _counts(state: State, pool: int) -> dict[str, int]:
    counts = {one.value: 0 for one in Status}
    for sub in state.submissions_of(pool):
        counts[sub.status.value] += 1
    return counts


def _slashes(state: State, pool: int) -> list[dict[str, Any]]:
    return [
        {
            "kind": slash.kind,
            "who": slash.who,
            "sequence": slash.sequence,
            "reason": reason(slash.code) if slash.code else "minority, withheld or overturned vote",
            "amount": str(slash.amount),
            "block": slash.block,
            "time": slash.time,
        }
        for slash in reversed(state.slashes)
        if slash.pool in (pool, 0)
    ][:RECENT]


def _disputes(state: State, pool: int) -> list[dict[str, Any]]:
    return [
        {
            "sequence": one.sequence,
            "disputer": one.disputer,
            "time": one.time,
            "resolved": one.resolved,
            "overturned": one.overturned,
            "outcome": reason(one.code) if one.resolved else "before a jury",
            "reward": str(one.reward),
        }
        for (of, _), one in state.disputes.items()
        if of == pool
    ]


def _canaries(state: State, pool: int) -> list[dict[str, Any]]:
    return [
        {
            "sequence": one.sequence,
            "reason": reason(one.reason),
            "accused": list(one.accused),
            "concluded": one.concluded,
            "upheld": one.upheld,
            "slashed": {str(seat): str(amount) for seat, amount in one.slashed.items()},
            "time": one.time,
        }
        for (of, _), one in state.canaries.items()
        if of == pool
    ]


def _money(row: Row) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, int) else value for key, value in asdict(row).items()}


def _escrow(state: State, pool: Pool) -> dict[str, str]:
    view = escrow(state, pool.pool)
    return {key: str(value) for key, value in {**asdict(view), "free": view.free, "held": view.held}.items()}


def _waits(beats: dict[str, Heartbeat], now: float) -> list[dict[str, Any]]:
    waits = [{"who": "orchestrator", **wait} for wait in WAITS.report()]
    for beat in beats.values():
        if node_state(beat.last_seen, now) in (NodeState.HEALTHY, NodeState.UNHEALTHY):
            waits += [{"who": beat.name or beat.address, **wait} for wait in json.loads(beat.waits)]
    return waits
