"""What Prometheus reads at `/metrics`: requests of all workers, and the run as this replica sees it."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import REGISTRY, Collector

from chain.indexer.state import standing_of
from orchestrator.chain import PoolView
from orchestrator.heartbeats import Heartbeat, node_state
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


def _labelled(
    kind: type[GaugeMetricFamily | CounterMetricFamily], name: str, words: str, label: str, values: Mapping[str, float]
) -> Metric:
    metric = kind(f"muster_{name}", words, labels=[label])
    for value, count in sorted(values.items()):
        metric.add_metric([value], count)
    return metric


class _Run(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service, view = self._service, self._service.view
        state, pool, now = view.state, view.pool(view.state), service.clock()
        yield from chain_metrics(view, 0 if service.consumed().over else service.config.train.steps, now)
        yield from participant_metrics(service.heartbeats.newest(), now)
        yield GaugeMetricFamily("muster_head_block", "Block up to which the chain is followed.", state.head)
        trouble = int(bool(view.error))
        yield GaugeMetricFamily("muster_chain_trouble", "1 while following the chain or relaying fails.", trouble)
        failing = sum(bool(task.problem) for task in service.tasks)
        yield GaugeMetricFamily("muster_tasks_failing", "Background tasks of this replica that fail.", failing)
        yield GaugeMetricFamily("muster_policy_step", "Newest published step, -1 before.", pool.step if pool else -1)
        count = service.leases.in_flight()
        stages = {"leased": count.leased, "pending": count.pending, "accepted": count.accepted}
        yield _labelled(GaugeMetricFamily, "files_in_flight", "Files by what they wait for.", "stage", stages)
        watcher = service.chain_watcher
        if watcher is not None and watcher.reconciliation is not None:
            findings = len(watcher.reconciliation.findings)
            yield GaugeMetricFamily("muster_ledger_differences", "Findings against the chain.", findings)
        outcomes = Counter(sub.status.value for sub in state.submissions_of(view.pool_id))
        yield _labelled(CounterMetricFamily, "files", "Submitted files by outcome.", "status", outcomes)


def chain_metrics(view: PoolView, steps: int, now: float) -> Iterator[Metric]:
    """Yield the age of the view of the chain, and what the chain says of nodes and disputes."""
    state, pool = view.state, view.pool(view.state)
    if view.moved is not None:
        age = max(0.0, now - view.moved)
        yield GaugeMetricFamily("muster_head_age_seconds", "Since the chain last had a new block.", age)
    if pool is None:
        return
    if pool.steps and pool.step < steps:
        age = max(0.0, now - pool.steps[-1].time)
        yield GaugeMetricFamily("muster_step_age_seconds", "Since the newest policy step was published.", age)
    standings = Counter(standing_of(account).value for (of, _), account in state.accounts.items() if of == pool.pool)
    yield _labelled(GaugeMetricFamily, "nodes", "Nodes that ever joined, by standing on chain.", "standing", standings)
    slashes = Counter({"node": 0, "seat": 0})
    slashes.update(slash.kind for slash in state.slashes if slash.pool == pool.pool)
    yield _labelled(CounterMetricFamily, "slashes", "Slashes by kind.", "kind", slashes)
    unresolved = sum(not dispute.resolved for dispute in state.disputes.values() if dispute.pool == pool.pool)
    yield GaugeMetricFamily("muster_disputes_open", "Disputes that a jury still decides.", unresolved)


def participant_metrics(heartbeats: Mapping[str, Heartbeat], now: float) -> Iterator[Metric]:
    """Yield how participants are; one whose version is named and not this one's counts as behind."""
    states = Counter(node_state(heartbeat, now).value for heartbeat in heartbeats.values())
    yield _labelled(GaugeMetricFamily, "participants", "Participants by their heartbeats.", "state", states)
    alive = [heartbeat for heartbeat in heartbeats.values() if heartbeat.is_alive(now)]
    by_role = {role: [heartbeat for heartbeat in alive if heartbeat.body.role == role] for role in _ROLES}
    present = {role: len(beats) for role, beats in by_role.items()}
    trouble = {role: sum(map(_in_trouble, beats)) for role, beats in by_role.items()}
    behind = {role: sum(beat.body.version not in ("", VERSION) for beat in beats) for role, beats in by_role.items()}
    longest = {
        role: max((now - wait.since for beat in beats for wait in beat.body.waits), default=0.0)
        for role, beats in by_role.items()
    }
    longest["orchestrator"] = max((now - wait["since"] for wait in WAITS.report()), default=0.0)
    for name, description, values in (
        ("processes", "Processes whose heartbeats arrive, by role.", present),
        ("processes_in_trouble", "Processes that report that what they need does not answer.", trouble),
        ("processes_behind", "Processes of another version of muster.", behind),
        ("longest_wait_seconds", "The longest wait that is reported.", longest),
    ):
        yield _labelled(GaugeMetricFamily, name, description, "role", values)


def _in_trouble(heartbeat: Heartbeat) -> bool:
    return heartbeat.body.phase == "trouble" or heartbeat.body.metrics.get("unserved_pools", 0.0) > 0
