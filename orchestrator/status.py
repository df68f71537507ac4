"""The public documents of a run: status, dashboard and record, from the chain's state, heartbeats and reports."""

from collections.abc import Mapping

from chain.indexer.records import Pool, Step
from chain.indexer.state import State
from orchestrator import participant_views, submission_views
from orchestrator.ledger import escrow, rows
from orchestrator.liveness import Beat, node_state
from orchestrator.service import Service
from protocol.api import run
from protocol.config import PoolConfig
from protocol.waits import WAITS


def status(service: Service) -> run.RunStatus:
    """Phase, step, head, waits and the state of every participant."""
    now, beats, watch = service.clock(), service.beats(), service.watch
    state, steps = watch.state, service.config.train.steps
    pool = watch.pool(state)
    step = pool.step if pool and pool.steps else None
    return run.RunStatus(
        pool=watch.pool_id,
        phase=phase(state, pool, service.config),
        step=step,
        steps=steps,
        head=state.head,
        time=now,
        waits=waits(beats, now),
        in_flight=service.leases.in_flight(),
        chain_error=watch.error,
        held=participant_views.held_steps(beats, service.sources.steps(), now),
        nodes=participant_views.node_states(state, watch.pool_id, beats, now),
        validators=participant_views.validator_states(state, beats, now),
    )


def dashboard(service: Service) -> run.RunRecord:
    """What the page shows, at one moment: the newest files only."""
    return _view(service, submission_views.RECENT)


def record(service: Service) -> run.RunRecord:
    """The whole run so far: what its summary and report are made from."""
    return _view(service, None)


def _view(service: Service, recent: int | None) -> run.RunRecord:
    now, beats, reports, trained = service.clock(), service.beats(), service.reports(), service.trained()
    in_flight, reconciliation = service.leases.in_flight(), reconciliation_entry(service)
    watch, config = service.watch, service.config
    state = watch.state
    pool = watch.pool(state)
    step = pool.step if pool and pool.steps else None
    return run.RunRecord(
        name=config.name,
        model=shown_source(config.model.source),
        task=config.environment_names,
        pool=watch.pool_id,
        owner=pool.owner if pool else None,
        phase=phase(state, pool, config),
        time=now,
        started=service.started,
        head=state.head,
        chain_error=watch.error,
        step=step,
        usable_step=watch.usable_step(state),
        steps=config.train.steps,
        in_flight=in_flight,
        rewards=[reward_entry(one) for one in reports],
        reports=reports if recent is None else reports[-recent:],
        published=[published_entry(one) for one in pool.steps] if pool else [],
        nodes=participant_views.nodes(state, pool, beats, now) if pool else [],
        validators=participant_views.validators(state, watch.pool_id, beats, now),
        others=participant_views.others(state, watch.pool_id, beats, now),
        submissions=submission_views.files(state, pool, trained, recent) if pool else [],
        counts=submission_views.counts(state, watch.pool_id),
        slashes=submission_views.slashes(state, watch.pool_id),
        disputes=submission_views.disputes(state, watch.pool_id),
        canaries=submission_views.canaries(state, watch.pool_id),
        ledger=rows(state, pool.pool, int(now)) if pool else [],
        escrow=escrow(state, pool.pool) if pool else None,
        reconciliation=reconciliation,
        waits=waits(beats, now),
        chain_id=service.uploads.pool.chain_id,
        cases=submission_views.cases(state, watch.pool_id),
    )


def shown_source(source: str) -> str:
    """A model's source without its owner's folders: a path says nothing to anybody else."""
    return source.rstrip("/").rpartition("/")[2] if source.startswith(("/", ".", "~")) else source


def published_entry(step: Step) -> run.PublishedEntry:
    return run.PublishedEntry(
        step=step.step, time=step.time, block=step.block, tx=step.tx, manifest=step.manifest.hex()
    )


def phase(state: State, pool: Pool | None, config: PoolConfig) -> str:
    """Where the run stands, in a few words."""
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
    indexer = service.indexer
    if indexer is None or indexer.reconciliation is None:
        return None
    return run.ReconciliationEntry(**vars(indexer.reconciliation), current=indexer.current)


def reward_entry(report: run.ReportEntry) -> run.RewardEntry:
    """What a report says of how good its step is."""
    sets = report.evaluation.evaluation.results if report.evaluation else []
    heldout = sets[0].average if sets else None
    return run.RewardEntry(step=report.step, reward=reward_of(report), heldout=heldout, sets=sets)


def reward_of(report: run.ReportEntry) -> float | None:
    """The mean task reward of the files a step was trained on."""
    names = ("reward", "task_reward_mean", "task_reward", "reward_mean")
    return next((report.metrics[name] for name in names if name in report.metrics), None)


def waits(beats: Mapping[str, Beat], now: float) -> list[run.WaitEntry]:
    """What this service and those whose heartbeats come are waiting for."""
    found = [run.WaitEntry(who="orchestrator", **wait) for wait in WAITS.report()]
    for address, (said, last_seen) in beats.items():
        if said.waits and node_state(last_seen, now) in (run.NodeState.HEALTHY, run.NodeState.UNHEALTHY):
            found += [run.WaitEntry(who=said.name or address, **vars(wait)) for wait in said.waits]
    return found
