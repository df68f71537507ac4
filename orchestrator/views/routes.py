"""The dashboard's routes: public, read-only, paged. Each answer is made at most every so often, however many ask."""

from collections.abc import Callable
from typing import Annotated

from eth_utils.address import to_checksum_address
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from chain.indexer.records import Status
from orchestrator.http_errors import documented
from orchestrator.views.answers import AnswerCache
from orchestrator.views.dashboard import MOST_ROWS, Dashboard
from orchestrator.views.people import Order
from protocol.api import endpoints, judged, run, views
from protocol.api.base import ResponseBody

router = APIRouter(tags=["dashboard"], responses=documented(422))
_ADDRESS = r"^0x[0-9a-fA-F]{40}$"
_Number = Annotated[int, Path(ge=0, lt=1 << 28)]
_Place = Annotated[int, Query(ge=0, lt=1 << 32, description="the `next` of the page before")]
_Before = Annotated[int | None, Query(ge=0, lt=1 << 32, description="the `next` of the page before")]
_Limit = Annotated[int, Query(ge=1, le=MOST_ROWS, description="rows of a page")]
_Who = Annotated[str, Path(pattern=_ADDRESS)]
_Whose = Annotated[str | None, Query(pattern=_ADDRESS)]


class Asked:
    """A request to the dashboard: makes its answer, or finds one made for the same request not long ago."""

    def __init__(self, request: Request) -> None:
        self.dashboard: Dashboard = request.app.state.dashboard
        self._answers: AnswerCache = request.app.state.answers
        self._name = (request.url.path, request.url.query)

    def answer(self, make: Callable[[], ResponseBody]) -> Response:
        content = self._answers.get(self._name, lambda: make().model_dump_json())
        return Response(content, media_type="application/json")


Ask = Annotated[Asked, Depends(Asked)]


@router.get(endpoints.OVERVIEW.path, summary="Where the run stands, in short", response_model=views.Overview)
def get_overview(ask: Ask) -> Response:
    return ask.answer(ask.dashboard.overview)


@router.get(endpoints.HISTORY.path, summary="The run step by step, for charts", response_model=views.History)
def get_history(ask: Ask) -> Response:
    return ask.answer(ask.dashboard.history)


@router.get(endpoints.DIFFICULTY.path, summary="How often problems were solved", response_model=views.Difficulties)
def get_difficulty(ask: Ask) -> Response:
    return ask.answer(ask.dashboard.difficulty)


@router.get(endpoints.STEP_LIST.path, summary="Policy steps", response_model=views.Listing[views.StepEntry])
def list_steps(ask: Ask, after: _Before = None, limit: _Limit = 25) -> Response:
    return ask.answer(lambda: ask.dashboard.step_list(after, limit))


@router.get(endpoints.STEP.path, summary="One policy step", response_model=views.StepView, responses=documented(404))
def get_step(ask: Ask, step: _Number) -> Response:
    return ask.answer(lambda: ask.dashboard.step(step))


@router.get(endpoints.NODES.path, summary="Nodes of the pool", response_model=views.Listing[run.NodeEntry])
def list_nodes(
    ask: Ask,
    after: _Place = 0,
    limit: _Limit = 25,
    order: Order = "joined",
    state: run.NodeState | None = None,
    operator: _Whose = None,
) -> Response:
    owner = to_checksum_address(operator) if operator else None
    return ask.answer(lambda: ask.dashboard.nodes(after, limit, order, state, owner))


@router.get(
    endpoints.NODE.path, summary="One node of the pool", response_model=run.NodeEntry, responses=documented(404)
)
def get_node(ask: Ask, address: _Who) -> Response:
    return ask.answer(lambda: ask.dashboard.node(to_checksum_address(address)))


