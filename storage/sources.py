"""How a source of objects has done so far, and what is expected of it. Pure."""

import hashlib
import logging
import math
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from protocol.errors import MusterError, UnreachableError
from storage.keys import MissingObjectError
from storage.partial import AbandonedError, Draft, PartialObject

_GUESS, _SMOOTH, _WORST = 1e6, 0.3, 10
_TELLING, _LONG = 64 << 10, 1.0
"""Fewer bytes within fewer seconds say little of a pace: that was the way there and back."""


@dataclass(slots=True)
class SourcePace:
    """Bytes a second, smoothed, 0 while unknown; failures and missing objects in a row; requests under way. `spoilt`:
    what it left unfinished was wrong once, so nobody goes on with that any more. Seconds are the caller's."""

    rate: float = 0.0
    failures: int = 0
    misses: int = 0
    busy: int = 0
    spoilt: bool = False
    _blame: float = field(default=1.0, init=False)

    def seconds(self, size: int) -> float:
        """Until it would have sent `size` bytes more, if it works."""
        return (self.busy + 1) * (size if size > 0 else 0) / (self.rate or _GUESS)

    def expected(self, size: int) -> float:
        """The same, with what it failed at. An unknown source is tried once, then it has to show."""
        if self.rate or self.busy or self._blame > 1.0:
            return (self.busy + 1) * (size if size > 0 else 0) / (self.rate or _GUESS) * self._blame
        return 0.0

    def succeeded(self, size: int, seconds: float) -> None:
        self._measured(size, seconds)
        self.failures = self.misses = 0
        self._blame = 1.0

    def overtaken(self, size: int, seconds: float) -> None:
        """Another source was done first; this one had sent `size` bytes."""
        if size:
            self.succeeded(size, seconds)

    def missed(self) -> None:
        """It does not have the object, which may be nobody's fault."""
        self.misses += 1
        self._blame_it()

    def failed(self) -> None:
        self.failures += 1
        self._blame_it()

    def caught(self) -> None:
        """Bytes of it were wrong, in an object that another source completed."""
        self.spoilt = True
        self.failed()

    def _blame_it(self) -> None:
        self._blame = 4.0 ** min(self.failures, _WORST) * 2.0 ** min(self.misses, _WORST)

    def _measured(self, size: int, seconds: float) -> None:
        if size < _TELLING and seconds < _LONG:
            return
        now = size / max(seconds, 1e-6)
        self.rate = (1 - _SMOOTH) * self.rate + _SMOOTH * now if self.rate else now


# ---- Which source is asked for an object, how long it may take, and what its end tells of it


PATIENCE = 6.0
"""So many times as long as expected may a request take before another source is asked too."""
LEAST_PATIENCE = 1.0
SILENCE = 3.0
"""Seconds without a single byte before another source is asked too."""
SPARING = 16
"""For so many times as slow as it is passes a source that is to be spared."""
Name = TypeVar("Name", bound=Hashable)


class RequestEnd(Enum):
    """How a request ended: with the object; nobody waited for it any more; the source has no such object; with wrong
    bytes, or none."""

    WHOLE = "whole"
    ABANDONED = "abandoned"
    MISSING = "missing"
    FAILED = "failed"


class SourceChoice(Generic[Name]):
    """How every source has done, and what follows from it. Those in `spared` are asked where the others are much
    slower, or fail. Not thread-safe."""

    def __init__(self, names: Iterable[Name], spared: Collection[Name] = ()) -> None:
        self.paces = {name: SourcePace() for name in names}
        self._spared = frozenset(spared)

    def change(self, names: Iterable[Name], spared: Collection[Name] = ()) -> None:
        """Those that stay keep their pace."""
        self.paces = {name: self.paces.get(name) or SourcePace() for name in names}
        self._spared = frozenset(spared)

    def begin(self, left: Iterable[Name], likely: int, here: int) -> tuple[Name, float]:
        """Ask one of `left` for an object that is hardly larger than `likely` bytes, of which `here` are here: the one
        that is expected to be done first, and how many seconds to wait for it alone."""
        name = self._first(left, likely)
        pace = self.pace(name)
        patience = max(LEAST_PATIENCE, PATIENCE * pace.seconds(likely - here))
        pace.busy += 1
        return name, patience

    def _first(self, left: Iterable[Name], likely: int) -> Name:
        """The one of the least cost, the first of several; this is what choosing takes with many sources."""
        paces, spared = self.paces, self._spared
        best, least = list[Name](), math.inf
        for name in left:
            pace = paces.get(name) or self.pace(name)
            cost = pace.expected(likely)
            if name in spared:
                cost = SPARING * max(cost, pace.seconds(likely))
            if cost < least or not best:
                best, least = [name], cost
                if not cost:
                    break
        return best[0]

    def pace(self, name: Name) -> SourcePace:
        """Of a source that left the list meanwhile, a new one."""
        known = self.paces.get(name)
        if known is None:
            known = self.paces[name] = SourcePace()
        return known

    def overdue(self, name: Name) -> None:
        """It counts as failing until it has sent something after all."""
        self.pace(name).failed()

    def ended(
        self, pace: SourcePace, outcome: RequestEnd, size: int, seconds: float, suspects: Collection[Name] = ()
    ) -> None:
        """A request to the source of this pace ended, which itself sent `size` bytes of it. `suspects`: who else had
        sent bytes of the object that were wrong, as is known now that it came whole."""
        pace.busy -= 1
        if outcome is RequestEnd.WHOLE:
            pace.succeeded(size, seconds)
            for suspect in suspects:
                self.pace(suspect).caught()
        elif outcome is RequestEnd.ABANDONED:
            pace.overtaken(size, seconds)
        elif outcome is RequestEnd.MISSING:
            pace.missed()
        else:
            pace.failed()

    def is_spoilt(self, name: Name) -> bool:
        """Whether nobody goes on with what it leaves unfinished."""
        return (pace := self.paces.get(name)) is None or pace.spoilt


def comes_before(key: str, name: str, own: str) -> bool:
    """Whether a process that serves as `own` may ask `name` for an object: every object has an order of its own among
    those that pass it on, so no two ever wait for each other, and everybody is near the origin of some objects."""
    return place(key, name) < place(key, own)


def place(key: str, name: str) -> bytes:
    """Where a source stands in an object's order."""
    return hashlib.sha256(f"{key} {name}".encode()).digest()


def is_late(taken: float, still: float, sent: int, need: int, patience: float) -> bool:
    """Whether another source has to be asked too: this one sent `sent` of `need` bytes in `taken` seconds, and nothing
    in the last `still`."""
    if not sent:
        return taken >= min(SILENCE, patience)
    return still >= SILENCE or taken * need / sent > patience


# ---- Objects from several sources at once


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
                return call.answers.get(timeout=None if patience is None else LEAST_PATIENCE)
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
