"""Objects from several sources at once: the fastest is asked first, the slowest is hedged, what broke off goes on at
its byte, and a bad one costs little.

A source is anything that gives the bytes of a key, checked against the hash in it: the pool's service with the bucket
behind it, a mirror, a relay. None is trusted, and none is needed as long as another has the bytes.
"""

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from protocol.errors import MusterError, UnreachableError
from storage import choice
from storage.choice import RequestEnd, SourceChoice, comes_before, is_late
from storage.draft import Draft
from storage.keys import MissingObjectError
from storage.pace import SourcePace
from storage.partial import AbandonedError, PartialObject

log = logging.getLogger("muster.weights")
Source = Callable[[str, int, PartialObject], None]
"""(key, limit in bytes, what came so far): appends what it receives, and returns once that is the object, checked;
MusterError, in bounded time, if it has no such bytes. It may go on where the partial is."""
UNDER_WAY = 64
"""Requests at once, those included that nobody waits for any more."""
KEPT_BYTES = 64 << 20
"""Of what broke off and no source could complete, so that the next call goes on."""
_LIKELY = 1 << 20
"""An object other than a shard is hardly larger than this, whatever its limit."""


def _ignore(_: object) -> None:
    pass


@dataclass
class _Call:
    """One object that somebody waits for. `drafts`: what holds its bytes; `left`: names that were not asked yet;
    `begun`: a partial for each request, the newest last."""

    key: str
    limit: int
    drafts: Callable[[], Draft]
    watch: Callable[[PartialObject], object]
    check: Callable[[bytes], object] | None
    left: dict[str, Source]
    begun: list[PartialObject] = field(default_factory=list)
    answers: "queue.SimpleQueue[PartialObject | MusterError]" = field(default_factory=queue.SimpleQueue)

    @property
    def likely(self) -> int:
        return self.limit if self.key.startswith("shards/") else min(self.limit, _LIKELY)