@router.get(endpoints.SUBMISSIONS.path, summary="Submitted files", response_model=views.Listing[run.SubmissionEntry])
def list_submissions(
    ask: Ask,
    after: _Before = None,
    limit: _Limit = 25,
    node: _Whose = None,
    status: Status | None = None,
    step: _Before = None,
) -> Response:
    whose = to_checksum_address(node) if node else None
    return ask.answer(lambda: ask.dashboard.submissions(after, limit, whose, status, step))


@router.get(
    endpoints.SUBMISSION.path,
    summary="One submitted file, its votes and its end",
    response_model=views.SubmissionView,
    responses=documented(404),
)
def get_submission(ask: Ask, sequence: _Number) -> Response:
    return ask.answer(lambda: ask.dashboard.submission(sequence))


@router.get(
    endpoints.VERDICTS.path,
    summary="What was measured of a file",
    response_model=views.VerdictsView,
    responses=documented(404, 503),
)
def get_verdicts(ask: Ask, sequence: _Number) -> Response:
    return ask.answer(lambda: ask.dashboard.verdicts(sequence))


@router.get(
    endpoints.ROLLOUTS.path,
    summary="Prompts and completions of a file",
    response_model=views.RolloutsView,
    responses=documented(404, 503),
)
def get_rollouts(ask: Ask, sequence: _Number, after: _Place = 0) -> Response:
    return ask.answer(lambda: ask.dashboard.rollouts(sequence, after))


@router.get(endpoints.VALIDATORS.path, summary="Owners of seats", response_model=views.Listing[run.ValidatorEntry])
def list_validators(ask: Ask, after: _Place = 0, limit: _Limit = 25) -> Response:
    return ask.answer(lambda: ask.dashboard.validators(after, limit))


@router.get(
    endpoints.VALIDATOR.path,
    summary="One owner of seats, with votes",
    response_model=views.ValidatorView,
    responses=documented(404),
)
def get_validator(ask: Ask, address: _Who) -> Response:
    return ask.answer(lambda: ask.dashboard.validator(to_checksum_address(address)))


@router.get(endpoints.DISPUTES.path, summary="Disputed files", response_model=views.Listing[judged.DisputeEntry])
def list_disputes(ask: Ask, after: _Place = 0, limit: _Limit = 25) -> Response:
    return ask.answer(lambda: ask.dashboard.disputes(after, limit))


@router.get(endpoints.CANARIES.path, summary="Opened canaries", response_model=views.Listing[judged.CanaryEntry])
def list_canaries(ask: Ask, after: _Place = 0, limit: _Limit = 25) -> Response:
    return ask.answer(lambda: ask.dashboard.canaries(after, limit))


@router.get(endpoints.CASES.path, summary="Cases against nodes", response_model=views.Listing[judged.CaseEntry])
def list_cases(ask: Ask, after: _Place = 0, limit: _Limit = 25) -> Response:
    return ask.answer(lambda: ask.dashboard.cases(after, limit))


@router.get(endpoints.SLASHES.path, summary="Penalties, newest first", response_model=views.Listing[judged.SlashEntry])
def list_slashes(ask: Ask, after: _Place = 0, limit: _Limit = 25) -> Response:
    return ask.answer(lambda: ask.dashboard.slashes(after, limit))


@router.get(endpoints.LEDGER.path, summary="Accounts of the pool", response_model=views.Listing[run.LedgerEntry])
def list_ledger(ask: Ask, after: _Place = 0, limit: _Limit = 25) -> Response:
    return ask.answer(lambda: ask.dashboard.ledger(after, limit))


@router.get(endpoints.POOLS.path, summary="Pools of the same contracts", response_model=views.Listing[views.PoolEntry])
def list_pools(ask: Ask, after: _Place = 0, limit: _Limit = 25) -> Response:
    return ask.answer(lambda: ask.dashboard.pools(after, limit))


@router.get(endpoints.SEARCH.path, summary="What an address or number names", response_model=views.Hits)
def get_hits(ask: Ask, q: Annotated[str, Query(min_length=1, max_length=80)]) -> Response:
    return ask.answer(lambda: ask.dashboard.search(q))
