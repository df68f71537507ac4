"""The dashboard's routes: public, read-only, paged. An answer is computed at most every so often, however many ask."""

import asyncio
import json
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from eth_utils.address import to_checksum_address
from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi import Query as QueryParameter
from fastapi.responses import StreamingResponse

from chain.indexer.records import Status
from orchestrator.auth import HttpError, documented
from orchestrator.dashboard import documents
from orchestrator.dashboard import views as made
from orchestrator.ledger import rows
from orchestrator.service import Service
from protocol.api import endpoints, run, views
from protocol.api.base import ResponseBody

CACHED_ANSWERS = 256
REST = 10
"""An answer that took a second to compute is computed again after ten at the earliest."""
MOST_ROWS = 100
TICK_SECONDS = 1.0
QUIET_SECONDS = 10.0
MOST_STREAMS = 256
router = APIRouter(tags=["dashboard"], responses=documented(422))
_ADDRESS = r"^0x[0-9a-fA-F]{40}$"
_Number = Annotated[int, Path(ge=0, lt=1 << 28)]
_Offset = Annotated[int, QueryParameter(ge=0, lt=1 << 32, description="the `next` of the page before")]
_Before = Annotated[int | None, QueryParameter(ge=0, lt=1 << 32, description="the `next` of the page before")]
_Limit = Annotated[int, QueryParameter(ge=1, le=MOST_ROWS, description="rows of a page")]
_Address = Annotated[str, Path(pattern=_ADDRESS)]
_AddressFilter = Annotated[str | None, QueryParameter(pattern=_ADDRESS)]


