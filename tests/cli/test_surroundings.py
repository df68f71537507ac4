"""`status` says what only a look at machine, service and storage tells: each fault with its cure."""

import time
from pathlib import Path

import pytest
from filelock import FileLock

from cli import diagnose
from cli.answers import StatusPart, alarm_lines, node_answers, pool_answers, seats_answers
from cli.diagnose import Around, Surroundings, look_around
from runtime.diagnose import Facts, WatchLimits
from runtime.diagnose import surroundings as alarms_around
from runtime.presence import STALLED
from tests.cli.test_answers import node_look, pool_look, seats_look
from tests.runtime.test_watch import ADDRESS, FailingService, service

__all__ = ["service"]
UP, GIB = StatusPart("service"), 1 << 30


def said(service: FailingService, part: StatusPart = UP, **at: object) -> str:
    return "\n".join(alarm_lines(look_around(Around(service.url, ADDRESS, **at), part).alarms))  # type: ignore[arg-type]


def test_a_healthy_surrounding_says_nothing(service: FailingService, tmp_path: Path) -> None:
    assert said(service) == ""


def test_what_the_service_lacks_is_named_with_its_cure(service: FailingService) -> None:
    assert said(service, config_hash="00" * 32).endswith("start the pool's storage; uploads wait meanwhile")
    service.documents["/ready"] = {"problems": ["this service has another key"]}
    assert said(service).startswith("this service has another key: ")
    service.documents[f"/v1/nodes/{ADDRESS}"]["phase"] = "trouble"
    assert "the process does not get what it needs: its log" in said(service)
    service.documents[f"/v1/nodes/{ADDRESS}"]["trouble"] = "shard 00… came with\x1bother bytes; fetch it again"
    assert "does not get what it needs: shard 00… came with?other bytes; fetch it again" in said(service)
    service.statuses |= {"/ready": 503, "/v1/status": 500, f"/v1/nodes/{ADDRESS}": 500}
    assert said(service) == "the service's database does not answer: start the database; nothing is lost"


def test_a_service_that_was_silent_or_is_none_is_not_asked_again(service: FailingService) -> None:
    service.statuses["/ready"] = 503
    assert said(service, StatusPart("service", "no answer", silent=True)) == ""
    service.documents["/health"] = []
    assert said(service) == ""
    assert look_around(Around("no url"), UP) == look_around(Around(None), UP) == Surroundings()


def test_a_full_disk_and_a_device_that_hangs_are_named(
    service: FailingService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "operator"
    assert said(service, home=home) == "", "a home that is not there yet"
    home.mkdir()
    monkeypatch.setattr(diagnose, "free_bytes", lambda path: GIB)
    lock = FileLock(home / "events.sqlite.lock")
    lock.acquire()
    (home / STALLED).write_text(f"{time.time() - 9:.0f} a step of the model does not end")
    lines = said(service, home=home).splitlines()
    assert lines[0].startswith(f"the disk of {home} has 1.0 GiB left: delete what can be recomputed")
    assert "a step of the model does not end, for " in lines[1]
    assert "look at the GPU" in lines[1]
    lock.release()


def test_every_status_shows_what_is_around() -> None:
    around = tuple(alarms_around(WatchLimits(), Facts(0.0, {"/h": GIB})))
    node, seats, pool = node_look(around=around), seats_look(around=around), pool_look(around=around)
    for todo in (node_answers(node).todo, seats_answers(seats).todo, pool_answers(pool).todo):
        assert "the disk of /h has 1.0 GiB left" in "\n".join(todo)


def test_an_owner_is_told_why_a_process_ended_and_whom_a_slash_touches() -> None:
    down = (StatusPart("chain"), StatusPart("service", "http://pool does not answer"))
    gone = {"orchestrator": "it does not run; it said last: port 8700 is in use", "trainer": "it does not run"}
    todo = "\n".join(pool_answers(pool_look(parts=down, gone=gone)).todo)
    assert "muster pool serve (it does not run; it said last: port 8700 is in use)" in todo
    assert "muster pool train (it does not run)" in todo
    look = pool_look(gone=gone, service={**pool_look().service, "phase": "finished"})  # type: ignore[dict-item]
    assert "muster pool train" not in "\n".join(pool_answers(look).todo)
    assert look.chain is not None
    look.chain["slashed"] = [{"who": ADDRESS, "sequence": 4, "amount": 20 * 10**9}]
    refused = "\n".join(pool_answers(look).refused)
    assert f"{ADDRESS} was slashed 20 tokens for file 4, which touches no other node: muster why 4 --pool 1" in refused
