"""The bench: one thread that fetches and judges, so that chain deadlines never wait for a model.

What is asked for comes first. While nothing is, it judges ahead: files whose committee is not drawn yet, where the
verdict cannot depend on the draw. Such a verdict goes to the docket only; nothing is committed before the draw.
"""

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.base import Engine
from protocol.config import PoolConfig
from protocol.errors import IntegrityError, MusterError
from protocol.rollouts.schema import Limits
from protocol.seeds import AUDIT_EVERYTHING
from protocol.tasks.environment import Environment
from protocol.verdict import Code, Verdict
from storage.download import HttpObjects
from storage.keys import object_key
from storage.missing import MissingObjectError
from validator.context import SubmissionFacts
from validator.pipeline import judge
from validator.verdict_store import VerdictStore, ballot_document

log = logging.getLogger("muster.validator")
_RETRY_SECONDS = 1.0
_STALE_SECONDS = 15.0
MIRRORS_ASKED = 3
_MIRROR_SECONDS = 3.0
"""What mirrors of one file may always take: a node that announces slow ones must not hold up other lanes."""
_STOP, _ASKED, _AHEAD = 0, 1, 2

Judge = Callable[..., Verdict]


@dataclass(frozen=True)
class JudgeTask:
    """Files to judge together: a lane's, or a trial's one. `key` identifies the result; `mirrors[i]` are further URLs
    of file i."""

    key: tuple[str, bytes, bytes]
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


