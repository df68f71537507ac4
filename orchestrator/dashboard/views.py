"""The documents behind the dashboard's pages, computed at most every so often, however many ask."""

import asyncio
import gzip
import inspect
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import lru_cache, wraps
from itertools import chain, islice
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar

from eth_utils.address import to_checksum_address
from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi import Query as QueryParameter
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, Field

from chain.deployment import FOLDER, NetworkConfig
from chain.indexer.records import Pool, Status, Submission, Terms
from chain.indexer.state import State
from orchestrator.auth import HttpError, documented
from orchestrator.dashboard import documents
from orchestrator.dashboard.documents import Snapshot, StepTally
from orchestrator.dashboard.evidence import find_submission, panels
from orchestrator.ledger import label
from orchestrator.service import Service
from protocol.api import endpoints, run, views
from protocol.api.base import ResponseBody
from protocol.api.endpoints import Get
from protocol.api.work import SourceList
from storage.keys import object_key

T = TypeVar("T")
A = TypeVar("A", bound=ResponseBody)
THROUGHPUT_SECONDS = 600
DAY_SECONDS = 86_400
# What an operator's forecast is made from.
FORECAST_SECONDS = 6 * 3600
# Newest files that throughput and a validator's votes are taken from.
RECENT_FILES = 20_000
RECENT_VOTES = 50
MOST_WAITS = 20
MOST_POINTS = 400
MOST_HITS = 20
MOST_ROWS = 100
TICK_SECONDS = 1.0
QUIET_SECONDS = 10.0
# How hard gzip tries: a record of 100,000 files packs in a second.
PACKING = 4
MOST_STREAMS = 256

# In Accept-Encoding; a weight of nothing refuses it.
_TAKES_GZIP = re.compile(r"(?:^|,)\s*gzip\s*(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))(?:[;,]|$)", re.IGNORECASE)
_PAGE = "the `next` of the page before"
Number = Annotated[int, Path(ge=0, lt=1 << 28)]
Offset = Annotated[int, QueryParameter(ge=0, lt=1 << 32, description=_PAGE)]
Before = Annotated[int | None, QueryParameter(ge=0, lt=1 << 32, description=_PAGE)]
Limit = Annotated[int, QueryParameter(ge=1, le=MOST_ROWS, description="rows of a page")]
Address = Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$"), AfterValidator(to_checksum_address)]
AddressInPath = Annotated[Address, Path()]
AddressFilter = Annotated[Address | None, QueryParameter()]
Order = Literal["joined", "earned", "slashed", "units"]
router = APIRouter(responses=documented())


def current_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def snapshot(request: Request) -> Snapshot:
    return Snapshot(request.app.state.service, request.app.state.answers)


CurrentService = Annotated[Service, Depends(current_service)]
Query = Annotated[Snapshot, Depends(snapshot)]


def view(
    endpoint: Get[A], summary: str, *errors: int, tag: str = "dashboard"
) -> Callable[[Callable[..., A]], Callable[..., A]]:
    """Register the function that makes a public document from a Query and validated parameters; it may answer `errors`.
    Only the parameters are in the cache's key: a stranger who varies the rest of a URL gets the cached answer."""

    def register(make: Callable[..., A]) -> Callable[..., A]:
        @wraps(make)
        def answer(request: Request, query: Snapshot, **parameters: Any) -> Response:
            def pack() -> bytes:
                return gzip.compress(make(query, **parameters).model_dump_json().encode(), PACKING, mtime=0)

            packed = query.answers.get((endpoint.path, *sorted(parameters.items())), pack)
            return packed_response(request, packed, "application/json")

        asked = inspect.signature(make)
        parameters = [inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request)]
        answer.__signature__ = asked.replace(parameters=[*parameters, *asked.parameters.values()])  # type: ignore[attr-defined]
        statuses = (*errors, 422) if len(asked.parameters) > 1 else errors
        router.get(endpoint.path, tags=[tag], summary=summary, responses=documented(*statuses))(answer)
        return make

    return register