class AnswerCache:
    """The newest answer under each key. An answer is computed again once it is `seconds` and ten times its own
    computing time old, so no view takes more than a tenth of a core. The CACHED_ANSWERS used last are kept.
    Thread-safe; whoever asks for another key does not wait."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        self._answers: OrderedDict[object, _Answer] = OrderedDict()

    def get(self, key: object, make: Callable[[], Any]) -> Any:
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
            return answer.value


@dataclass
class _Answer:
    lock: threading.Lock = field(default_factory=threading.Lock)
    until: float = float("-inf")
    value: Any = None


class Dashboard:
    """What several views need and is expensive: computed once for all of them."""

    def __init__(self, service: Service, seconds: float = 1.0) -> None:
        self._service, self._cache = service, AnswerCache(seconds)
        self.evidence = made.Evidence(service.uploads.pool, service.config.work, service.open_object)

    def tallies(self) -> dict[int, made.StepTally]:
        subs = self._service.view.state.submissions_of(self._service.view.pool_id)

        def make() -> dict[int, made.StepTally]:
            return made.tallies((sub.step, sub.status.value, sub.units, sub.time, sub.decided_time) for sub in subs)

        found: dict[int, made.StepTally] = self._cache.get("tallies", make)
        return found

    def validators(self) -> list[run.ValidatorEntry]:
        service, view = self._service, self._service.view

        def make() -> list[run.ValidatorEntry]:
            return documents.validators(view.state, view.pool_id, service.heartbeats(), service.clock())

        found: list[run.ValidatorEntry] = self._cache.get("validators", make)
        return found

    def ledger(self) -> list[run.LedgerEntry]:
        state, pool = self._service.view.state, self._service.view.pool_id

        def make() -> list[run.LedgerEntry]:
            return rows(state, pool, int(self._service.clock())) if pool in state.pools else []

        found: list[run.LedgerEntry] = self._cache.get("ledger", make)
        return found


def _service(request: Request) -> Service:
    return request.app.state.service  # type: ignore[no-any-return]


CurrentService = Annotated[Service, Depends(_service)]


class CachedQuery:
    """A public request: what its answer is made of, and the cache of answers."""

    def __init__(self, request: Request) -> None:
        self.service: Service = request.app.state.service
        self.dashboard: Dashboard = request.app.state.dashboard
        self._cache: AnswerCache = request.app.state.answers
        self.view = self.service.view
        self.state = self.view.state
        self.pool = self.view.pool(self.state)

    def answer(self, name: str, make: Callable[[], ResponseBody], *parameters: object) -> Response:
        """Return the document `name` for these validated parameters. Only they are in the cache's key: a stranger who
        varies the rest of a URL gets the cached answer."""
        return self.cached((name, *parameters), lambda: make().model_dump_json(), "application/json")

    def cached(self, key: object, make: Callable[[], str | bytes], media_type: str) -> Response:
        return Response(self._cache.get(key, make), media_type=media_type)


Query = Annotated[CachedQuery, Depends(CachedQuery)]


def _page(found: list[views.E], after: int, limit: int) -> views.Listing[views.E]:
    following = after + limit if after + limit < len(found) else None
    return views.Listing(rows=found[after : after + limit], total=len(found), next=following)


@router.get(endpoints.OVERVIEW.path, summary="Where the run stands, in short", response_model=views.Overview)
def get_overview(query: Query) -> Response:
    return query.answer("overview", lambda: made.overview(query.service, query.dashboard.tallies()))


@router.get(endpoints.HISTORY.path, summary="The run step by step, for charts", response_model=views.History)
def get_history(query: Query) -> Response:
    def make() -> views.History:
        published = documents.published_entries(query.pool)
        return made.history(published, query.dashboard.tallies(), query.service.reports())

    return query.answer("history", make)


@router.get(endpoints.DIFFICULTY.path, summary="How often problems were solved", response_model=views.Difficulties)
def get_difficulty(query: Query) -> Response:
    return query.answer("difficulty", query.service.rates.view)


@router.get(endpoints.STEP_LIST.path, summary="Policy steps", response_model=views.Listing[views.StepEntry])
def list_steps(query: Query, after: _Before = None, limit: _Limit = 25) -> Response:
    """Newest first."""

    def make() -> views.Listing[views.StepEntry]:
        published, tallies = documents.published_entries(query.pool), query.dashboard.tallies()
        reports = {report.step: report for report in query.service.reports()}
        earlier = [one for one in reversed(published) if after is None or one.step < after]
        page = [made.step_entry(one, tallies.get(one.step), reports.get(one.step)) for one in earlier[:limit]]
        following = page[-1].step if len(earlier) > limit else None
        return views.Listing(rows=page, total=len(published), next=following)

    return query.answer("steps", make, after, limit)


@router.get(endpoints.STEP.path, summary="One policy step", response_model=views.StepView, responses=documented(404))
def get_step(query: Query, step: _Number) -> Response:
    def make() -> views.StepView:
        published = documents.published_entries(query.pool)
        if step >= len(published):
            raise HttpError(404, f"policy step {step} was not published", "see the list of steps")
        report = next((one for one in query.service.reports() if one.step == step), None)
        return made.step_view(published[step], query.dashboard.tallies().get(step), report)

    return query.answer("step", make, step)


@router.get(endpoints.NODES.path, summary="Nodes of the pool", response_model=views.Listing[run.NodeEntry])
def list_nodes(
    query: Query,
    after: _Offset = 0,
    limit: _Limit = 25,
    order: made.Order = "joined",
    state: run.NodeState | None = None,
    operator: _AddressFilter = None,
) -> Response:
    owner = to_checksum_address(operator) if operator else None

    def make() -> views.Listing[run.NodeEntry]:
        heartbeats, now = query.service.heartbeats(), query.service.clock()
        return made.nodes(
            query.state,
            query.pool,
            heartbeats,
            now,
            limit=limit,
            after=after,
            order=order,
            wanted=state,
            operator=owner,
        )

    return query.answer("nodes", make, after, limit, order, state, owner)


@router.get(
    endpoints.NODE.path, summary="One node of the pool", response_model=run.NodeEntry, responses=documented(404)
)
def get_node(query: Query, address: _Address) -> Response:
    node = to_checksum_address(address)

    def make() -> run.NodeEntry:
        return made.node(query.state, query.pool, query.service.heartbeats(), query.service.clock(), node)

    return query.answer("node", make, node)


@router.get(endpoints.SUBMISSIONS.path, summary="Submitted files", response_model=views.Listing[run.SubmissionEntry])
def list_submissions(
    query: Query,
    after: _Before = None,
    limit: _Limit = 25,
    node: _AddressFilter = None,
    status: Status | None = None,
    step: _Before = None,
) -> Response:
    author = to_checksum_address(node) if node else None

    def make() -> views.Listing[run.SubmissionEntry]:
        consumed = query.service.consumed()
        return made.submissions(
            query.state, query.pool, consumed, limit=limit, after=after, node=author, status=status, step=step
        )

    return query.answer("submissions", make, after, limit, author, status, step)


@router.get(
    endpoints.SUBMISSION.path,
    summary="One submitted file, its votes and its end",
    response_model=views.SubmissionView,
    responses=documented(404),
)
def get_submission(query: Query, sequence: _Number) -> Response:
    def make() -> views.SubmissionView:
        found = made.find_submission(query.state, query.view.pool_id, sequence)
        return made.submission_view(query.state, found, query.service.consumed())

    return query.answer("submission", make, sequence)


@router.get(
    endpoints.VERDICTS.path,
    summary="What was measured of a file",
    response_model=views.VerdictsView,
    responses=documented(404, 503),
)
def get_verdicts(query: Query, sequence: _Number) -> Response:
    return query.answer("verdicts", lambda: query.dashboard.evidence.verdicts(query.state, sequence), sequence)


@router.get(
    endpoints.ROLLOUTS.path,
    summary="Prompts and completions of a file",
    response_model=views.RolloutsView,
    responses=documented(404, 503),
)
def get_rollouts(query: Query, sequence: _Number, after: _Offset = 0) -> Response:
    evidence = query.dashboard.evidence
    return query.answer("rollouts", lambda: evidence.rollouts(query.state, sequence, after), sequence, after)


@router.get(endpoints.VALIDATORS.path, summary="Owners of seats", response_model=views.Listing[run.ValidatorEntry])
def list_validators(query: Query, after: _Offset = 0, limit: _Limit = 25) -> Response:
    return query.answer("validators", lambda: _page(query.dashboard.validators(), after, limit), after, limit)


@router.get(
    endpoints.VALIDATOR.path,
    summary="One owner of seats, with votes",
    response_model=views.ValidatorView,
    responses=documented(404),
)
def get_validator(query: Query, address: _Address) -> Response:
    owner = to_checksum_address(address)
    return query.answer(
        "validator", lambda: made.validator(query.state, query.pool, query.dashboard.validators(), owner), owner
    )


@router.get(endpoints.DISPUTES.path, summary="Disputed files", response_model=views.Listing[run.DisputeEntry])
def list_disputes(query: Query, after: _Offset = 0, limit: _Limit = 25) -> Response:
    def make() -> views.Listing[run.DisputeEntry]:
        return _page(documents.disputes(query.state, query.view.pool_id)[::-1], after, limit)

    return query.answer("disputes", make, after, limit)


@router.get(endpoints.CANARIES.path, summary="Opened canaries", response_model=views.Listing[run.CanaryEntry])
def list_canaries(query: Query, after: _Offset = 0, limit: _Limit = 25) -> Response:
    def make() -> views.Listing[run.CanaryEntry]:
        return _page(documents.canaries(query.state, query.view.pool_id)[::-1], after, limit)

    return query.answer("canaries", make, after, limit)


@router.get(endpoints.CASES.path, summary="Challenges of nodes", response_model=views.Listing[run.CaseEntry])
def list_cases(query: Query, after: _Offset = 0, limit: _Limit = 25) -> Response:
    def make() -> views.Listing[run.CaseEntry]:
        return _page(documents.cases(query.state, query.view.pool_id)[::-1], after, limit)

    return query.answer("cases", make, after, limit)


@router.get(endpoints.SLASHES.path, summary="Penalties, newest first", response_model=views.Listing[run.SlashEntry])
def list_slashes(query: Query, after: _Offset = 0, limit: _Limit = 25) -> Response:
    def make() -> views.Listing[run.SlashEntry]:
        return _page(documents.slashes(query.state, query.view.pool_id), after, limit)

    return query.answer("slashes", make, after, limit)


@router.get(endpoints.LEDGER.path, summary="Accounts of the pool", response_model=views.Listing[run.LedgerEntry])
def list_ledger(query: Query, after: _Offset = 0, limit: _Limit = 25) -> Response:
    return query.answer("ledger", lambda: _page(query.dashboard.ledger(), after, limit), after, limit)


@router.get(endpoints.POOLS.path, summary="Pools of the same contracts", response_model=views.Listing[views.PoolEntry])
def list_pools(query: Query, after: _Offset = 0, limit: _Limit = 25) -> Response:
    """Newest first."""

    def make() -> views.Listing[views.PoolEntry]:
        pools = list(query.state.pools.values())[::-1]
        page = [made.pool_entry(query.state, pool, pool.pool == query.view.pool_id) for pool in pools[after:][:limit]]
        following = after + limit if after + limit < len(pools) else None
        return views.Listing(rows=page, total=len(pools), next=following)

    return query.answer("pools", make, after, limit)


@router.get(endpoints.SEARCH.path, summary="What an address or number names", response_model=views.Hits)
def get_hits(query: Query, q: Annotated[str, QueryParameter(min_length=1, max_length=80)]) -> Response:
    return query.answer("search", lambda: made.search(query.state, query.pool, q), q.strip())


# Not in the OpenAPI document: it describes answers that end.
@router.get("/v1/events", include_in_schema=False)
async def get_events(request: Request) -> StreamingResponse:
    """Server-sent events `change` when files, votes or steps changed, and at least every ten seconds, since heartbeats
    age."""
    streams: set[object] = request.app.state.streams
    if len(streams) >= MOST_STREAMS:
        raise HttpError(503, f"{MOST_STREAMS} pages follow this run already", "poll the pages instead", 10)
    return StreamingResponse(_changes(request, request.app.state.service, streams), media_type="text/event-stream")


async def _changes(request: Request, service: Service, streams: set[object]) -> AsyncIterator[str]:
    stream, sent_version, quiet = object(), -1, 0.0
    streams.add(stream)
    try:
        while not await request.is_disconnected():
            state = service.view.state
            if state.version != sent_version or quiet >= QUIET_SECONDS:
                sent_version, quiet = state.version, 0.0
                yield f"event: change\ndata: {json.dumps({'version': state.version, 'head': state.head})}\n\n"
            await asyncio.sleep(TICK_SECONDS)
            quiet += TICK_SECONDS
    finally:
        streams.discard(stream)
