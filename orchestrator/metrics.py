"""What Prometheus reads at `/metrics`: requests as they were answered, and the run as this replica sees it."""

from collections import Counter as Count
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import REGISTRY, Collector
from starlette.types import Scope

from orchestrator.alarm_gauges import alarm_gauges
from orchestrator.liveness import node_state
from orchestrator.service import Service
from orchestrator.shared_metrics import are_shared

REQUEST_SECONDS = Histogram(
    "muster_request_seconds",
    "Time to answer, by route and kind of status.",
    ["route", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)


def route_of(scope: Scope) -> str:
    """The documented path of a request's route: strangers choose paths, and every label costs memory."""
    return getattr(scope.get("route"), "path", "none")


def exposition(service: Service) -> bytes:
    """Everything, in Prometheus' text format."""
    run = CollectorRegistry(auto_describe=False)
    run.register(_Run(service))
    return generate_latest(_counted()) + generate_latest(run)


def _counted() -> CollectorRegistry:
    """What was counted: by this process, or by all that share the port, and then nothing of any one process."""
    if not are_shared():
        return REGISTRY
    together = CollectorRegistry(auto_describe=False)
    MultiProcessCollector(together)  # type: ignore[no-untyped-call]
    return together


class _Run(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        state, now = service.watch.state, service.clock()
        pool = service.watch.pool(state)
        yield from alarm_gauges(service.watch, service.beats(), service.config.train.steps, now)
        flight = service.leases.in_flight()
        yield GaugeMetricFamily("muster_head_block", "Block up to which the chain is followed.", state.head)
        yield GaugeMetricFamily(
            "muster_chain_trouble", "1 while chain or attestations fail.", int(bool(service.watch.error))
        )
        yield GaugeMetricFamily("muster_policy_step", "Newest published step, -1 before.", pool.step if pool else -1)
        files = GaugeMetricFamily("muster_files_in_flight", "Files by what they wait for.", labels=["stage"])
        for stage in ("leased", "pending", "accepted"):
            files.add_metric([stage], getattr(flight, stage))
        yield files
        beats = service.beats()
        heard = Count(node_state(beat.last_seen, now).value for beat in beats.values())
        states = GaugeMetricFamily("muster_participants", "Participants by their heartbeats.", labels=["state"])
        for name, count in sorted(heard.items()):
            states.add_metric([name], count)
        yield states
        found = service.indexer.reconciliation if service.indexer else None
        if found is not None:
            yield GaugeMetricFamily("muster_ledger_differences", "Findings against the chain.", len(found.findings))
        if pool is not None:
            decided = CounterMetricFamily("muster_files", "Submitted files by outcome.", labels=["status"])
            for status, count in Count(sub.status.value for sub in state.submissions_of(pool.pool)).items():
                decided.add_metric([status], count)
            yield decided
