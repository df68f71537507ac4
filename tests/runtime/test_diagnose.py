"""Each fault raises its alarm and no other; what could not be asked raises nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chain.indexer.records import Account, Node, Pool, Seat, Step
from chain.indexer.state import State
from protocol import VERSION
from runtime import diagnose
from runtime.diagnose import NAMES, Facts, ServiceFacts, WatchConfig, alarms, undecided
from runtime.watch import CLEAR_AFTER, WatchMemory, with_alarms
from tests.orchestrator.chain import NODE, TERMS
from tests.storage.mirror import mirror, send

NOW = 1_000_000.0
GIB = 1 << 30
ADDRESS = str(NODE.address)


def config(**more: object) -> WatchConfig:
    values: dict[str, object] = {
        "home": "/h",
        "deployment": "d.json",
        "rpc": ["http://rpc"],
        "pool": 1,
        "orchestrator": "http://service",
        "node": ADDRESS,
        "seats_of": ADDRESS,
        "service_key": ADDRESS,
        "accounts": {"node": ADDRESS},
        "folders": {"home": "/h"},
    }
    return WatchConfig.model_validate(values | more)


def step(time: float) -> Step:
    return Step(3, bytes(32), bytes(32), 1, 1, int(time), "")


STATE = State(
    pools={1: Pool(1, ADDRESS, bytes(32), TERMS, 0, 1, service=ADDRESS, steps=[step(NOW - 60)])},
    nodes={ADDRESS: Node(ADDRESS, ADDRESS, TERMS.minStake)},
    accounts={(1, ADDRESS): Account(1, ADDRESS, ADDRESS, member=True)},
    seats={4: Seat(4, ADDRESS, ADDRESS, 1, 1)},
)
SERVICE = ServiceFacts(version=VERSION, state="healthy", phase="generating", done=3.0)
WELL = Facts(
    now=NOW,
    free={"home": 50 * GIB},
    head_age=2.0,
    transactions_left={"node": 500},
    state=STATE,
    service=SERVICE,
    progressed=NOW - 60,
)
Fault = Callable[[Facts], Facts]


def chain(table: str, **changes: object) -> Fault:
    """The only record of a table of the state is another."""
    ((key, record),) = getattr(STATE, table).items()
    changed: dict[str, Any] = {table: {key: replace(record, **changes)}}
    return machine(state=replace(STATE, **changed))


def service(**changes: object) -> Fault:
    return lambda facts: replace(facts, service=replace(SERVICE, **changes))  # type: ignore[arg-type]


def machine(**changes: object) -> Fault:
    return lambda facts: replace(facts, **changes)  # type: ignore[arg-type]


FAULTS: dict[str, list[Fault]] = {
    "disk_full": [machine(free={"home": GIB}), machine(free={"home": None})],
    "clock_wrong": [service(clock_offset=9.0), service(clock_offset=-9.0)],
    "chain_lost": [machine(chain_error="no", head_age=None, transactions_left={}, state=None)],
    "chain_stale": [machine(head_age=500.0)],
    "service_lost": [machine(service_error="no", service=None)],
    "database_lost": [service(ready=False)],
    "service_trouble": [service(problems=("relay: the key has no ETH for gas",))],
    "storage_lost": [service(storage_error="no")],
    "version_behind": [service(version="0.0.1")],
    "gas_low": [machine(transactions_left={"node": 19})],
    "stake_low": [chain("nodes", stake=TERMS.minStake - 1)],
    "stake_frozen": [chain("accounts", frozen_at=5)],
    "ejected": [chain("accounts", ejected=True), chain("accounts", removed=True)],
    "seat_out": [chain("seats", evicted=True)],
    "key_stale": [chain("pools", service="")],
    "process_gone": [
        service(state="dead"),
        machine(process_gone="no process works in /h"),
        lambda facts: replace(facts, process_gone="no process works in /h", service=replace(SERVICE, state="dead")),
        machine(process_gone="no process works in /h", service=None),
    ],
    "process_in_trouble": [
        service(phase="trouble"),
        service(phase="trouble", trouble="shard 00… came with other bytes"),
        service(phase="generating", trouble="another process works with this key"),
        service(phase="watching; CANNOT SERVE pool 2"),
    ],
    "process_stalled": [
        machine(progressed=NOW - 3601),
        machine(process_stalled="a step of the model does not end", progressed=NOW - 3601),
        machine(process_stalled="a step of the model does not end", service=None),
    ],
    "run_stalled": [chain("pools", steps=[step(NOW - 3601)])],
    "training_unstable": [service(trainer="stopped: training has become unstable")],
}


def names(facts: Facts) -> list[str]:
    return [alarm.name for alarm in alarms(config(), facts)]


def test_a_healthy_participant_raises_nothing() -> None:
    assert names(WELL) == []
    assert undecided(WELL) == frozenset()
    assert names(chain("seats", evicted=True, closed=True)(WELL)) == []


def test_every_alarm_has_a_fault() -> None:
    assert set(FAULTS) == set(NAMES)


@pytest.mark.parametrize(("name", "fault"), [(name, fault) for name, some in FAULTS.items() for fault in some])
def test_each_fault_raises_its_alarm_with_a_cure(name: str, fault: Fault) -> None:
    (alarm,) = alarms(config(), fault(WELL))
    assert alarm.name == name
    assert alarm.what
    assert alarm.hint


def test_a_run_that_is_over_or_closed_does_not_stall() -> None:
    old = chain("pools", steps=[step(0)])(WELL)
    assert names(replace(old, service=replace(SERVICE, finished=True))) == []
    assert names(chain("pools", steps=[step(0)], status="closing")(WELL)) == []


def test_an_alarm_begins_once_and_is_over_after_some_looks_without_it() -> None:
    (gas,) = alarms(config(), machine(transactions_left={"node": 1})(WELL))
    memory, begun, over = with_alarms(WatchMemory(), [gas], frozenset(), NOW)
    assert (begun, over, memory.raised) == (["gas_low"], [], {"gas_low": NOW})
    memory, begun, over = with_alarms(memory, [gas], frozenset(), NOW + 5)
    assert (begun, over, memory.raised) == ([], [], {"gas_low": NOW})
    for _ in range(CLEAR_AFTER - 1):
        memory, begun, over = with_alarms(memory, [], frozenset(), NOW + 9)
        assert over == []
    again, begun, _ = with_alarms(memory, [gas], frozenset(), NOW + 10)
    assert begun == [], "it never was over"
    assert again.quiet == {}
    memory, _, over = with_alarms(memory, [], frozenset(), NOW + 10)
    assert (over, memory.raised, memory.quiet) == (["gas_low"], {}, {})


def test_an_alarm_that_cannot_be_judged_is_not_over() -> None:
    lost = FAULTS["chain_lost"][0](WELL)
    memory = WatchMemory(raised={"gas_low": NOW, "stake_low": NOW})
    for _ in range(10):
        memory, _, over = with_alarms(memory, alarms(config(), lost), undecided(lost), NOW)
        assert over == []
    assert set(memory.raised) == {"gas_low", "stake_low", "chain_lost"}


def test_a_clock_is_compared_with_a_date_of_whole_seconds() -> None:
    date = "Mon, 12 Jan 1970 13:46:40 GMT"
    assert diagnose.clock_offset(date, NOW + 0.9, NOW + 0.9) == 0.0
    assert diagnose.clock_offset(date, NOW + 30.5, NOW + 30.5) == 30.0
    assert diagnose.clock_offset(date, NOW - 29.5, NOW - 29.5) == -30.0
    assert diagnose.clock_offset("yesterday", NOW, NOW) == diagnose.clock_offset("", NOW, NOW) == 0.0
    # A service that answers slowly has no wrong clock.
    assert diagnose.clock_offset(date, NOW - 9, NOW) == diagnose.clock_offset(date, NOW, NOW + 9) == 0.0
    assert diagnose.clock_offset(date, NOW + 10.5, NOW + 19) == 10.0


def test_a_missing_folder_has_no_room(tmp_path: Path) -> None:
    assert diagnose.free_bytes(tmp_path / "none") is None
    assert (diagnose.free_bytes(tmp_path) or 0) > 0


ESCAPE = "\x1b]0;owned\x07\u202e" + "x" * 5000
ANSWERS: dict[str, Any] = {
    "/health": {"version": ESCAPE},
    "/ready": {"problems": [ESCAPE] * 1000},
    "/v1/status": {"phase": "training", "step": 3},
    "/v1/releases": {
        "releases": [{"from_step": 5, "versions": ["9" * 32] * 16}],
        "signature": "0x" + "00" * 65,
    },
    f"/v1/nodes/{ADDRESS}": {"state": "healthy", "phase": "trouble", "trouble": ESCAPE},
    "/v1/dashboard": {"others": [{"role": "trainer", "phase": "stopped: " + ESCAPE}]},
}


def test_a_services_words_are_few_and_printable() -> None:
    with mirror(lambda handler: send(handler, 200, json.dumps(ANSWERS[handler.path]).encode())) as url:
        found = diagnose.look_at_service(url, node=ADDRESS, owner=True)
    assert found.trainer.startswith("stopped: ")
    assert found.problems
    assert found.notice.startswith("from policy step 5 on (now 3) the pool accepts muster 999")
    assert len(found.notice) <= 201
    words = [found.version, found.trouble, found.trainer, *found.problems]
    assert all(one and one.isprintable() for one in words)
    assert sum(map(len, words)) < 3000
