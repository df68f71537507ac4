"""The judge queue: one thread that fetches and judges, so that chain deadlines never wait for a model.

What is asked for comes first. While nothing is, it judges ahead: files whose committee is not drawn yet, where the
verdict cannot depend on the draw. Such a verdict goes to the verdict store only; nothing is committed before the draw.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any

from protocol.audit import AUDIT_EVERYTHING
from protocol.errors import MusterError
from protocol.verdict import BallotDocument, Code, Verdict
from validator.context import SubmissionFacts
from validator.judging import FileJudge
from validator.sources import Patience
from validator.verdict_store import VerdictStore

log = logging.getLogger("muster.validator")
_RETRY_SECONDS = 1.0

TaskKey = tuple[str, bytes, bytes]
"""The round or trial, the seed of its draw, and the digest of its files."""


@dataclass(frozen=True)
class JudgeTask:
    """Files to judge together: a lane's, or a trial's one. `mirrors[i]` are further URLs of file i."""

    key: TaskKey
    facts: tuple[SubmissionFacts, ...]
    mirrors: tuple[tuple[str, ...], ...]

    @property
    def where(self) -> str:
        return self.key[0]


@dataclass(frozen=True)
class LaneVerdict:
    """A judged task: codes in the files' order, and the hash of the document that says why."""

    codes: tuple[Code, ...]
    verdict_hash: bytes


@dataclass(frozen=True)
class _Request:
    task: JudgeTask
    ahead: bool
    future: Future[Any] = field(default_factory=Future)
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def waiting(self) -> bool:
        return not self.future.running() and not self.future.done()

    def cancel(self) -> None:
        self.cancelled.set()
        self.future.cancel()


class JudgeQueue:
    """Judges tasks one after another and remembers each until `retain` drops it.

    `patience` seconds is how long a file that no source has is asked for before it counts as unavailable; `done` is
    called after everything that was asked for.
    """

    def __init__(
        self, judge: FileJudge, verdicts: VerdictStore, patience: float, done: Callable[[], None] = lambda: None
    ) -> None:
        self._judge, self._verdicts, self._patience, self._done = judge, verdicts, patience, done
        self._requests: dict[TaskKey, _Request] = {}
        self._running: _Request | None = None
        self._stopped = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)

    @property
    def current(self) -> str:
        """What is being judged that was asked for; empty while nothing is."""
        running = self._running
        return running.task.where if running and not running.ahead else ""

    @property
    def judged(self) -> int:
        return self._judge.judged

    def __len__(self) -> int:
        return len(self._requests)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            for request in self._requests.values():
                request.cancel()
            self._changed.notify()
        self._thread.join(timeout=30)

    def ask(self, task: JudgeTask) -> "Future[LaneVerdict]":
        """The verdict on a task, now or later. A task that failed is judged again when it is asked for again."""
        with self._changed:
            request = self._requests.get(task.key)
            if request is None or (request.future.done() and request.future.exception() is not None):
                request = self._add(task, ahead=False)
                if self._running is not None and self._running.ahead:
                    self._running.cancelled.set()
            return request.future

    def prepare(self, task: JudgeTask) -> None:
        """Do beforehand, once, what can be done of a task whose draw is still to come; its key has no seed yet."""
        with self._changed:
            if task.key not in self._requests:
                self._add(task, ahead=True)

    def retain(self, keys: Collection[TaskKey]) -> None:
        """Forget all other tasks: settled without us, or drawn anew. What is being judged ends after the file at
        hand."""
        with self._changed:
            for key in [key for key in self._requests if key not in keys]:
                self._requests.pop(key).cancel()

    def _add(self, task: JudgeTask, ahead: bool) -> _Request:
        self._requests[task.key] = request = _Request(task, ahead)
        self._changed.notify()
        return request

    def _next(self) -> _Request | None:
        """The oldest of what is asked for, else of what can be prepared; None at the end."""
        with self._changed:
            self._running = None
            while not self._stopped:
                waiting = [request for request in self._requests.values() if request.waiting]
                if waiting:
                    self._running = min(waiting, key=lambda request: request.ahead)
                    self._running.future.set_running_or_notify_cancel()
                    return self._running
                self._changed.wait()
            return None

    def _run(self) -> None:
        while (request := self._next()) is not None:
            try:
                verdicts = self._judge_files(request)
                request.future.set_result(None if request.ahead else self._lane_verdict(request.task, verdicts))
            except CancelledError as error:
                request.future.set_exception(error)
            except MusterError as error:
                log.log(
                    logging.DEBUG if request.ahead else logging.WARNING,
                    "%s cannot be judged yet: %s",
                    request.task.where,
                    error,
                )
                self._fail(request, error, _RETRY_SECONDS)
            except Exception as error:  # a fault of ours must not end the thread, nor cost a stranger's stake
                log.exception("%s: judging failed", request.task.where)
                self._fail(request, error, 10 * _RETRY_SECONDS)
            if not request.ahead:
                self._done()

    @staticmethod
    def _fail(request: _Request, error: Exception, pause: float) -> None:
        if not request.ahead:
            request.cancelled.wait(pause)
        request.future.set_exception(error)

    def _judge_files(self, request: _Request) -> dict[int, Verdict]:
        """place → verdict, by steps so that each step's weights are loaded once."""
        task = request.task
        patience = Patience(time.monotonic() + (0.0 if request.ahead else self._patience), request.cancelled)
        out = {}
        for at in sorted(range(len(task.facts)), key=lambda at: (task.facts[at].work.id.step, task.facts[at].sequence)):
            if request.cancelled.is_set():
                raise CancelledError
            facts = task.facts[at]
            if request.ahead and facts.audit_rate < AUDIT_EVERYTHING:
                self._judge.prepare(facts)  # which rows to look at is not known yet, but with which model
            else:
                out[at] = self._judge.verdict(facts, task.mirrors[at], patience)
        return out

    def _lane_verdict(self, task: JudgeTask, found: dict[int, Verdict]) -> LaneVerdict:
        verdicts = tuple(found[at] for at in range(len(task.facts)))
        for verdict in verdicts:
            why = "; ".join(f"{finding.check}: {finding.note}" for finding in verdict.findings if finding.note)
            log.info("%s submission %d: %s %s", task.where, verdict.sequence, verdict.code.label, why)
        document = BallotDocument(task.where, task.key[1].hex(), verdicts)
        return LaneVerdict(tuple(verdict.code for verdict in verdicts), self._verdicts.keep_document(document))
