"""Public documents: read-only routes whose answers are computed at most every so often, however many ask."""

import inspect
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request, Response

from orchestrator.auth import documented
from orchestrator.dashboard.documents import Snapshot, StepTally, tallies
from orchestrator.dashboard.evidence import Evidence
from orchestrator.ledger import rows
from orchestrator.service import Service
from protocol.api import run
from protocol.api.base import ResponseBody
from protocol.api.endpoints import Get

A = TypeVar("A", bound=ResponseBody)
T = TypeVar("T")
CACHED_ANSWERS = 256
# An answer that took a second to compute is computed again after ten at the earliest.
REST = 10
router = APIRouter(responses=documented())


class AnswerCache:
    """The newest answer under each key. An answer is computed again once it is `seconds` and ten times its own
    computing time old, so no view takes more than a tenth of a core. The CACHED_ANSWERS used last are kept.
    Thread-safe; whoever asks for another key does not wait."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        self._answers: OrderedDict[object, _Answer] = OrderedDict()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """Return what `make` returned for `key` a moment ago, or call it. What it raises is not kept."""
        with self._lock:
            answer = self._answers.setdefault(key, _Answer())
            self._answers.move_to_end(key)
            while len(self._answers) > CACHED_ANSWERS:
                self._answers.popitem(last=False)
        with answer.lock:
            start = self._clock()
            if start >= answer.until:
                answer.value = make()
                took = self._clock() - start
                answer.until = start + took + (max(self._seconds, REST * took) if self._seconds else 0.0)
            value: T = answer.value
            return value


@dataclass
class _Answer:
    lock: threading.Lock = field(default_factory=threading.Lock)
    until: float = float("-inf")
    value: Any = None


def current_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


CurrentService = Annotated[Service, Depends(current_service)]


class PublicQuery(Snapshot):
    """What the answer to a public request is made from. What several views need and is expensive is computed once for
    all of them."""

    def __init__(self, request: Request) -> None:
        super().__init__(current_service(request))
        self.answers: AnswerCache = request.app.state.answers
        self.evidence: Evidence = request.app.state.evidence
        self._shared: AnswerCache = request.app.state.shared

    def tallies(self) -> dict[int, StepTally]:
        """Return policy step → its tally."""
        files = self.state.submissions_of(self.pool_id)
        facts = ((file.step, file.status.value, file.units, file.time, file.decided_time) for file in files)
        return self._shared.get("tallies", lambda: tallies(facts))

    def validators(self) -> list[run.ValidatorEntry]:
        return self._shared.get("validators", super().validators)

    def ledger(self) -> list[run.LedgerEntry]:
        """Return the accounts of the pool."""
        return self._shared.get("ledger", lambda: rows(self.state, self.pool_id, int(self.now)) if self.pool else [])


Query = Annotated[PublicQuery, Depends(PublicQuery)]


def view(
    endpoint: Get[A], summary: str, *errors: int, tag: str = "dashboard"
) -> Callable[[Callable[..., A]], Callable[..., A]]:
    """Register the function that makes a public document from a Query and validated parameters; it may answer `errors`.

    Only the parameters are in the cache's key: a stranger who varies the rest of a URL gets the cached answer."""

    def register(make: Callable[..., A]) -> Callable[..., A]:
        @wraps(make)
        def answer(query: PublicQuery, **parameters: Any) -> Response:
            key = endpoint.path, *sorted(parameters.items())
            text = query.answers.get(key, lambda: make(query, **parameters).model_dump_json())
            return Response(text, media_type="application/json")

        statuses = (*errors, 422) if len(inspect.signature(make).parameters) > 1 else errors
        router.get(endpoint.path, tags=[tag], summary=summary, responses=documented(*statuses))(answer)
        return make

    return register
