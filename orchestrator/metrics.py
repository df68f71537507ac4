"""What Prometheus reads at `/metrics`: requests of all workers, and the run as this replica sees it."""

import os
from collections import Counter as Count
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import REGISTRY, Collector

from chain.indexer.records import Pool
from chain.indexer.state import State, standing_of
from orchestrator.chain import PoolView
from orchestrator.heartbeats import Heartbeat, Heartbeats, node_state
from orchestrator.service import Service
from protocol import VERSION
from protocol.waits import WAITS

_ROLES = ("worker", "validator", "trainer")


def exposition(service: Service) -> bytes:
    """Return all metrics in Prometheus' text format."""
    requests = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        requests = CollectorRegistry(auto_describe=False)
        MultiProcessCollector(requests)  # type: ignore[no-untyped-call]
    run = CollectorRegistry(auto_describe=False)
    run.register(_Run(service))
    return generate_latest(requests) + generate_latest(run)


class _Run(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        state, now, heartbeats = service.view.state, service.clock(), service.heartbeats()
        pool = service.view.pool(state)
        yield from chain_metrics(service.view, service.config.train.steps, now)
        yield from participant_metrics(heartbeats, now)
        yield GaugeMetricFamily("muster_head_block", "Block up to which the chain is followed.", state.head)
        trouble = int(bool(service.view.error))
        yield GaugeMetricFamily("muster_chain_trouble", "1 while chain or attestations fail.", trouble)
        failing = sum(bool(task.problem) for task in service.tasks)
        yield GaugeMetricFamily("muster_tasks_failing", "Background tasks of this replica that fail.", failing)
        yield GaugeMetricFamily("muster_policy_step", "Newest published step, -1 before.", pool.step if pool else -1)
        in_flight = service.leases.in_flight()
        files = GaugeMetricFamily("muster_files_in_flight", "Files by what they wait for.", labels=["stage"])
        for stage in ("leased", "pending", "accepted"):
            files.add_metric([stage], getattr(in_flight, stage))
        yield files
        watcher = service.chain_watcher
        if watcher is not None and watcher.reconciliation is not None:
            findings = len(watcher.reconciliation.findings)
            yield GaugeMetricFamily("muster_ledger_differences", "Findings against the chain.", findings)
        if pool is not None:
            decided = CounterMetricFamily("muster_files", "Submitted files by outcome.", labels=["status"])
            for status, count in Count(sub.status.value for sub in state.submissions_of(pool.pool)).items():
                decided.add_metric([status], count)
            yield decided


def chain_metrics(view: PoolView, steps: int, now: float) -> Iterator[Metric]:
    """Yield how old the view of the chain is, and what the chain says of nodes and disputes. `steps`: policy steps that
    the pool is to make; `now` in Unix seconds."""
    state, pool = view.state, view.pool(view.state)
    if view.moved is not None:
        age = max(0.0, now - view.moved)
        yield GaugeMetricFamily("muster_head_age_seconds", "Since the chain last had a new block.", age)
    if pool is None:
        return
    if pool.steps and pool.step < steps:
        age = max(0.0, now - pool.steps[-1].time)
        yield GaugeMetricFamily("muster_step_age_seconds", "Since the newest policy step was published.", age)
    nodes = GaugeMetricFamily("muster_nodes", "Nodes that ever joined, by standing on chain.", labels=["standing"])
    standings = Count(standing_of(account).value for (of, _), account in state.accounts.items() if of == pool.pool)
    for name, count in sorted(standings.items()):
        nodes.add_metric([name], count)
    yield nodes
    yield from _enforcement(state, pool)


def _enforcement(state: State, pool: Pool) -> Iterator[Metric]:
    slashes = CounterMetricFamily("muster_slashes", "Slashes by kind.", labels=["kind"])
    counts = Count(slash.kind for slash in state.slashes if slash.pool == pool.pool)
    for kind in ("node", "seat"):
        slashes.add_metric([kind], counts[kind])
    yield slashes
    unresolved = sum(not dispute.resolved for (of, _), dispute in state.disputes.items() if of == pool.pool)
    yield GaugeMetricFamily("muster_disputes_open", "Disputes that a jury still decides.", unresolved)


def participant_metrics(heartbeats: Heartbeats, now: float) -> Iterator[Metric]:
    """Yield how participants are by their heartbeats. A process of another version than this one counts as behind; one
    that names no version does not."""
    states = GaugeMetricFamily("muster_participants", "Participants by their heartbeats.", labels=["state"])
    for name, count in sorted(Count(node_state(one, now).value for one in heartbeats.values()).items()):
        states.add_metric([name], count)
    yield states
    present = GaugeMetricFamily("muster_processes", "Processes whose heartbeats arrive, by role.", labels=["role"])
    trouble = GaugeMetricFamily(
        "muster_processes_in_trouble", "Processes that report that what they need does not answer.", labels=["role"]
    )
    behind = GaugeMetricFamily("muster_processes_behind", "Processes of another version of muster.", labels=["role"])
    longest = GaugeMetricFamily("muster_longest_wait_seconds", "The longest wait that is reported.", labels=["role"])
    alive = [heartbeat for heartbeat in heartbeats.values() if heartbeat.is_alive(now)]
    for role in _ROLES:
        own = [heartbeat for heartbeat in alive if heartbeat.body.role == role]
        present.add_metric([role], len(own))
        trouble.add_metric([role], sum(map(_in_trouble, own)))
        behind.add_metric([role], sum(heartbeat.body.version not in ("", VERSION) for heartbeat in own))
        waited = [now - wait.since for heartbeat in own for wait in heartbeat.body.waits]
        longest.add_metric([role], max(waited, default=0.0))
    longest.add_metric(["orchestrator"], max((now - wait["since"] for wait in WAITS.report()), default=0.0))
    yield from (present, trouble, behind, longest)


def _in_trouble(heartbeat: Heartbeat) -> bool:
    return heartbeat.body.phase == "trouble" or heartbeat.body.metrics.get("unserved_pools", 0.0) > 0