class SpreadSources:
    """Calls like a source, and asks `sources`, by name. Thread-safe; requests that are in flight together spread over
    the sources by their pace."""

    def __init__(self, sources: Mapping[str, Source], clock: Callable[[], float] = time.monotonic) -> None:
        if not sources:
            raise ValueError("at least one source is needed")
        self._sources, self._clock = dict(sources), clock
        self._choice = SourceChoice(sources)
        self._passing, self._own = frozenset[str](), ""
        self._kept: OrderedDict[str, PartialObject] = OrderedDict()
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(UNDER_WAY)

    def change(
        self, sources: Mapping[str, Source], spared: Collection[str] = (), passing: Collection[str] = (), own: str = ""
    ) -> None:
        """Ask these from now on, those in `spared` where the others are no good. Those in `passing` may ask this
        process in turn, which serves as `own`. Those that stay keep their pace; what is under way goes on."""
        with self._lock:
            self._sources, self._passing, self._own = dict(sources), frozenset(passing), own
            self._choice.change(sources, spared)

    def _upstream(self, key: str) -> dict[str, Source]:
        return {
            name: source
            for name, source in self._sources.items()
            if not self._own or name not in self._passing or comes_before(key, name, self._own)
        }

    @property
    def paces(self) -> dict[str, SourcePace]:
        """By the sources' names."""
        return self._choice.paces

    def __call__(
        self,
        key: str,
        limit: int,
        check: Callable[[bytes], object] | None = None,
    ) -> bytes:
        """The object's bytes from whichever source has them first. Bytes for which `check` raises a MusterError are no
        better than none. If no source has them, raises what the most informative failure was: MissingObjectError or
        IntegrityError if any source answered, UnreachableError if none did."""
        return self.bring(key, limit, Draft, check=check).whole()

    def bring(
        self,
        key: str,
        limit: int,
        drafts: Callable[[], Draft],
        watch: Callable[[PartialObject], object] = _ignore,
        check: Callable[[bytes], object] | None = None,
    ) -> PartialObject:
        """The same, in one of the `drafts`, for the caller to keep or to drop; `watch` is told of every request's
        partial."""
        with self._lock:
            call = _Call(key, limit, drafts, watch, check, self._upstream(key) or dict(self._sources))
            if (kept := self._kept.pop(key, None)) is not None:
                call.begun.append(kept)
        waiting, failures, needed = 0, list[MusterError](), list[PartialObject]()
        try:
            while call.left or waiting:
                patience = None
                if call.left:
                    patience = self._begin(call)
                    waiting += 1
                answer = self._wait(call, patience)
                if isinstance(answer, PartialObject):
                    needed.append(answer)
                    return answer
                if answer is None:
                    with self._lock:
                        self._choice.overdue(call.begun[-1].source)
                else:
                    waiting -= 1
                    failures.append(answer)
            needed += self._keep(call)
            raise min(failures, key=lambda error: isinstance(error, UnreachableError))
        finally:
            for partial in call.begun:
                partial.abandon()
                if partial not in needed:
                    partial.drop()

    def checked(self, key: str, limit: int, check: Callable[[bytes], object]) -> bytes:
        """The same, of an object whose key does not say all about its bytes."""
        return self(key, limit, check=check)

    def _begin(self, call: _Call) -> float:
        """Ask the source that is expected to be done first; how many seconds to wait for it alone."""
        with self._lock:
            begun = self._furthest(call)
            name, patience = self._choice.begin(call.left, call.likely, len(begun) if begun is not None else 0)
            pace, source = self._choice.pace(name), call.left.pop(name)
            partial = PartialObject(name, begun, call.drafts)
            partial.hurried = bool(call.left)
        call.begun.append(partial)
        call.watch(partial)
        threading.Thread(target=self._ask, args=(call, source, partial, pace), daemon=True).start()
        return patience

    def _furthest(self, call: _Call) -> PartialObject | None:
        """Where another source may go on: nobody was caught sending wrong bytes of what is there."""
        usable = [
            one
            for one in call.begun
            if len(one) and not any(self._choice.is_spoilt(giver) for giver in (one.source, *one.givers))
        ]
        return max(usable, key=len, default=None)

    def _wait(self, call: _Call, patience: float | None) -> PartialObject | MusterError | None:
        """The next answer; None when it is time to ask another source. Without `patience` none is left."""
        began, partial = time.monotonic(), call.begun[-1]
        need, sent, moved = max(1, call.likely - len(partial)), 0, began
        while True:
            try:
                return call.answers.get(timeout=None if patience is None else choice.LEAST_PATIENCE)
            except queue.Empty:
                assert patience is not None
                now = time.monotonic()
                if partial.own > sent:
                    sent, moved = partial.own, now
                if is_late(now - began, now - moved, sent, need, patience):
                    return None

    def _ask(self, call: _Call, source: Source, partial: PartialObject, pace: SourcePace) -> None:
        answer: PartialObject | MusterError = partial
        name = partial.source
        with self._room:
            started = self._clock()
            try:
                self._asked(call, source, partial)
            except MusterError as error:
                answer = error
            except Exception as error:  # a thread's end must be heard of
                log.exception("source %s failed", name)
                answer = MusterError(f"source {name} failed: {error}")
            taken = self._clock() - started
        with self._lock:
            self._choice.ended(pace, _outcome(answer), partial.own, taken, partial.suspects)
        if partial.suspects and isinstance(answer, PartialObject):
            log.warning("%s: bytes of %s were wrong", call.key, ", ".join(sorted(partial.suspects)))
        if isinstance(answer, MusterError) and not isinstance(answer, (MissingObjectError, AbandonedError)):
            log.info("source %s: %s", name, answer)
        call.answers.put(answer)

    def _asked(self, call: _Call, source: Source, partial: PartialObject) -> None:
        """The caller's own check has to hold as well; otherwise nobody goes on with the bytes."""
        source(call.key, call.limit, partial)
        try:
            if call.check is not None:
                call.check(partial.whole())
        except MusterError:
            partial.restart()
            raise

    def _keep(self, call: _Call) -> list[PartialObject]:
        """Remember how far it came, for the next call."""
        with self._lock:
            furthest = self._furthest(call)
            if furthest is not None:
                self._kept[call.key] = furthest
            while self._kept and sum(map(len, self._kept.values())) > KEPT_BYTES:
                self._kept.popitem(last=False)[1].drop()
            return [furthest] if furthest is not None else []


def _outcome(answer: PartialObject | MusterError) -> RequestEnd:
    if isinstance(answer, PartialObject):
        return RequestEnd.WHOLE
    if isinstance(answer, AbandonedError):
        return RequestEnd.ABANDONED
    return RequestEnd.MISSING if isinstance(answer, MissingObjectError) else RequestEnd.FAILED
