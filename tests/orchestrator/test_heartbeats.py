"""What a participant's heartbeats and its standing on chain say about it: every combination."""

from itertools import product

import pytest
from sqlalchemy import update

from orchestrator.db import HeartbeatRow, StepReportRow
from orchestrator.heartbeats import KEY_SHARED, Heartbeat, HeartbeatStore, node_state
from protocol.api.run import NodeState
from protocol.api.work import HEARTBEAT_SECONDS, HeartbeatRequest
from tests.orchestrator.chain import CHEAT, NODE, VOTER
from tests.orchestrator.conftest import Desk, announced

BY_MISSES = {
    -100.0: NodeState.HEALTHY,  # the clock was set back
    0.0: NodeState.HEALTHY,
    1.0: NodeState.HEALTHY,
    1.49: NodeState.HEALTHY,
    1.5: NodeState.UNHEALTHY,
    2.5: NodeState.UNHEALTHY,
    3.49: NodeState.UNHEALTHY,
    3.5: NodeState.DEAD,
    4.0: NodeState.DEAD,
    1e9: NodeState.DEAD,
    None: NodeState.WAITING,
}
"""Heartbeat intervals since the newest heartbeat → what a member is; None: there never was one."""


def seen(time: float, interval: float = HEARTBEAT_SECONDS) -> Heartbeat:
    return Heartbeat(HeartbeatRequest(role="worker"), time, interval)


@pytest.mark.parametrize(("ejected", "left"), list(product((False, True), repeat=2)))
def test_the_chain_overrules_every_heartbeat(ejected: bool, left: bool) -> None:
    for misses, expected in BY_MISSES.items():
        last = None if misses is None else seen(1e6)
        now = 1e6 if misses is None else 1e6 + misses * HEARTBEAT_SECONDS
        wanted = NodeState.EJECTED if ejected else NodeState.LEFT if left else expected
        assert node_state(last, now, ejected=ejected, left=left) is wanted, misses
    assert {*BY_MISSES.values(), NodeState.EJECTED, NodeState.LEFT} == set(NodeState), "every state is reached"


def test_who_has_which_step_by_everybodys_own_word(desk: Desk) -> None:
    assert desk.get("status")["held"] == []
    for key, step in ((NODE, 4), (CHEAT, 3)):
        desk.beat(key, weights=step)
    with announced(desk, NODE, step=4):
        pass
    desk.now += 1
    newest = {"step": 4, "nodes": 1, "validators": 0, "relays": 1}
    held = [newest, {"step": 3, "nodes": 1, "validators": 0, "relays": 0}]
    assert desk.get("status")["held"] == desk.get("overview")["held"] == held
    assert desk.get(f"nodes/{NODE.address}")["weights"] == 4
    desk.now += 300
    assert desk.get("status")["held"] == [newest | {"nodes": 0}], "who is silent is not counted"


def test_what_a_process_lacks_is_its_newest_wait_in_its_own_words(desk: Desk) -> None:
    waits = [{"what": "weights that are being fetched", "since": 5.0}]
    waits.append({"what": "shard 00… came with other bytes", "since": 9.0})
    for phase, told, expected in (
        ("trouble", waits, "shard 00… came with other bytes"),
        ("trouble", [], ""),
        ("generating", waits, ""),  # who waits is not in trouble
    ):
        desk.beat(NODE, phase=phase, waits=told)
        desk.now += 1
        assert desk.get(f"nodes/{NODE.address}")["trouble"] == expected


def test_rows_of_a_version_with_other_fields_hide_no_others(desk: Desk) -> None:
    desk.beat(NODE)
    desk.beat(CHEAT)
    desk.report(0, evaluation=desk.evaluation(0, 0.25))
    desk.report(1, evaluation=desk.evaluation(1, 0.25))
    with desk.db.session() as session:
        session.execute(update(HeartbeatRow).where(HeartbeatRow.address == CHEAT.address).values(body='{"a": 1}'))
        session.execute(update(StepReportRow).where(StepReportRow.step == 0).values(body='{"a": 1}'))
    desk.service.heartbeats = HeartbeatStore(desk.db)
    assert list(desk.service.heartbeats.newest()) == [NODE.address]
    assert [report.step for report in desk.service.reports()] == [1]


def test_two_processes_with_one_key_are_named_and_lose_nothing(desk: Desk) -> None:
    lease = desk.lease(NODE)["lease"]
    for instance in ("a", "b", "a", "b", "a"):
        last = desk.beat(NODE, instance=instance, leases=[lease])
        desk.now += HEARTBEAT_SECONDS / 2
    assert last["notice"] == desk.get(f"nodes/{NODE.address}")["trouble"] == KEY_SHARED
    assert last["lease_expires"] is not None
    assert desk.lease(NODE)["lease"] == lease, "neither of them is refused"
    desk.now += 3 * HEARTBEAT_SECONDS
    assert desk.beat(NODE, instance="a")["notice"] == "", "one has ended"
    assert desk.get(f"nodes/{NODE.address}")["trouble"] == ""
    desk.chain.seat(VOTER)
    desk.follow()
    for instance in ("a", "b", "a"):
        desk.beat(VOTER, role="validator", instance=instance)
    assert desk.get(f"validators/{VOTER.address}")["trouble"] == KEY_SHARED


@pytest.mark.parametrize("instances", ["a", "aab", "abcdefgh", ["a", "", "a"], ["", "", ""]])
def test_a_process_that_was_restarted_however_often_is_one(desk: Desk, instances: list[str]) -> None:
    for instance in instances:
        assert desk.beat(NODE, instance=instance)["notice"] == ""
        desk.now += 0.1


def test_two_processes_are_told_apart_whichever_replica_each_talks_to(desk: Desk) -> None:
    stores = [HeartbeatStore(desk.db), HeartbeatStore(desk.db)]
    shared = []
    for turn in range(4):
        beat = HeartbeatRequest(role="worker", instance=f"process {turn % 2}")
        shared.append(stores[turn % 2].store(NODE.address, beat, desk.now + turn).is_shared(desk.now + turn))
    assert shared == [False, False, True, True]
    assert all(store.newest()[NODE.address].is_shared(desk.now + 4) for store in stores)
