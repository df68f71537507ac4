"""Transactions in the background: one at a time per key, never again before their block is seen."""

import time

from protocol.errors import MusterError
from protocol.waits import wait_for
from validator.tasks import TransactionTasks


def test_tasks_do_not_repeat_until_their_block_is_seen() -> None:
    tasks, calls = TransactionTasks(1), []

    def task() -> int:
        calls.append(1)
        return 0

    assert tasks.run("key", 10, "a task", task)
    wait_for("the first call", lambda: bool(calls), 60, poll=0.01)
    time.sleep(0.05)
    assert not tasks.run("key", 10, "a task", task)
    wait_for("a second one", lambda: tasks.run("key", 11, "a task", task), 60, poll=0.01)
    wait_for("the second call", lambda: len(calls) == 2, 60, poll=0.01)
    tasks.stop()
    assert len(calls) == 2


def test_failed_tasks_pause_and_reorganisations_forget() -> None:
    tasks = TransactionTasks(1)

    def fails() -> int:
        raise MusterError("no")

    assert tasks.run("key", 10, "a task", fails, quiet=True)
    time.sleep(0.2)
    assert not tasks.run("key", 11, "a task", fails)
    tasks.forget()
    tasks.stop()


def test_what_is_done_is_not_remembered_for_ever() -> None:
    tasks = TransactionTasks(4)
    for block in range(50):
        for number in range(10):
            tasks.run((block, number), block, "a task", lambda: 0)
        wait_for("the tasks", lambda: not tasks._running, 60, poll=0.001)
    tasks.run("last", 1000, "a task", lambda: 0)
    tasks.stop()
    assert len(tasks._mined) <= 11
