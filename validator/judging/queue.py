"""The judge queue: one thread that fetches and judges for all pools, so that chain deadlines never wait for a model.

A task that misses a file, or cannot be judged yet, is tried again between the others, which it never holds up. A task
of more files than a lane has (a node challenge) lets smaller ones go first, after each of its files.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field

from engines.torch_process import device_lost
from protocol.errors import MusterError, printable
from protocol.verdict import LANE, BallotDocument, Code, Verdict
from runtime.entry import essential
from validator.judging.checks import SubmissionFacts
from validator.judging.pipeline import FileJudge, MissingFileError
from validator.judging.verdicts import VerdictStore

log = logging.getLogger("muster.validator")
_RETRY_SECONDS = 1.0

TaskKey = tuple[str, bytes, bytes]  # the round or trial, the seed of its draw, and the digest of its files


@dataclass(frozen=True)
class JudgeTask:
    """Files for `judge` to judge together: a lane's, a trial's one, or those of a node challenge.

    mirrors[i]: further URLs of file i.
    patience: seconds from when the task is asked for, after which a file that no source has counts as unavailable.
    to_show: a seat that accepts a file will have to show its bytes, as committees do.
    as_worker: each file is measured by its worker's own engine, if this machine has it.
    whole: no file is measured before all are there, since one that is withheld decides for all.
    """

    key: TaskKey
    facts: tuple[SubmissionFacts, ...]
    mirrors: tuple[tuple[str, ...], ...]
    judge: FileJudge
    patience: float = 0.0
    to_show: bool = False
    as_worker: bool = False
    whole: bool = False

    @property
    def where(self) -> str:
        return self.key[0]


@dataclass(frozen=True)
class LaneVerdict:
    """A judged task: codes in the files' order, the hash of the ballot document, and the verdicts in it."""

    codes: tuple[Code, ...]
    verdict_hash: bytes
    verdicts: tuple[Verdict, ...] = ()


@dataclass
class _Request:
    """A task in the queue. `until`: when missing files become unavailable; `not_before`: when it is tried again; both
    in monotonic seconds. By file index: `there` (for a whole task), `found` and `failures` (how often). `problem`: what
    last kept it from its end."""

    task: JudgeTask
    until: float
    not_before: float = 0.0
    there: set[int] = field(default_factory=set)
    found: dict[int, Verdict] = field(default_factory=dict)
    failures: Counter[int] = field(default_factory=Counter)
    problem: str = ""
    future: Future[LaneVerdict] = field(default_factory=Future)
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def large(self) -> bool:
        """Whether it has more files than a lane: a node challenge's, whose window is longer."""
        return len(self.task.facts) > LANE

    def cancel(self) -> None:
        self.cancelled.set()
        self.future.cancel()

    def check(self) -> None:
        """Raises CancelledError once nobody wants the task any more."""
        if self.cancelled.is_set():
            raise CancelledError


def retry_pause(least: float, tried: float, patience: float) -> float:
    """Return after how many seconds a task is tried again whose last try took `tried` seconds, `least` at least: slow
    sources leave three quarters of the time to other tasks, but no pause takes more than a quarter of the task's own
    patience, which is half of its window."""
    return max(least, min(3 * tried, patience / 4))


