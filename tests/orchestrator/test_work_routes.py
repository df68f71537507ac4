"""Leases, heartbeats and the trainer's reports, asked for over HTTP."""

from typing import Any

from protocol.verdict import Code
from protocol.version import VERSION
from tests.orchestrator.chain import CHEAT, NODE, OWNER, STRANGER
from tests.orchestrator.conftest import Desk, is_error


def test_heartbeats_renew_the_lease_and_show_on_the_dashboard(desk: Desk) -> None:
    lease = desk.post(NODE, "/v1/leases", {}).json()
    desk.now += 20
    beat = {"role": "worker", "name": "w1", "lease": lease["lease"], "waits": [{"what": "weights", "since": desk.now}]}
    answer = desk.post(NODE, "/v1/heartbeats", beat).json()
    assert answer == {"state": "healthy", "next": 60.0, "step": 0, "lease_expires": desk.now + 180, "version": VERSION}
    view = desk.http.get("/v1/dashboard").json()
    assert {"who": "w1", "what": "weights", "since": desk.now} in view["waits"]
    assert view["in_flight"]["leased"] == 1
    states = desk.http.get("/v1/status").json()["nodes"]
    assert states == {NODE.address: "healthy", CHEAT.address: "waiting"}
    stolen = desk.post(CHEAT, "/v1/heartbeats", {"role": "worker", "lease": lease["lease"]}).json()
    assert stolen["lease_expires"] is None
    desk.now += 181
    assert desk.http.get("/v1/dashboard").json()["in_flight"]["leased"] == 0


def test_leases_follow_the_chain(desk: Desk) -> None:
    for counter in (0, 1):
        for key in (NODE, CHEAT):
            assert "lease" in desk.post(key, "/v1/leases", {"counter": counter}).json()
    first = desk.chain.submit(CHEAT, 0)
    desk.follow()
    waiting = desk.post(CHEAT, "/v1/leases", {"counter": 2}).json()
    assert "as many as training can use (4)" in waiting["reason"]
    desk.follow(lambda: desk.chain.settle(CHEAT, first, Code.REJECT_WEIGHTS))
    assert is_error(desk.post(CHEAT, "/v1/leases", {}), 403, "stake is frozen")
    desk.follow(lambda: desk.chain.finalize(CHEAT, first, Code.REJECT_WEIGHTS, 5000, 3003))
    assert is_error(desk.post(CHEAT, "/v1/leases", {}), 403, "ejected: reject: weights")
    view = desk.http.get("/v1/dashboard").json()
    assert view["slashes"][0]["reason"] == "reject: weights"
    assert next(n for n in view["nodes"] if n["address"] == CHEAT.address)["state"] == "ejected"


def test_a_reorganisation_takes_the_submission_back(desk: Desk) -> None:
    lease = desk.post(NODE, "/v1/leases", {"counter": 0}).json()
    desk.follow(lambda: desk.chain.submit(NODE, 0))
    assert desk.post(NODE, "/v1/leases", {"counter": 0}).json()["wait"] == 1.0
    desk.follow(lambda: desk.chain.rewind(1))
    again = desk.post(NODE, "/v1/leases", {"counter": 0}).json()
    assert again["counter"] == 0
    assert again["lease"] == lease["lease"]


def test_budget_pause_and_close(desk: Desk) -> None:
    desk.follow(lambda: desk.chain.emit("Pools", "StatusSet", pool=1, status=2))
    assert "paused" in desk.post(NODE, "/v1/leases", {}).json()["reason"]
    desk.follow(lambda: desk.chain.emit("Pools", "StatusSet", pool=1, status=5))
    assert "too few seats" in desk.post(NODE, "/v1/leases", {}).json()["reason"]
    desk.follow(lambda: desk.chain.emit("Pools", "StatusSet", pool=1, status=3))
    assert is_error(desk.post(NODE, "/v1/leases", {}), 403, "closing")


def test_the_trainers_reports(desk: Desk) -> None:
    report = {"step": 1, "consumed": [0, 1], "metrics": {"reward": 0.5}, "timings": {"train": 1.5}, "evaluation": None}
    assert is_error(desk.post(NODE, "/v1/steps", report), 403, "not the owner")
    measured = desk.evaluation(0, 0.25)
    assert desk.post(OWNER, "/v1/steps", {"step": 0, "evaluation": measured}).json() == {"step": 0}
    assert desk.post(OWNER, "/v1/steps", report).json() == {"step": 1}
    assert desk.post(OWNER, "/v1/steps", report).json() == {"step": 1}
    assert is_error(desk.post(OWNER, "/v1/steps", {**report, "consumed": [3, 3]}), 422, "consumed")
    rewards = desk.http.get("/v1/dashboard").json()["rewards"]
    sets = measured["evaluation"]["results"]
    assert rewards == [
        {"step": 0, "reward": None, "heldout": 0.25, "sets": sets},
        {"step": 1, "reward": 0.5, "heldout": None, "sets": []},
    ]


