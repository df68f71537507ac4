"""What the status and dashboard routes tell: plain JSON values from the chain's state, heartbeats and reports.

Grains are decimal strings, since JavaScript's numbers end at 2⁵³.
"""

import json
from dataclasses import asdict
from typing import Any

from chain.records import Pool
from chain.state import State
from orchestrator import participant_views, submission_views
from orchestrator.ledger import Row, escrow, rows
from orchestrator.liveness import NodeState, node_state
from orchestrator.service import Service
from orchestrator.tables import HeartbeatRow
from protocol.waits import WAITS


def status(service: Service) -> dict[str, Any]:
    """Phase, step, head, waits and the state of every participant."""
    full = dashboard(service)
    keys = ("pool", "phase", "step", "steps", "head", "time", "waits", "in_flight", "chain_error")
    return {
        **{key: full[key] for key in keys},
        "nodes": {node["address"]: node["state"] for node in full["nodes"]},
        "validators": {one["address"]: one["state"] for one in full["validators"]},
    }


def dashboard(service: Service) -> dict[str, Any]:
    """What the page shows, at one moment: the newest files only."""
    return _view(service, submission_views.RECENT)


def record(service: Service) -> dict[str, Any]:
    """The whole run so far: what `orchestrator/summary.py` and `orchestrator/report.py` are made from."""
    return _view(service, None)


def _view(service: Service, recent: int | None) -> dict[str, Any]:
    now, beats, reports, trained = service.clock(), service.beats(), service.reports(), service.trained()
    in_flight = service.leases.in_flight()
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
            "in_flight": asdict(in_flight),
            "rewards": _rewards(reports),
            "reports": reports if recent is None else reports[-recent:],
            "published": _published(pool) if pool else [],
            "nodes": participant_views.nodes(state, pool, beats, now) if pool else [],
            "validators": participant_views.validators(state, watch.pool_id, beats, now),
            "others": participant_views.others(state, watch.pool_id, beats, now),
            "submissions": submission_views.files(state, pool, trained, recent) if pool else [],
            "counts": submission_views.counts(state, watch.pool_id),
            "slashes": submission_views.slashes(state, watch.pool_id),
            "disputes": submission_views.disputes(state, watch.pool_id),
            "canaries": submission_views.canaries(state, watch.pool_id),
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
    if indexer is None or indexer.reconciliation is None:
        return None
    return {**indexer.reconciliation.document(), "current": indexer.current}


def reward_of(report: dict[str, Any]) -> float | None:
    """The mean task reward of the files a step was trained on."""
    metrics: dict[str, float] = report["metrics"]
    names = ("reward", "task_reward_mean", "task_reward", "reward_mean")
    return next((metrics[name] for name in names if name in metrics), None)


def _rewards(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"step": report["step"], "reward": reward_of(report), "heldout": report["heldout"]} for report in reports]


def _published(pool: Pool) -> list[dict[str, Any]]:
    return [{"step": step.step, "time": step.time, "block": step.block} for step in pool.steps]


def _money(row: Row) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, int) else value for key, value in asdict(row).items()}


def _escrow(state: State, pool: Pool) -> dict[str, str]:
    view = escrow(state, pool.pool)
    return {key: str(value) for key, value in {**asdict(view), "free": view.free, "held": view.held}.items()}


def _waits(beats: dict[str, HeartbeatRow], now: float) -> list[dict[str, Any]]:
    waits = [{"who": "orchestrator", **wait} for wait in WAITS.report()]
    for beat in beats.values():
        if node_state(beat.last_seen, now) in (NodeState.HEALTHY, NodeState.UNHEALTHY):
            waits += [{"who": beat.name or beat.address, **wait} for wait in json.loads(beat.waits)]
    return waits
