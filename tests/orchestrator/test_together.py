"""What waits at once is answered together, in order, and each fails alone."""

import asyncio
import threading
from collections.abc import Sequence

from sqlalchemy.exc import OperationalError

from orchestrator.together import MOST, Together


class Doubler:
    """Doubles numbers; notes its groups, and waits in its first until it is told to go on."""

    def __init__(self, broken: Exception | None = None, bad: Sequence[int] = ()) -> None:
        self.groups: list[list[int]] = []
        self.go, self.begun = threading.Event(), threading.Event()
        self._broken, self._bad = broken, bad

    def __call__(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.groups.append(list(numbers))
        self.begun.set()
        assert self.go.wait(20)
        if self._broken is not None and any(one in self._bad for one in numbers):
            raise self._broken
        return [2 * one for one in numbers]


async def crowd(doubler: Doubler, count: int) -> list[int | BaseException]:
    """The first number by itself; the others while it is answered."""
    queue = Together("doubles", doubler)
    tasks = [asyncio.create_task(queue.ask(0))]
    assert await asyncio.to_thread(doubler.begun.wait, 20)
    tasks += [asyncio.create_task(queue.ask(one)) for one in range(1, count)]
    await asyncio.sleep(0)
    doubler.go.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_what_came_meanwhile_is_answered_at_once_and_in_order() -> None:
    doubler = Doubler()
    assert asyncio.run(crowd(doubler, 50)) == [2 * one for one in range(50)]
    assert doubler.groups == [[0], list(range(1, 50))]


def test_a_group_is_bounded() -> None:
    doubler = Doubler()
    assert asyncio.run(crowd(doubler, 2 * MOST + 10)) == [2 * one for one in range(2 * MOST + 10)]
    assert [len(group) for group in doubler.groups] == [1, MOST, MOST, 9]


def test_one_that_breaks_its_group_fails_alone() -> None:
    doubler = Doubler(ValueError("of these"), bad=[3, 5])
    answers = asyncio.run(crowd(doubler, 8))
    words = [one if isinstance(one, int) else str(one) for one in answers]
    assert words == [0, 2, 4, "of these", 8, "of these", 12, 14]
    assert doubler.groups == [[0], list(range(1, 8)), *([one] for one in range(1, 8))]


def test_a_database_that_does_not_answer_is_not_asked_for_each() -> None:
    doubler = Doubler(OperationalError("BEGIN", {}, Exception("locked")), bad=range(1, 100))
    answers = asyncio.run(crowd(doubler, 8))
    assert answers[0] == 0
    assert all(isinstance(one, OperationalError) for one in answers[1:])
    assert len(doubler.groups) == 2


def test_an_answer_may_be_an_error_for_one() -> None:
    refused = KeyError("two")

    def answer(numbers: Sequence[int]) -> list[int | Exception]:
        return [refused if one == 2 else one for one in numbers]

    async def ask() -> list[object]:
        queue = Together("some", answer)
        return list(await asyncio.gather(*[queue.ask(one) for one in range(4)], return_exceptions=True))

    assert asyncio.run(ask()) == [0, 1, refused, 3]


def test_fewer_answers_than_were_asked_for_are_given_to_nobody() -> None:
    def answer(numbers: Sequence[int]) -> list[int]:
        return [one for one in numbers if one != 2]

    async def ask() -> list[object]:
        queue = Together("some", answer)
        return list(await asyncio.gather(*[queue.ask(one) for one in range(4)], return_exceptions=True))

    answers = asyncio.run(ask())
    assert [answers[0], answers[1], answers[3]] == [0, 1, 3]
    assert isinstance(answers[2], AssertionError)


def test_who_gave_up_waiting_is_left_out() -> None:
    doubler = Doubler()

    async def some_leave() -> list[int]:
        queue = Together("doubles", doubler)
        tasks = [asyncio.create_task(queue.ask(0))]
        assert await asyncio.to_thread(doubler.begun.wait, 20)
        tasks += [asyncio.create_task(queue.ask(one)) for one in range(1, 6)]
        await asyncio.sleep(0)
        for left in (0, 2, 3):
            tasks[left].cancel()
        await asyncio.sleep(0)
        doubler.go.set()
        return [await tasks[stayed] for stayed in (1, 4, 5)]

    assert asyncio.run(some_leave()) == [2, 8, 10]
    assert doubler.groups == [[0], [1, 4, 5]]


def test_it_serves_one_event_loop_after_another() -> None:
    doubler = Doubler()
    doubler.go.set()
    queue = Together("doubles", doubler, 0.001, 0.002)

    async def ask() -> list[int]:
        return list(await asyncio.gather(*[queue.ask(one) for one in range(3)]))

    for _ in range(3):
        assert asyncio.run(asyncio.wait_for(ask(), 20)) == [0, 2, 4]


def test_the_loop_is_not_held_up() -> None:
    doubler = Doubler()

    async def ask() -> int:
        queue = Together("doubles", doubler)
        task = asyncio.create_task(queue.ask(4))
        assert await asyncio.to_thread(doubler.begun.wait, 20)
        await asyncio.sleep(0)
        assert not task.done()
        doubler.go.set()
        return await task

    assert asyncio.run(asyncio.wait_for(ask(), 30)) == 8