def test_an_evaluation_is_the_owners_word_on_that_step_of_that_pool(desk: Desk) -> None:
    def sent(step: int, evaluation: dict[str, Any]) -> Any:
        return desk.post(OWNER, "/v1/steps", {"step": step, "evaluation": evaluation})

    assert is_error(sent(0, desk.evaluation(0, 0.25, NODE)), 400, f"signed by {NODE.address}")
    assert is_error(sent(1, desk.evaluation(0, 0.25)), 400, "of another step")
    assert is_error(sent(0, desk.evaluation(0, 0.25, config_hash="cd" * 32)), 400, "another step or pool configuration")
    changed = desk.evaluation(0, 0.25)
    changed["evaluation"]["results"][0]["average"] = 0.75
    assert is_error(sent(0, changed), 400, "the evaluation is signed by")
    assert is_error(sent(0, desk.evaluation(0, 0.25) | {"signature": "0x" + "00" * 65}), 400, "signature")
    assert desk.http.get("/v1/dashboard").json()["rewards"] == []
    kept = desk.evaluation(0, 0.25)
    assert sent(0, kept).status_code == 200
    shown = desk.http.get("/v1/record").json()["reports"][0]["evaluation"]
    assert shown == kept, "anybody can check the signature of what is shown"


def test_what_was_trained_on_is_known_by_its_file(desk: Desk) -> None:
    chain = desk.chain
    first = chain.submit(NODE, 0)
    chain.settle(NODE, first, Code.ACCEPT)
    desk.follow()
    assert desk.post(OWNER, "/v1/steps", {"step": 1, "consumed": [first]}).status_code == 200

    def trained() -> dict[int, tuple[int | None, bool]]:
        files = desk.http.get("/v1/record").json()["submissions"]
        return {one["sequence"]: (one["trained"], one["trained_twice"]) for one in files}

    assert trained() == {0: (1, False)}
    # The chain loses its end: another file takes the sequence, the first one comes back behind it.
    desk.follow(lambda: chain.rewind(2))
    chain.sequence = 0
    other, again = chain.submit(NODE, 0, sha=b"\7" * 32), chain.submit(NODE, 1, sha=bytes(32))
    chain.settle(NODE, other, Code.ACCEPT)
    chain.settle(NODE, again, Code.ACCEPT)
    desk.follow()
    assert trained() == {0: (None, False), 1: (1, False)}
    assert desk.service.leases.in_flight().accepted == 1
    for _ in range(2):
        assert desk.post(OWNER, "/v1/steps", {"step": 2, "consumed": [other]}).status_code == 200
        assert desk.post(OWNER, "/v1/steps", {"step": 1, "consumed": [first]}).status_code == 200
    assert trained() == {0: (2, False), 1: (1, False)}
    assert desk.post(OWNER, "/v1/steps", {"step": 3, "consumed": [again]}).status_code == 200
    assert trained()[1] == (3, True)


def test_leases_survive_a_restart(desk: Desk) -> None:
    lease = desk.post(NODE, "/v1/leases", {"counter": 0}).json()
    desk.restart()
    assert desk.post(NODE, "/v1/leases", {"counter": 0}).json()["lease"] == lease["lease"]
    assert desk.service.leases.in_flight().leased == 1


def test_how_files_fared_is_measured_and_survives_a_restart(desk: Desk) -> None:
    assert desk.post(NODE, "/v1/leases", {"counter": 0}).status_code == 200
    desk.now += 2
    first = desk.chain.submit(NODE, 0)
    desk.follow(lambda: desk.chain.settle(NODE, first, Code.ACCEPT))
    desk.restart()
    assert desk.post(NODE, "/v1/leases", {"counter": 1}).status_code == 200
    pace = desk.service.leases.facts(desk.view.state).pace
    state = desk.service.view.state
    made = state.submissions[1, first].time - (desk.now - 2)
    assert pace.making == {NODE.address: made}
    assert pace.typical == made
    assert pace.useful == {NODE.address: 1.0}
    desk.follow(lambda: desk.chain.settle(NODE, desk.chain.submit(NODE, 1), Code.MALFORMED))
    assert desk.service.leases.in_flight().leased == 0
    assert desk.service.leases.facts(desk.view.state).pace.useful == {NODE.address: 5 / 6}


def test_a_node_that_may_not_work_yet_keeps_nobody_from_it(desk: Desk) -> None:
    """It asks again and again, has nothing in flight, and still does not stand first in the queue."""
    desk.follow(lambda: desk.chain.join(STRANGER, step=1))
    for counter in (0, 1):
        for key in (NODE, CHEAT):
            assert "joined late" in desk.post(STRANGER, "/v1/leases", {}).json()["reason"]
            assert "lease" in desk.post(key, "/v1/leases", {"counter": counter}).json()