class JudgeQueue:
    """Judges tasks one after another. `weights(facts)` brings a step's model folder; `patience` seconds is how long a
    file that no source has is asked for before it counts as unavailable; `done` is called after every opinion."""

    def __init__(
        self,
        config: PoolConfig,
        engine: Engine,
        objects: HttpObjects,
        weights: Callable[[SubmissionFacts], Path],
        verdicts: VerdictStore,
        patience: float,
        judge_one: Judge = judge,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._engine, self._objects, self._weights = config, engine, objects, weights
        self._verdicts_kept, self._patience, self._judge, self._done = verdicts, patience, judge_one, done
        self._environment: Environment | None = None
        self._loaded = b""
        self._queue: queue.PriorityQueue[tuple[int, int, JudgeTask | None]] = queue.PriorityQueue()
        self._order = itertools.count()
        self._count = threading.Lock()
        self._wanted = 0
        self._known: set[tuple[str, bytes, bytes]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench", daemon=True)
        self._asked: dict[tuple[str, bytes, bytes], float] = {}
        self.lane_verdicts: dict[tuple[str, bytes, bytes], LaneVerdict] = {}
        self.judged = 0
        self.current = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._queue.put((_STOP, next(self._order), None))
        self._thread.join(timeout=30)

    def ask(self, task: JudgeTask) -> LaneVerdict | None:
        """The opinion on a task, or None while it is being formed (it is then queued once)."""
        verdict = self.lane_verdicts.get(task.key)
        if verdict is None:
            self._asked[task.key] = time.monotonic()
            if task.key not in self._known:
                self._known.add(task.key)
                self._put(_ASKED, task)
        return verdict

    def prepare(self, task: JudgeTask) -> None:
        """Do beforehand what can be done of a task whose draw is still to come; `key` is any that was not asked for."""
        if task.key not in self._known:
            self._known.add(task.key)
            self._asked[task.key] = time.monotonic()
            self._put(_AHEAD, task)

    def _put(self, priority: int, task: JudgeTask) -> None:
        with self._count:
            self._wanted += priority == _ASKED
        self._queue.put((priority, next(self._order), task))

    def _run(self) -> None:
        while not self._stop.is_set():
            priority, _, task = self._queue.get()
            if task is None:
                return
            if priority == _AHEAD:
                self._look_ahead(task)
                continue
            with self._count:
                self._wanted -= 1
            if time.monotonic() - self._asked[task.key] > _STALE_SECONDS:
                # Settled without us, or drawn anew with another seed: nobody waits for it any more.
                self._known.discard(task.key)
                continue
            self.current = task.where
            try:
                self.lane_verdicts[task.key] = self._lane_verdict(task)
            except MusterError as error:
                log.warning("%s cannot be judged yet: %s", task.where, error)
                self._stop.wait(_RETRY_SECONDS)
                self._known.discard(task.key)
            except Exception:  # a fault of ours must not end the thread, nor cost a stranger's stake
                log.exception("%s: judging failed", task.where)
                self._stop.wait(10 * _RETRY_SECONDS)
                self._known.discard(task.key)
            self.current = ""
            self._done()

    def _look_ahead(self, task: JudgeTask) -> None:
        """Judge until somebody asks for something; what fails is judged when it is asked for."""
        if time.monotonic() - self._asked[task.key] > _STALE_SECONDS:
            return
        try:
            for _ in self._verdicts(task, ahead=True):
                if self._wanted or self._stop.is_set() or time.monotonic() - self._asked[task.key] > _STALE_SECONDS:
                    return
        except MusterError as error:
            log.debug("%s is not judged ahead: %s", task.where, error)
        except Exception:  # as when it is asked for: no fault of ours ends the thread
            log.exception("%s: judging ahead failed", task.where)

    def _lane_verdict(self, task: JudgeTask) -> LaneVerdict:
        verdicts = dict(self._verdicts(task))
        done = [verdicts[at] for at in range(len(task.facts))]
        document = ballot_document(task.where, task.key[1], done)
        judged = LaneVerdict(tuple(verdict.code for verdict in done), self._verdicts_kept.keep_document(document))
        for verdict in done:
            why = "; ".join(f"{f.check}: {f.note}" for f in verdict.findings if f.note)
            log.info("%s submission %d: %s %s", task.where, verdict.sequence, verdict.code.label, why)
        return judged

    def _verdicts(self, task: JudgeTask, ahead: bool = False) -> Iterator[tuple[int, Verdict]]:
        """(place, verdict) of all files, by steps so that each step's weights are loaded once."""
        until = time.monotonic() + (0.0 if ahead else self._patience)
        for at in sorted(range(len(task.facts)), key=lambda at: (task.facts[at].work.id.step, task.facts[at].sequence)):
            facts = task.facts[at]
            if ahead and facts.audit_rate < AUDIT_EVERYTHING:
                self._weights(facts)  # which rows to look at is not known yet, but with which model
            else:
                yield at, self._one(facts, task.mirrors[at], until)

    def _one(self, facts: SubmissionFacts, mirrors: Sequence[str], until: float) -> Verdict:
        kept = self._verdicts_kept.find(facts)
        if kept is not None:
            return kept
        data = self._fetch(facts, mirrors, until)
        self._load(facts)
        assert self._environment is not None
        verdict = self._judge(facts, data, self._config, self._environment, self._engine)
        self.judged += 1
        if verdict.code is not Code.UNAVAILABLE:
            self._verdicts_kept.keep(facts, verdict)
        return verdict

    def _fetch(self, facts: SubmissionFacts, mirrors: Sequence[str], until: float) -> bytes | None:
        """The file, or None once every source that answers said until then (monotonic) that it has none.

        Raises UnreachableError when no source answers: then this machine may be at fault, and no vote is honest.
        """
        key, limit = object_key("rollouts", facts.commitment.sha256), Limits.of(self._config.work).file_bytes
        while True:
            try:
                return self._objects(key, limit)
            except MusterError as error:
                data = self._from_mirrors(key, limit, mirrors, until)
                if data is not None:
                    return data
                if not isinstance(error, MissingObjectError | IntegrityError):
                    raise
                if time.monotonic() >= until or self._stop.is_set():
                    log.info("submission %d: %s", facts.sequence, error)
                    return None
            self._stop.wait(_RETRY_SECONDS)

    def _from_mirrors(self, key: str, limit: int, mirrors: Sequence[str], until: float) -> bytes | None:
        """The file from where its node announced it; all mirrors together take until then, or a few seconds."""
        end = max(until, time.monotonic() + _MIRROR_SECONDS)
        urls = mirrors[:MIRRORS_ASKED]
        for number, url in enumerate(urls):
            try:
                share = (end - time.monotonic()) / (len(urls) - number)
                return self._objects.elsewhere(url, key, limit, share)
            except MusterError as error:
                log.info("mirror: %s", error)
        return None

    def _load(self, facts: SubmissionFacts) -> None:
        if self._loaded == facts.work.manifest:
            return
        folder = self._weights(facts)
        if self._environment is None:
            self._environment = Environment.of(self._config, folder)
        self._loaded = b""
        self._engine.load(folder)
        self._loaded = facts.work.manifest