def packed_response(
    request: Request, packed: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer that gzip compressed, or its plain text to a client that does not take gzip."""
    sent = {**(headers or {}), "Vary": "Accept-Encoding"}
    if not _TAKES_GZIP.search(request.headers.get("accept-encoding", "")):
        return Response(gzip.decompress(packed), headers=sent, media_type=media_type)
    return Response(packed, headers=sent | {"Content-Encoding": "gzip"}, media_type=media_type)


def _page(items: Sequence[T], after: int, limit: int, show: Callable[[T], Any] = lambda row: row) -> views.Listing[Any]:
    end = after + limit
    rows = [show(item) for item in items[after:end]]
    return views.Listing(rows=rows, total=len(items), next=end if end < len(items) else None)


def listing(
    endpoint: Get[views.Listing[T]], summary: str, entry: type, rows: Callable[[Snapshot], Sequence[T]]
) -> None:
    """Register a list whose rows are all made at once."""

    def make(query: Query, after: Offset = 0, limit: Limit = 25) -> Any:
        return _page(rows(query), after, limit)

    make.__name__ = f"list_{endpoint.path.rpartition('/')[2]}"
    make.__annotations__["return"] = views.Listing[entry]  # type: ignore[valid-type]
    view(endpoint, summary)(make)


# The run as a whole


@view(endpoints.STATUS, "Where the run stands", tag="run")
def get_status(query: Query) -> run.RunStatus:
    return run.RunStatus(
        **query.status_fields(),
        head=query.state.head,
        chain_error=query.view.error,
        held=query.held_steps(),
        nodes=query.node_states(),
        validators={owner: state for owner, _, _, state in query.owners()},
    )


@view(endpoints.DASHBOARD, "The run, newest files only", tag="run")
def get_dashboard(query: Query) -> run.RunRecord:
    return documents.record(query.service, documents.RECENT)


@view(endpoints.RECORD, "The whole run so far", tag="run")
def get_record(query: Query) -> run.RunRecord:
    return documents.record(query.service)


@view(endpoints.SOURCES, "Who else serves the weights", tag="objects")
def get_sources(query: Query) -> SourceList:
    """Announcements that strangers signed. Check every byte that comes from there."""
    return SourceList(sources=query.service.sources.live())


@view(endpoints.OVERVIEW, "Where the run stands, in short")
def get_overview(query: Query) -> views.Overview:
    state, tallies, nodes = query.state, query.tallies().values(), query.node_states().values()
    times = query.view.heard, query.view.moved
    age, head_age = (None if time is None else max(0.0, query.now - time) for time in times)
    fields, chain_id = query.run_fields(), query.service.uploads.pool.chain_id
    fields["waits"] = fields["waits"][:MOST_WAITS]
    return views.Overview(
        **fields,
        chain=chain_entry(chain_id, head=state.head, age=age, head_age=head_age, error=query.view.error),
        **newest_rewards(query.reports),
        counts=documents.counts(sum((tally.files for tally in tallies), Counter[str]())),
        tokens=sum(tally.tokens for tally in tallies),
        throughput=_throughput(query, THROUGHPUT_SECONDS),
        today=_throughput(query, DAY_SECONDS),
        nodes=Counter(node.value for node in nodes),
        validators=Counter(
            node_state.value for _, _, _, node_state in query.owners() if node_state is not run.NodeState.LEFT
        ),
        map="".join(node.value[0] for node in nodes),
        held=query.held_steps(),
        disputes=sum(of == query.pool_id for of, _ in state.disputes),
        canaries=sum(of == query.pool_id for of, _ in state.canaries),
        slashed=sum(slash.amount for slash in state.slashes if slash.pool == query.pool_id),
        terms=_terms_entry(query.pool.terms) if query.pool else None,
    )


def chain_entry(chain_id: int, **followed: Any) -> views.ChainEntry:
    """Return how well a chain is followed, with its name and explorer."""
    network, explorer = _networks().get(chain_id, (f"chain {chain_id}", ""))
    return views.ChainEntry(network=network, chain_id=chain_id, explorer=explorer, **followed)


@lru_cache(maxsize=1)
def _networks() -> dict[int, tuple[str, str]]:
    known = [NetworkConfig.load(path) for path in sorted(FOLDER.glob("*.toml"))]
    return {network.chain_id: (network.name, network.explorer) for network in known}


def _throughput(query: Query, most: int) -> views.ThroughputEntry:
    newest = islice(reversed(query.pool.sequences), RECENT_FILES) if query.pool else ()
    return _decided([query.state.submissions[query.pool_id, sequence] for sequence in newest], query.now, most)


def _decided(files: Sequence[Submission], now: float, most: int) -> views.ThroughputEntry:
    """Return what was decided in the last `most` seconds, or since the first of `files` if that is less."""
    seconds = max(1, min(most, int(now) - min((file.time for file in files), default=0)))
    decided = [file for file in files if file.decided_time > now - seconds]
    tokens = sum(file.units for file in decided if file.status is Status.ACCEPTED)
    return views.ThroughputEntry(seconds=seconds, files=len(decided), tokens=tokens)


def newest_rewards(reports: list[run.ReportEntry]) -> dict[str, Any]:
    """Return the newest mean reward trained on, and the newest held-out one with its step, as fields of an Overview."""
    rewards = [documents.reward_entry(report) for report in reversed(reports)]
    held_out = next((entry for entry in rewards if entry.heldout is not None), None)
    return {
        "reward": next((entry.reward for entry in rewards if entry.reward is not None), None),
        "heldout": held_out and held_out.heldout,
        "heldout_step": held_out and held_out.step,
    }


@view(endpoints.POOLS, "Pools of the same contracts")
def list_pools(query: Query, after: Offset = 0, limit: Limit = 25) -> views.Listing[views.PoolEntry]:
    """Newest first."""

    def entry(pool: Pool) -> views.PoolEntry:
        return views.PoolEntry(
            pool=pool.pool,
            owner=pool.owner,
            status=pool.status,
            url=pool.service_url,
            here=pool.pool == query.pool_id,
            steps=len(pool.steps),
            nodes=sum(account.pool == pool.pool and account.member for account in query.state.accounts.values()),
            submissions=len(pool.sequences),
            funded=pool.funded,
            held=pool.escrow,
            terms=_terms_entry(pool.terms),
        )

    return _page(list(query.state.pools.values())[::-1], after, limit, entry)


def _terms_entry(terms: Terms) -> views.TermsEntry:
    return views.TermsEntry(
        rate=terms.rate,
        fee=terms.fee,
        stake=terms.minStake,
        committee=terms.committee,
        jury=terms.jury,
        challenge_seconds=terms.challengeWindow,
        audit_share=terms.audit_fraction,
        invite_only=terms.inviteOnly,
    )


# Policy steps


@view(endpoints.HISTORY, "The run step by step, for charts")
def get_history(query: Query) -> views.History:
    return history(query.published(), query.tallies(), query.reports)


def history(
    published: Sequence[run.PublishedEntry], tallies: Mapping[int, StepTally], reports: Sequence[run.ReportEntry]
) -> views.History:
    """Return the columns of a run's charts, thinned out to MOST_POINTS: `time`, `tokens`, `files/…` by status,
    `reward`, `heldout/SET`, `error/SET`, and `metric/…` and `timing/…` as the trainer reported them."""
    times = {entry.step: entry.time for entry in published}
    reported = {report.step: report for report in reports}
    steps = sorted({*times, *reported, *tallies})
    if len(steps) > MOST_POINTS:
        steps = [steps[round(index * (len(steps) - 1) / (MOST_POINTS - 1))] for index in range(MOST_POINTS)]
    rows = []
    for step in steps:
        row: dict[str, float | None] = {"time": times.get(step)}
        if tally := tallies.get(step):
            row |= {"tokens": tally.tokens} | {f"files/{status}": count for status, count in tally.files.items()}
        if report := reported.get(step):
            row |= {f"metric/{name}": value for name, value in report.metrics.items()}
            row |= {f"timing/{name}": value for name, value in report.timings.items()}
            rewards = documents.reward_entry(report)
            row["reward"] = rewards.reward
            for heldout in rewards.sets:
                row |= {f"heldout/{heldout.name}": heldout.average, f"error/{heldout.name}": heldout.error}
        rows.append(row)
    names = sorted({name for row in rows for name in row})
    return views.History(steps=steps, columns={name: [row.get(name) for row in rows] for name in names})


@view(endpoints.STEP_LIST, "Policy steps")
def list_steps(query: Query, after: Before = None, limit: Limit = 25) -> views.Listing[views.StepEntry]:
    """Newest first."""
    entries = step_views(query.published(), query.tallies(), query.reports)
    earlier = [entry for entry in reversed(entries) if after is None or entry.step < after]
    rows = [views.StepEntry(**vars(entry)) for entry in earlier[:limit]]
    return views.Listing(rows=rows, total=len(entries), next=rows[-1].step if len(earlier) > limit else None)


@view(endpoints.STEP, "One policy step", 404)
def get_step(query: Query, step: Number) -> views.StepView:
    entries = step_views(query.published(), query.tallies(), query.reports)
    if step >= len(entries):
        raise HttpError(404, f"policy step {step} was not published", "see the list of steps")
    return entries[step]


def step_views(
    published: Sequence[run.PublishedEntry], tallies: Mapping[int, StepTally], reports: Sequence[run.ReportEntry]
) -> list[views.StepView]:
    """Return the published steps, each with the trainer's report on its making."""
    reported, entries = {report.step: report for report in reports}, []
    for step in published:
        report = reported.get(step.step)
        rewards = documents.reward_entry(report) if report else None
        judged: dict[str, Any] = {"reward": rewards and rewards.reward, "heldout": rewards and rewards.heldout}
        tally = vars(tallies.get(step.step) or StepTally())
        entries.append(views.StepView(**vars(step), **tally, **judged, report=report))
    return entries


# Nodes and validators


@view(endpoints.NODES, "Nodes of the pool")
def list_nodes(
    query: Query,
    after: Offset = 0,
    limit: Limit = 25,
    order: Order = "joined",
    state: run.NodeState | None = None,
    operator: AddressFilter = None,
) -> views.Listing[run.NodeEntry]:
    """In the order of joining, or the largest figure first."""
    states = query.node_states() if state is not None else {}
    chosen = [
        account
        for account in query.accounts
        if operator in (None, account.operator) and (state is None or states[account.node] is state)
    ]
    if order != "joined":
        chosen.sort(key=attrgetter("slashed" if order == "slashed" else "units_awarded"), reverse=True)
    return _page(chosen, after, limit, query.node)


@view(endpoints.NODE, "One node of the pool", 404)
def get_node(query: Query, address: AddressInPath) -> run.NodeEntry:
    account = query.view.account(query.state, address)
    if account is None:
        raise HttpError(404, f"{address} has not joined this pool", "see the list of nodes")
    return query.node(account)


@view(endpoints.OPERATOR, "What an operator earns by day, and what unlocks when", 404)
def get_operator(query: Query, address: AddressInPath) -> views.OperatorView:
    accounts = [account for account in query.accounts if account.operator == address]
    if query.pool is None or not accounts:
        raise HttpError(404, f"{address} operates no node of this pool", "see the list of nodes")
    own = [row for row in query.ledger() if row.role == "worker" and row.payee == address]
    amounts = ("earned", "pending", "locked", "vested", "claimed", "slashed")
    sums = {name: sum(getattr(row, name) for row in own) for name in amounts}
    files = [file for account in accounts for file in query.state.submissions_of(query.pool_id, account.node)]
    paid = [file for file in files if file.is_paid and not file.forfeited]
    days, stakes, nodes = Counter[int](), Counter[int | None](), Counter[int | None]()
    for file in paid:
        days[file.decided_time // DAY_SECONDS * DAY_SECONDS] += file.units * query.pool.terms.rate
    for node in (query.state.nodes[account.node] for account in accounts):
        unlocks = None if node.pool or node.frozen else node.release_at
        stakes[unlocks] += node.stake - node.loan
        nodes[unlocks] += 1
    locked = [file.final_time for file in paid if file.final_time > query.now]
    return views.OperatorView(
        total=run.LedgerEntry(address=address, role="operator", payee=address, **sums),
        days=[views.DayEntry(day=day, pay=pay) for day, pay in sorted(days.items())],
        recent=_decided(files, query.now, FORECAST_SECONDS),
        unlocks=(min(locked), max(locked)) if locked else None,
        stakes=[views.StakeEntry(stake=stakes[at], nodes=nodes[at], unlocks=at) for at in stakes if stakes[at]],
        unbonding=query.pool.unbonding,
    )


listing(endpoints.VALIDATORS, "Owners of seats", run.ValidatorEntry, Snapshot.validators)


@view(endpoints.VALIDATOR, "One owner of seats, with votes", 404)
def get_validator(query: Query, address: AddressInPath) -> views.ValidatorView:
    entry = next((owner for owner in query.validators() if owner.address == address), None)
    if entry is None:
        raise HttpError(404, f"{address} owns no seat", "see the list of validators")
    seats = {seat.seat for seat in entry.seats}
    votes = islice(_votes(query.state, query.pool, seats), RECENT_VOTES) if query.pool else ()
    here = (slash for slash in reversed(query.state.slashes) if slash.pool == query.pool_id)
    penalties = (slash for slash in here if slash.kind == "seat" and int(slash.who) in seats)
    slashes = documents.slash_entries(islice(penalties, RECENT_VOTES))
    return views.ValidatorView(**vars(entry), recent=list(votes), slashes=slashes)


def _votes(state: State, pool: Pool, seats: set[int]) -> Iterator[views.VoteEntry]:
    for sequence in islice(reversed(pool.sequences), RECENT_FILES):
        sub = state.submissions[pool.pool, sequence]
        file = {"sequence": sequence, "status": sub.status.value, "reason": label(sub.code), "time": sub.time}
        for voting_round in state.lane_of(sub).rounds:
            for member in voting_round.reveals:
                seat, code = voting_round.seats[member], voting_round.code_at(sub.place, member)
                if seat in seats and code:
                    yield views.VoteEntry.model_validate({**file, "seat": seat, "code": code.label})


# Files, disputes and money


@view(endpoints.SUBMISSIONS, "Submitted files")
def list_submissions(
    query: Query,
    after: Before = None,
    limit: Limit = 25,
    node: AddressFilter = None,
    status: Status | None = None,
    step: Before = None,
) -> views.Listing[run.SubmissionEntry]:
    """Newest first."""
    sequences = query.pool.sequences if query.pool else []
    if node is not None:
        account = query.view.account(query.state, node)
        sequences = account.sequences if account else []
    earlier = (sequence for sequence in reversed(sequences) if after is None or sequence < after)
    candidates = (query.state.submissions[query.pool_id, sequence] for sequence in earlier)
    matching = (sub for sub in candidates if status in (None, sub.status) and step in (None, sub.step))
    submissions = list(islice(matching, limit + 1))
    return views.Listing(
        rows=[run.SubmissionEntry(**query.submission_fields(sub)) for sub in submissions[:limit]],
        total=len(sequences) if status is None and step is None else None,
        next=submissions[limit - 1].sequence if len(submissions) > limit else None,
    )


@view(endpoints.SUBMISSION, "One submitted file, its votes and its end", 404)
def get_submission(query: Query, sequence: Number) -> views.SubmissionView:
    """With its committees, juries, dispute, canary and penalties."""
    state, sub = query.state, find_submission(query.state, query.pool_id, sequence)
    slashes = (slash for slash in state.slashes if (slash.pool, slash.sequence) == (sub.pool, sub.sequence))
    shown = {
        "root": sub.root.hex(),
        "key": object_key("rollouts", sub.sha256),
        "lane": sub.lane,
        "final": sub.final_time or None,
        "panels": panels(state, sub),
        "dispute": next((dispute for dispute in query.disputes() if dispute.sequence == sequence), None),
        "canary": next((canary for canary in query.canaries() if canary.sequence == sequence), None),
        "slashes": documents.slash_entries(slashes),
    }
    return views.SubmissionView(**query.submission_fields(sub) | shown)


@view(endpoints.VERDICTS, "What was measured of a file", 404, 503)
def get_verdicts(query: Query, sequence: Number) -> views.VerdictsView:
    return query.service.evidence.verdicts(query.state, sequence)


@view(endpoints.ROLLOUTS, "Prompts and completions of a file", 404, 503)
def get_rollouts(query: Query, sequence: Number, after: Offset = 0) -> views.RolloutsView:
    return query.service.evidence.rollouts(query.state, sequence, after)


listing(endpoints.DISPUTES, "Disputed files, newest first", run.DisputeEntry, lambda query: query.disputes()[::-1])
listing(endpoints.CANARIES, "Opened canaries, newest first", run.CanaryEntry, lambda query: query.canaries()[::-1])
listing(
    endpoints.CHALLENGES, "Node challenges, newest first", run.ChallengeEntry, lambda query: query.challenges()[::-1]
)
listing(endpoints.SLASHES, "Penalties, newest first", run.SlashEntry, Snapshot.slashes)
listing(endpoints.LEDGER, "Accounts of the pool", run.LedgerEntry, Snapshot.ledger)

# Search


@view(endpoints.SEARCH, "What a name, address or number names")
def get_hits(query: Query, q: Annotated[str, QueryParameter(min_length=1, max_length=80)]) -> views.Hits:
    """Files, policy steps and pools by number; nodes, validators, operators and files by the beginning of an address or
    hash (`0x` and at least four digits); nodes, validators and pools by a part of their names."""
    text, pool, hits = q.strip(), query.pool, dict[tuple[str, str], views.HitEntry]()
    if pool is not None:
        number, digits = re.fullmatch(r"#?([0-9]{1,9})", text), re.fullmatch(r"(?:0x)?([0-9a-f]{4,64})", text.lower())
        for hit in chain(
            _by_number(query.state, pool, int(number[1])) if number else (),
            _by_digits(query.state, pool, digits[1]) if digits else (),
            _by_name(query, text.casefold()) if text else (),
        ):
            hits.setdefault((hit.kind, hit.id), hit)
            if len(hits) == MOST_HITS:
                break
    return views.Hits(query=text, hits=list(hits.values()))


def _by_name(query: Query, part: str) -> Iterator[views.HitEntry]:
    named = [("node", account.node, query.heartbeats.get(account.node)) for account in query.accounts]
    named += [("validator", owner, newest) for owner, _, newest, _ in query.owners()]
    names = [(kind, address, beat.body.name) for kind, address, beat in named if beat]
    names.append(("pool", str(query.pool_id), query.config.name))
    names += [("pool", str(pool.pool), pool.service_url) for pool in query.state.pools.values()]
    for kind, name_of, name in names:
        if part in name.casefold():
            yield views.HitEntry(kind=kind, id=name_of, label=name)


def _by_number(state: State, pool: Pool, number: int) -> Iterator[views.HitEntry]:
    if (pool.pool, number) in state.submissions:
        yield views.HitEntry(kind="submission", id=str(number), label=f"file {number}")
    if number < len(pool.steps):
        yield views.HitEntry(kind="step", id=str(number), label=f"policy step {number}")
    if number in state.seats:
        yield views.HitEntry(kind="validator", id=state.seats[number].owner, label=f"seat {number}")
    if number in state.pools:
        yield views.HitEntry(kind="pool", id=str(number), label=f"pool {number}")


def _by_digits(state: State, pool: Pool, digits: str) -> Iterator[views.HitEntry]:
    def begins(text: str) -> bool:
        return text.lower().removeprefix("0x").startswith(digits)

    accounts, seats = (
        [account for account in state.accounts.values() if account.pool == pool.pool],
        state.seats.values(),
    )
    voters = [seat for seat in seats if seat.voter != seat.owner]
    named = [
        *(("node", account.node, account.node, "node") for account in accounts),
        *(("validator", seat.owner, seat.owner, "owner of seats") for seat in seats),
        *(("validator", seat.voter, seat.owner, f"votes for seat {seat.seat}") for seat in voters),
        *(("operator", account.operator, account.operator, "operator of nodes") for account in accounts),
        ("pool", pool.owner, str(pool.pool), f"owner of pool {pool.pool}"),
    ]
    for kind, address, name, words in dict.fromkeys(named):
        if begins(address):
            yield views.HitEntry(kind=kind, id=name, label=words)
    if len(digits) >= 8:
        for sequence in reversed(pool.sequences):
            sub = state.submissions[pool.pool, sequence]
            if begins(sub.sha256.hex()) or begins(sub.tx):
                yield views.HitEntry(kind="submission", id=str(sequence), label=f"file {sequence}")


# Changes


# Not in the OpenAPI document: it describes answers that end.
@router.get("/v1/events", include_in_schema=False)
async def get_events(request: Request, service: CurrentService) -> StreamingResponse:
    """Server-sent events `change` when files, votes or steps changed, and at least every ten seconds, since heartbeats
    age."""
    streams: set[object] = request.app.state.streams
    if len(streams) >= MOST_STREAMS:
        raise HttpError(503, f"{MOST_STREAMS} pages follow this run already", "poll the pages instead", 10)
    return StreamingResponse(_changes(request, service, streams), media_type="text/event-stream")


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
