"""Each fault that an alert of the service is about changes the gauge that the alert reads."""

from dataclasses import replace
from typing import Any

import pytest

from chain.indexer.records import Dispute, Slash
from orchestrator.dashboard.metrics import chain_metrics, participant_metrics
from orchestrator.heartbeats import Heartbeat
from protocol.api.work import HeartbeatRequest, WaitLine
from tests.orchestrator.conftest import Desk

NODE = "0x" + "ab" * 20


def gauges(desk: Desk, heartbeats: dict[str, Heartbeat] | None = None, steps: int = 4) -> dict[str, float]:
    """Sample, with its label's value in braces → its value."""
    found = {}
    families = (*chain_metrics(desk.view, steps, desk.now), *participant_metrics(heartbeats or {}, desk.now))
    for family in families:
        for one in family.samples:
            label = next(iter(one.labels.values()), "")
            found[f"{one.name}{{{label}}}" if label else one.name] = one.value
    return found


def beat(desk: Desk, age: float = 1.0, **fields: object) -> Heartbeat:
    return Heartbeat(HeartbeatRequest.model_validate({"role": "worker", "name": "w"} | fields), desk.now - age)


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"phase": "trouble"}, "muster_processes_in_trouble{worker}"),
        ({"role": "validator", "metrics": {"unserved_pools": 1.0}}, "muster_processes_in_trouble{validator}"),
        ({"version": "0.0.1"}, "muster_processes_behind{worker}"),
    ],
)
def test_a_heartbeat_that_tells_of_trouble_is_counted(desk: Desk, fields: dict[str, Any], changed: str) -> None:
    well = gauges(desk, {NODE: beat(desk, phase="generating", role=fields.get("role", "worker"))})
    ill = gauges(desk, {NODE: beat(desk, 1.0, **fields)})
    assert {name for name in ill if ill[name] != well[name]} == {changed}
    assert ill[changed] == 1


def test_who_is_silent_is_not_present_and_not_in_trouble(desk: Desk) -> None:
    for age, present in ((1.0, 1), (300.0, 0)):
        found = gauges(desk, {NODE: beat(desk, age, phase="trouble")})
        assert found["muster_processes{worker}"] == found["muster_processes_in_trouble{worker}"] == present


def test_the_longest_wait_of_a_role_is_told(desk: Desk) -> None:
    waits = [WaitLine(what="a lease", since=desk.now - seconds) for seconds in (5.0, 90.0)]
    found = gauges(desk, {NODE: beat(desk, waits=waits)})
    assert found["muster_longest_wait_seconds{worker}"] == 90.0
    assert found["muster_longest_wait_seconds{trainer}"] == 0.0


def test_a_chain_without_new_blocks_and_a_run_without_new_steps_grow_old(desk: Desk) -> None:
    desk.view.refresh()
    desk.view.moved = desk.now - 300.0
    found = gauges(desk)
    assert found["muster_head_age_seconds"] == 300.0
    assert found["muster_step_age_seconds"] == desk.now - desk.view.state.pools[1].steps[-1].time
    assert "muster_step_age_seconds" not in gauges(desk, steps=0), "a run that is over waits for nothing"


@pytest.mark.parametrize(
    ("account", "changes", "changed"),
    [
        ({"frozen_at": 5}, {}, "muster_nodes{frozen}"),
        ({"ejected": True}, {}, "muster_nodes{ejected}"),
        ({}, {"slashes": [Slash("node", NODE, 1, 3, 4, 10, 1, 1, "0x")]}, "muster_slashes_total{node}"),
        ({}, {"disputes": {(1, 3): Dispute(1, 3, NODE, 0, 5, 1)}}, "muster_disputes_open"),
    ],
)
def test_what_the_chain_says_of_nodes_is_counted(
    desk: Desk, account: dict[str, Any], changes: dict[str, Any], changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, state = gauges(desk), desk.view.state
    first = next(iter(state.accounts))
    accounts = state.accounts | {first: replace(state.accounts[first], **account)}
    faulty = replace(state, **{"slashes": [], "disputes": {}, "accounts": accounts} | changes)
    monkeypatch.setattr(desk.view.projection, "_state", faulty)
    assert gauges(desk)[changed] == before.get(changed, 0) + 1
