"""Background threads outlive whatever happens in them, and say so while they fail."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import TimeoutError as PoolTimeout

from orchestrator.auth import NonceStore
from orchestrator.background import BackgroundTask, Leader
from orchestrator.db import Database, ReceiptRow, UploadRow, default_url
from orchestrator.main import background_tasks
from orchestrator.uploads import TICKET_SECONDS
from protocol.errors import UnreachableError
from protocol.waits import wait_for
from runtime import entry
from tests.orchestrator.chain import NODE, TERMS
from tests.orchestrator.conftest import Desk

FULL = PoolTimeout("QueuePool limit of size 16 reached")
FAILURES = [FULL, UnreachableError("S3 does not answer"), KeyError("x")]


def exhausted(*_: object) -> None:
    raise FULL


class Work:
    """Fails while `error` is set; counts its successes."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.done = 0

    def __call__(self) -> None:
        if self.error is not None:
            raise self.error
        self.done += 1


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_thread_outlives_every_failure_and_names_it(error: Exception) -> None:
    work = Work()
    task = BackgroundTask("work", work, 0.01, first_backoff=0.01)
    task.start()
    wait_for("the first success", lambda: work.done > 0, 20, poll=0.01)
    work.error = error
    wait_for("the failure to be named", lambda: task.problem or None, 20, poll=0.01)
    assert task.problem.startswith("work: ")
    work.error, done = None, work.done
    wait_for("the work to continue", lambda: work.done > done, 20, poll=0.01)
    wait_for("the problem to be over", lambda: not task.problem, 20, poll=0.01)
    task.stop()


def test_what_asks_to_exit_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    monkeypatch.setattr(entry._Death, "follow", staticmethod(messages.append))
    task = BackgroundTask("work", lambda: sys.exit("killed by the test"), 0.01, first_backoff=0.01)
    task.start()
    wait_for("its end", lambda: messages or None, 20, poll=0.01)
    assert messages == ["the thread `work` died: SystemExit: killed by the test"]


@pytest.fixture
def tasks(desk: Desk) -> Iterator[dict[str, BackgroundTask]]:
    leader = Leader(desk.db)
    idle: Any = SimpleNamespace(work=Work(), turn=Work(), take_back=Work(), reconciliation=None)
    config: Any = SimpleNamespace(poll_seconds=0.01, claim_seconds=0.01)
    desk.service.chain_watcher = desk.service.relay = desk.service.sponsor = idle
    made = background_tasks(desk.service, NonceStore(desk.db), leader, idle, config)
    desk.service.tasks = made
    for task in made:
        task._first_backoff = 0.01
    yield {task.name: task for task in made}
    for task in made:
        task.stop()
    leader.close()


TASKS = ("chain", "pruning", "relay", "claims", "membership", "loans")


@pytest.mark.parametrize("name", TASKS)
def test_each_thread_of_the_service_is_supervised(
    name: str, desk: Desk, tasks: dict[str, BackgroundTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure of any of them shows in /ready and in the metrics, and does not end the others."""
    assert set(tasks) == set(TASKS)

    monkeypatch.setattr(tasks[name], "_work", exhausted)
    for task in tasks.values():
        task.start()
    problems = wait_for("the problem", lambda: desk.http.get("/ready").json()["problems"] or None, 20, poll=0.01)
    assert problems == [f"{name}: TimeoutError: QueuePool limit of size 16 reached"]
    exposed = desk.http.get("/metrics").text
    assert "muster_tasks_failing 1.0" in exposed
    assert "muster_head_block" in exposed
    assert {one.problem for other, one in tasks.items() if other != name} == {""}


def test_tickets_and_receipts_too_old_to_matter_are_forgotten(desk: Desk, tasks: dict[str, BackgroundTask]) -> None:
    for age in (0, 1):
        with desk.db.session() as session:
            ticket, receipt = desk.now - TICKET_SECONDS + 1 - age, int(desk.now) - TERMS.receiptWindow - age
            session.add(UploadRow(key=f"rollouts/{age}", node=NODE.address, issued=ticket))
            session.add(ReceiptRow(sha256=f"{age:064}", node=NODE.address, time=receipt))

    def left() -> list[str]:
        with desk.db.reading() as session:
            return [*session.scalars(select(UploadRow.key)), *session.scalars(select(ReceiptRow.sha256))]

    for task in tasks.values():
        task.start()
    assert wait_for("the old ones to go", lambda: left() == ["rollouts/0", f"{0:064}"], 20, poll=0.01)


def test_without_connections_a_replica_does_not_lead_and_does_not_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = Database(default_url(tmp_path))
    leader = Leader(db)
    monkeypatch.setattr(leader, "_file", None)
    monkeypatch.setattr(db.engine, "connect", exhausted)
    assert not leader.leads()
    db.close()


def test_a_database_that_fails_is_answered_with_503(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk.service.leases, "request", exhausted)

    answer = desk.post(NODE, "/v1/leases", {})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
