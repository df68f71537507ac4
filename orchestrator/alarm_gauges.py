"""Gauges that alerts stand on: how old the view of the chain is, who is in trouble, frozen, slashed or behind."""

from collections import Counter as Count
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from chain.indexer.state import State, standing_of
from orchestrator.liveness import Beat, node_state
from orchestrator.watch import Watch
from protocol.api.run import NodeState
from protocol.version import VERSION
from protocol.waits import WAITS

_HEARD = (NodeState.HEALTHY, NodeState.UNHEALTHY)
_ROLES = ("worker", "validator", "trainer")


def alarm_gauges(watch: Watch, beats: Mapping[str, Beat], steps: int, now: float) -> Iterator[Metric]:
    """Of the pool that `watch` follows, which is to make `steps` policy steps; `now` in Unix seconds."""
    state = watch.state
    if watch.moved is not None:
        age = max(0.0, now - watch.moved)
        yield GaugeMetricFamily("muster_head_age_seconds", "Since the chain last had a new block.", age)
    yield from _participants(beats, now)
    pool = watch.pool(state)
    if pool is None:
        return
    if pool.steps and pool.step < steps:
        age = max(0.0, now - pool.steps[-1].time)
        yield GaugeMetricFamily("muster_step_age_seconds", "Since the newest policy step was published.", age)
    standings = Count(standing_of(account).value for (of, _), account in state.accounts.items() if of == pool.pool)
    nodes = GaugeMetricFamily("muster_nodes", "Nodes that ever joined, by standing on chain.", labels=["standing"])
    for name, count in sorted(standings.items()):
        nodes.add_metric([name], count)
    yield nodes
    yield from _enforcement(state, pool.pool)


def _participants(beats: Mapping[str, Beat], now: float) -> Iterator[Metric]:
    """Of those whose heartbeats come; another version than ours counts as behind, none does not."""
    heard = [beat for beat in beats.values() if node_state(beat.last_seen, now) in _HEARD]
    present = GaugeMetricFamily("muster_processes", "Processes whose heartbeats come, by role.", labels=["role"])
    trouble = GaugeMetricFamily(
        "muster_processes_in_trouble", "Processes that say what they need does not answer.", labels=["role"]
    )
    behind = GaugeMetricFamily("muster_processes_behind", "Processes of another version of muster.", labels=["role"])
    waits = GaugeMetricFamily("muster_longest_wait_seconds", "The longest wait that anybody reports.", labels=["role"])
    for role in _ROLES:
        own = [beat for beat in heard if beat.said.role == role]
        present.add_metric([role], len(own))
        trouble.add_metric([role], sum(map(_in_trouble, own)))
        behind.add_metric([role], sum(beat.said.version not in ("", VERSION) for beat in own))
        waits.add_metric([role], max((now - wait.since for beat in own for wait in beat.said.waits), default=0.0))
    waits.add_metric(["orchestrator"], max((now - wait["since"] for wait in WAITS.report()), default=0.0))
    yield from (present, trouble, behind, waits)


def _in_trouble(beat: Beat) -> bool:
    return beat.said.phase == "trouble" or beat.said.metrics.get("unserved_pools", 0.0) > 0


def _enforcement(state: State, pool: int) -> Iterator[Metric]:
    slashes = CounterMetricFamily("muster_slashes", "Slashes by kind.", labels=["kind"])
    counts = Count(one.kind for one in state.slashes if one.pool == pool)
    for kind in ("node", "seat"):
        slashes.add_metric([kind], counts[kind])
    yield slashes
    open_ones = sum(not one.resolved for (of, _), one in state.disputes.items() if of == pool)
    yield GaugeMetricFamily("muster_disputes_open", "Disputes that a jury still decides.", open_ones)