class JudgeQueue:
    """Judges tasks one after another and remembers each until `retain` drops it. Ballot documents are stored in
    `verdicts`. `done` is called after every task. `problem`: what failed unexpectedly since a task was last judged."""

    def __init__(self, verdicts: VerdictStore, done: Callable[[], None] = lambda: None) -> None:
        self._verdicts, self._done = verdicts, done
        self._requests: dict[TaskKey, _Request] = {}
        self._running: _Request | None = None
        self._stopped = False
        self.problem = ""
        self._changed = threading.Condition()
        self._thread = essential("judge", self._run)

    @property
    def current(self) -> str:
        """What is being judged; empty if nothing is."""
        running = self._running
        return running.task.where if running else ""

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
        """Return the verdict on a task as a future: what fails is tried again until `retain` drops the task."""
        with self._changed:
            request = self._requests.get(task.key)
            if request is None:
                request = self._requests[task.key] = _Request(task, time.monotonic() + task.patience)
                self._changed.notify()
            elif request.task.mirrors != task.mirrors:
                # Somebody announced where a file is: try there at once.
                request.task, request.not_before = task, 0.0
                self._changed.notify()
            return request.future

    def so_far(self, key: TaskKey) -> tuple[dict[int, Verdict], str]:
        """Return the verdicts on an unfinished task, by file index, and what last kept it from its end, if anything."""
        with self._changed:
            request = self._requests.get(key)
            return (dict(request.found), request.problem) if request else ({}, "")

    def retain(self, keys: Collection[TaskKey]) -> None:
        """Forget all other tasks: settled without us, or drawn again. The task at work ends after its current file."""
        with self._changed:
            for key in [key for key in self._requests if key not in keys]:
                self._requests.pop(key).cancel()

    def _next(self) -> _Request | None:
        """Return the task that has waited longest for its turn; None at the end."""
        with self._changed:
            self._running = None
            while not self._stopped:
                now, waiting = time.monotonic(), [r for r in self._requests.values() if not r.future.done()]
                ready = [request for request in waiting if request.not_before <= now]
                if ready:
                    self._running = min(ready, key=lambda request: request.not_before)
                    return self._running
                self._changed.wait(min((r.not_before - now for r in waiting), default=None))
            return None

    def _run(self) -> None:
        while (request := self._next()) is not None:
            started, pause = time.monotonic(), _RETRY_SECONDS
            try:
                if self._gather(request) and self._judge_files(request):
                    self._finish(request)
                    self.problem = ""
                else:
                    request.not_before = time.monotonic()
                continue
            except (CancelledError, MusterError) as error:
                if device_lost(error):
                    raise  # which ends the process: the next one opens the device again
                request.problem = str(error)
                level = logging.DEBUG if isinstance(error, CancelledError | MissingFileError) else logging.WARNING
                log.log(level, "%s cannot be judged yet: %s", request.task.where, error)
            except Exception as error:  # a fault of ours must not end the thread, nor cost a stranger's stake
                if device_lost(error):
                    raise
                request.problem = self.problem = f"judging failed: {printable(repr(error), 200)}"
                log.exception("%s: judging failed", request.task.where)
                pause = 10 * _RETRY_SECONDS
            now = time.monotonic()
            request.not_before = now + retry_pause(pause, now - started, request.task.patience)

    def _finish(self, request: _Request) -> None:
        verdict = self._lane_verdict(request.task, request.found)
        with self._changed:
            if not request.future.cancelled():
                request.future.set_result(verdict)
        self._done()

    def _gather(self, request: _Request) -> bool:
        """Look for up to a lane's worth of the further files of a whole task, until a smaller task waits. Returns
        whether the search is over. Raises MissingFileError for a file that may appear later."""
        task, final = request.task, time.monotonic() >= request.until
        left = [index for index in range(len(task.facts)) if index not in request.there] if task.whole else []
        for index in left[:LANE]:
            request.check()
            sequence = task.facts[index].sequence
            if not task.judge.is_there(task.facts[index], task.mirrors[index]):
                if not final:
                    raise MissingFileError(f"no source has file {sequence}", "it may appear later")
                why = f"file {sequence} cannot be had, and without it the others decide nothing"
                request.found = {position: task.judge.unjudged(facts, why) for position, facts in enumerate(task.facts)}
                return True
            request.there.add(index)
            if request.large and self._smaller_waits():
                break
        return not task.whole or len(request.there) == len(task.facts)

    def _judge_files(self, request: _Request) -> bool:
        """Judge up to a lane's worth of files, until a smaller task waits: by policy step, so that each step's weights
        are loaded once, and those first that failed least often, so that a failing file never keeps the others from
        their turn. Returns whether all are judged. Raises MissingFileError at the end if one was missing."""
        task, final, failures = request.task, time.monotonic() >= request.until, request.failures
        missing: MissingFileError | None = None

        def order(index: int) -> tuple[int, int, int]:
            return failures[index], task.facts[index].work.id.step, task.facts[index].sequence

        left = sorted((index for index in range(len(task.facts)) if index not in request.found), key=order)
        for index in left[:LANE]:
            request.check()
            failures[index] += 1
            try:
                facts, mirrors = task.facts[index], task.mirrors[index]
                request.found[index] = task.judge.verdict(facts, mirrors, final=final, as_worker=task.as_worker)
            except MissingFileError as error:
                missing = error
            if request.large and self._smaller_waits():
                break
        if missing is not None:
            raise missing
        return len(request.found) == len(task.facts)

    def _smaller_waits(self) -> bool:
        """Whether a task of no more files than a lane has can be tried."""
        now = time.monotonic()
        with self._changed:
            return any(
                not (request.large or request.future.done()) and request.not_before <= now
                for request in self._requests.values()
            )

    def _lane_verdict(self, task: JudgeTask, by_position: dict[int, Verdict]) -> LaneVerdict:
        verdicts = tuple(by_position[at] for at in range(len(task.facts)))
        if task.to_show:
            verdicts = tuple(map(task.judge.to_vote, verdicts))
        for verdict in verdicts:
            why = "; ".join(f"{finding.check}: {finding.note}" for finding in verdict.findings if finding.note)
            log.info("%s submission %d: %s %s", task.where, verdict.sequence, verdict.code.label, why)
        document = BallotDocument(task.where, task.key[1].hex(), verdicts)
        codes = tuple(verdict.code for verdict in verdicts)
        return LaneVerdict(codes, self._verdicts.keep_document(document), verdicts)
