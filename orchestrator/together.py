"""What waits for the same thing at once is answered together, by one call in a thread of its own."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection

log = logging.getLogger("muster.together")
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
MOST = 256
"""So many are answered at a time: nobody waits for a call that takes long because thousands came at once."""
_SHARE = 4
"""Gathering is so many times as long as the last call took, within its limits: the busier, the fewer calls."""
_ABSENT = (OperationalError, InterfaceError, NoConnection)
"""The database does not answer: asking for each alone would take as many times its patience."""


class Together(Generic[Asked, Answer]):
    """`answer` takes what was asked, at most MOST at a time, in the order in which it came, and returns as many
    answers; one that is an exception is raised for whom it is meant. If it raises, each is asked alone, so that nobody
    fails because of others, unless the database does not answer.

    A call takes whatever came while the last one ran, and what comes in `least` to `longest` seconds. For the event
    loop's thread.
    """

    def __init__(
        self,
        name: str,
        answer: Callable[[Sequence[Asked]], Sequence[Answer | Exception]],
        least: float = 0.0,
        longest: float = 0.0,
    ) -> None:
        self._answer, self._least, self._longest = answer, least, longest
        self._waiting: deque[tuple[Asked, asyncio.Future[Answer]]] = deque()
        self._server: asyncio.Task[None] | None = None
        # Its own: those that wait for locks elsewhere may have all others.
        self._thread = ThreadPoolExecutor(1, name)

    async def ask(self, asked: Asked) -> Answer:
        """The answer, without holding up whatever else the loop does."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((asked, done))
        if self._server is None or self._server.done() or self._server.get_loop() is not loop:
            self._server = loop.create_task(self._serve())
        return await done

    async def _serve(self) -> None:
        loop, took = asyncio.get_running_loop(), 0.0
        while self._waiting:
            if self._longest:
                await asyncio.sleep(min(self._longest, max(self._least, _SHARE * took)))
            batch = self._batch()
            if not batch:
                continue
            began = time.monotonic()
            answers = await loop.run_in_executor(self._thread, self._answered, [asked for asked, _ in batch])
            took = time.monotonic() - began
            for (_, done), answer in zip(batch, answers, strict=True):
                if done.done():
                    continue  # whoever asked was cancelled meanwhile
                if isinstance(answer, Exception):
                    done.set_exception(answer)
                else:
                    done.set_result(answer)

    def _batch(self) -> list[tuple[Asked, "asyncio.Future[Answer]"]]:
        """Those that came first and still wait."""
        first = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
        return [(asked, done) for asked, done in first if not done.done()]

    def _answered(self, batch: Sequence[Asked]) -> Sequence[Answer | Exception]:
        try:
            answers = self._answer(batch)
            if len(answers) != len(batch):
                raise AssertionError(f"{len(answers)} answers to {len(batch)}")
            return answers
        except Exception as error:
            if len(batch) == 1 or isinstance(error, _ABSENT):
                return [error] * len(batch)
            log.warning("%d that were asked together are asked one by one: %s", len(batch), error)
        return [answer for one in batch for answer in self._answered([one])]
