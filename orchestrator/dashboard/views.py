"""The documents behind the dashboard's pages: overview, policy steps, people, files, evidence and search."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Annotated, Literal

from eth_utils.address import to_checksum_address
from fastapi import Path, Request
from fastapi import Query as QueryParameter
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, Field

from chain.deployment import FOLDER, NetworkConfig
from chain.indexer.records import Pool, Status, Submission, Terms
from chain.indexer.state import State
from orchestrator.auth import HttpError
from orchestrator.dashboard import documents
from orchestrator.dashboard.answers import CurrentService, Query, view
from orchestrator.dashboard.answers import router as router
from orchestrator.dashboard.documents import StepTally
from orchestrator.dashboard.evidence import find_submission, panels
from orchestrator.scheduling.aggregates import ConsumedFiles
from orchestrator.service import Service
from protocol.api import endpoints, run, views
from protocol.api.work import SourceList
from protocol.verdict import Code
from storage.keys import object_key

THROUGHPUT_SECONDS = 600
# Newest files that throughput and a validator's votes are taken from.
RECENT_FILES = 20_000
RECENT_VOTES = 50
MOST_WAITS = 20
MOST_POINTS = 400
MOST_HITS = 20
MOST_ROWS = 100
TICK_SECONDS = 1.0
QUIET_SECONDS = 10.0
MOST_STREAMS = 256

_PAGE = "the `next` of the page before"
Number = Annotated[int, Path(ge=0, lt=1 << 28)]
Offset = Annotated[int, QueryParameter(ge=0, lt=1 << 32, description=_PAGE)]
Before = Annotated[int | None, QueryParameter(ge=0, lt=1 << 32, description=_PAGE)]
Limit = Annotated[int, QueryParameter(ge=1, le=MOST_ROWS, description="rows of a page")]
Address = Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$"), AfterValidator(to_checksum_address)]
AddressInPath = Annotated[Address, Path()]
AddressFilter = Annotated[Address | None, QueryParameter()]
Order = Literal["joined", "earned", "slashed", "units"]


def _page(found: Sequence[views.E], after: int, limit: int) -> views.Listing[views.E]:
    following = after + limit if after + limit < len(found) else None
    return views.Listing(rows=list(found[after : after + limit]), total=len(found), next=following)


# The run as a whole


@view(endpoints.STATUS, "Where the run stands", tag="run")
def get_status(query: Query) -> run.RunStatus:
    return documents.status(query)


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
    state, pool, tallies = query.state, query.pool, query.tallies().values()
    nodes, owners = query.node_states().values(), query.validator_states().values()
    reward, heldout = newest_reward(query.service.reports())
    heard, moved = (
        None if time is None else max(0.0, query.now - time) for time in (query.view.heard, query.view.moved)
    )
    fields = query.run_fields()
    fields["waits"] = fields["waits"][:MOST_WAITS]
    return views.Overview(
        **fields,
        chain=chain_entry(query.service.uploads.pool.chain_id, state.head, heard, moved, query.view.error),
        reward=reward,
        heldout=heldout,
        counts=documents.counts(sum((tally.files for tally in tallies), Counter[str]())),
        tokens=sum(tally.tokens for tally in tallies),
        throughput=_throughput(query),
        nodes=Counter(node.value for node in nodes),
        validators=Counter(owner.value for owner in owners if owner is not run.NodeState.LEFT),
        map="".join(node.value[0] for node in nodes),
        held=query.held_steps(),
        disputes=sum(of == query.pool_id for of, _ in state.disputes),
        canaries=sum(of == query.pool_id for of, _ in state.canaries),
        slashed=sum(slash.amount for slash in state.slashes if slash.pool in (query.pool_id, 0)),
        terms=_terms_entry(pool.terms) if pool else None,
    )


def chain_entry(chain_id: int, head: int, age: float | None, head_age: float | None, error: str) -> views.ChainEntry:
    """Return how well a chain is followed, with its name and explorer."""
    network, explorer = _networks().get(chain_id, (f"chain {chain_id}", ""))
    return views.ChainEntry(
        network=network, chain_id=chain_id, explorer=explorer, head=head, age=age, head_age=head_age, error=error
    )


@lru_cache(maxsize=1)
def _networks() -> dict[int, tuple[str, str]]:
    known = [NetworkConfig.load(path) for path in sorted(FOLDER.glob("*.toml"))]
    return {network.chain_id: (network.name, network.explorer) for network in known}


def _throughput(query: Query) -> views.ThroughputEntry:
    newest = islice(reversed(query.pool.sequences), RECENT_FILES) if query.pool else ()
    files = (query.state.submissions[query.pool_id, sequence] for sequence in newest)
    decided = [file for file in files if file.decided_time > query.now - THROUGHPUT_SECONDS]
    tokens = sum(file.units for file in decided if file.status is Status.ACCEPTED)
    return views.ThroughputEntry(seconds=THROUGHPUT_SECONDS, files=len(decided), tokens=tokens)


def newest_reward(reports: list[run.ReportEntry]) -> tuple[float | None, float | None]:
    """Return the newest mean reward trained on, and the newest held-out one."""
    rewards = [documents.reward_entry(report) for report in reversed(reports)]
    reward = next((entry.reward for entry in rewards if entry.reward is not None), None)
    return reward, next((entry.heldout for entry in rewards if entry.heldout is not None), None)


@view(endpoints.POOLS, "Pools of the same contracts")
def list_pools(query: Query, after: Offset = 0, limit: Limit = 25) -> views.Listing[views.PoolEntry]:
    """Newest first."""
    page = _page(list(query.state.pools.values())[::-1], after, limit)
    return views.Listing(rows=[_pool_entry(query, pool) for pool in page.rows], total=page.total, next=page.next)


def _pool_entry(query: Query, pool: Pool) -> views.PoolEntry:
    return views.PoolEntry(
        pool=pool.pool,
        owner=pool.owner,
        status=pool.status,
        url=pool.service_url,
        here=pool.pool == query.pool_id,
        steps=len(pool.steps),
        nodes=sum(of == pool.pool and account.member for (of, _), account in query.state.accounts.items()),
        submissions=len(pool.sequences),
        funded=pool.funded,
        held=pool.escrow,
        terms=_terms_entry(pool.terms),
    )


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
    return history(documents.published_entries(query.pool), query.tallies(), query.service.reports())


def history(
    published: Sequence[run.PublishedEntry], tallies: Mapping[int, StepTally], reports: Sequence[run.ReportEntry]
) -> views.History:
    """Return the columns of a run's charts, at most MOST_POINTS points with the first and the last: `time`, `tokens`,
    `files/…` by status, `reward`, `heldout/SET` and `error/SET`, `metric/…` and `timing/…` as the trainer reported
    them."""
    times = {entry.step: entry.time for entry in published}
    reported = {report.step: report for report in reports}
    steps = sorted({*times, *reported, *tallies})
    if len(steps) > MOST_POINTS:
        steps = [steps[round(index * (len(steps) - 1) / (MOST_POINTS - 1))] for index in range(MOST_POINTS)]
    rows = [_history_row(times.get(step), tallies.get(step), reported.get(step)) for step in steps]
    names = sorted({name for row in rows for name in row})
    return views.History(steps=steps, columns={name: [row.get(name) for row in rows] for name in names})


def _history_row(time: int | None, tally: StepTally | None, report: run.ReportEntry | None) -> dict[str, float | None]:
    row: dict[str, float | None] = {"time": time}
    if tally is not None:
        row |= {"tokens": tally.tokens} | {f"files/{status}": count for status, count in tally.files.items()}
    if report is not None:
        row |= {f"metric/{name}": value for name, value in report.metrics.items()}
        row |= {f"timing/{name}": value for name, value in report.timings.items()}
        rewards = documents.reward_entry(report)
        row["reward"] = rewards.reward
        for heldout in rewards.sets:
            row |= {f"heldout/{heldout.name}": heldout.average, f"error/{heldout.name}": heldout.error}
    return row


@view(endpoints.STEP_LIST, "Policy steps")
def list_steps(query: Query, after: Before = None, limit: Limit = 25) -> views.Listing[views.StepEntry]:
    """Newest first."""
    published, tallies = documents.published_entries(query.pool), query.tallies()
    reports = {report.step: report for report in query.service.reports()}
    earlier = [entry for entry in reversed(published) if after is None or entry.step < after]
    page = [step_view(entry, tallies.get(entry.step), reports.get(entry.step)) for entry in earlier[:limit]]
    rows = [views.StepEntry(**vars(entry)) for entry in page]
    return views.Listing(rows=rows, total=len(published), next=page[-1].step if len(earlier) > limit else None)


@view(endpoints.STEP, "One policy step", 404)
def get_step(query: Query, step: Number) -> views.StepView:
    published = documents.published_entries(query.pool)
    if step >= len(published):
        raise HttpError(404, f"policy step {step} was not published", "see the list of steps")
    report = next((report for report in query.service.reports() if report.step == step), None)
    return step_view(published[step], query.tallies().get(step), report)


def step_view(published: run.PublishedEntry, tally: StepTally | None, report: run.ReportEntry | None) -> views.StepView:
    """Return a published step; `report` is the trainer's on its making."""
    rewards = documents.reward_entry(report) if report else None
    return views.StepView(
        **vars(published),
        **vars(tally or StepTally()),
        reward=rewards.reward if rewards else None,
        heldout=rewards.heldout if rewards else None,
        report=report,
    )


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
    page = _page(chosen, after, limit)
    return views.Listing(rows=[query.node(account) for account in page.rows], total=page.total, next=page.next)


@view(endpoints.NODE, "One node of the pool", 404)
def get_node(query: Query, address: AddressInPath) -> run.NodeEntry:
    account = query.view.account(query.state, address)
    if account is None:
        raise HttpError(404, f"{address} has not joined this pool", "see the list of nodes")
    return query.node(account)


@view(endpoints.VALIDATORS, "Owners of seats")
def list_validators(query: Query, after: Offset = 0, limit: Limit = 25) -> views.Listing[run.ValidatorEntry]:
    return _page(query.validators(), after, limit)


@view(endpoints.VALIDATOR, "One owner of seats, with votes", 404)
def get_validator(query: Query, address: AddressInPath) -> views.ValidatorView:
    entry = next((owner for owner in query.validators() if owner.address == address), None)
    if entry is None:
        raise HttpError(404, f"{address} owns no seat", "see the list of validators")
    seats = {seat.seat for seat in entry.seats}
    votes = islice(_votes(query.state, query.pool, seats), RECENT_VOTES) if query.pool else ()
    penalties = [slash for slash in reversed(query.state.slashes) if slash.kind == "seat" and int(slash.who) in seats]
    slashes = documents.slash_entries(penalties[:RECENT_VOTES])
    return views.ValidatorView(**vars(entry), recent=list(votes), slashes=list(slashes))


def _votes(state: State, pool: Pool, seats: set[int]) -> Iterator[views.VoteEntry]:
    """Yield what the seats revealed on the pool's newest files, newest first."""
    for sequence in islice(reversed(pool.sequences), RECENT_FILES):
        sub = state.submissions[pool.pool, sequence]
        for voting_round in state.lane_of(sub).rounds:
            for member in voting_round.reveals:
                seat, code = voting_round.seats[member], voting_round.code_at(sub.place, member)
                if seat in seats and code:
                    yield views.VoteEntry(
                        sequence=sequence,
                        seat=seat,
                        code=code.label,
                        status=sub.status.value,
                        reason=Code(sub.code).label if sub.code else "",
                        time=sub.time,
                    )


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
    found, consumed = list(islice(matching, limit + 1)), query.service.consumed()
    fields = [documents.submission_fields(query.state, sub, consumed) for sub in found[:limit]]
    return views.Listing(
        rows=[run.SubmissionEntry(**entry) for entry in fields],
        total=len(sequences) if status is None and step is None else None,
        next=found[limit - 1].sequence if len(found) > limit else None,
    )


@view(endpoints.SUBMISSION, "One submitted file, its votes and its end", 404)
def get_submission(query: Query, sequence: Number) -> views.SubmissionView:
    found = find_submission(query.state, query.pool_id, sequence)
    return submission_view(query.state, found, query.service.consumed())


def submission_view(state: State, sub: Submission, consumed: ConsumedFiles) -> views.SubmissionView:
    """Return one file with its committees, juries, dispute, canary and penalties."""
    disputes = [entry for entry in documents.disputes(state, sub.pool) if entry.sequence == sub.sequence]
    canaries = [entry for entry in documents.canaries(state, sub.pool) if entry.sequence == sub.sequence]
    slashes = (slash for slash in state.slashes if (slash.pool, slash.sequence) == (sub.pool, sub.sequence))
    derived = {
        "root": sub.root.hex(),
        "key": object_key("rollouts", sub.sha256),
        "lane": sub.lane,
        "attested": state.lane_of(sub).is_judged(sub.place),
        "final": sub.final_time or None,
        "panels": panels(state, sub),
        "dispute": next(iter(disputes), None),
        "canary": next(iter(canaries), None),
        "slashes": list(documents.slash_entries(slashes)),
    }
    return views.SubmissionView(**documents.submission_fields(state, sub, consumed) | derived)


@view(endpoints.VERDICTS, "What was measured of a file", 404, 503)
def get_verdicts(query: Query, sequence: Number) -> views.VerdictsView:
    return query.evidence.verdicts(query.state, sequence)


@view(endpoints.ROLLOUTS, "Prompts and completions of a file", 404, 503)
def get_rollouts(query: Query, sequence: Number, after: Offset = 0) -> views.RolloutsView:
    return query.evidence.rollouts(query.state, sequence, after)


@view(endpoints.DISPUTES, "Disputed files")
def list_disputes(query: Query, after: Offset = 0, limit: Limit = 25) -> views.Listing[run.DisputeEntry]:
    """Newest first."""
    return _page(documents.disputes(query.state, query.pool_id)[::-1], after, limit)


@view(endpoints.CANARIES, "Opened canaries")
def list_canaries(query: Query, after: Offset = 0, limit: Limit = 25) -> views.Listing[run.CanaryEntry]:
    """Newest first."""
    return _page(documents.canaries(query.state, query.pool_id)[::-1], after, limit)


@view(endpoints.CHALLENGES, "Node challenges")
def list_challenges(query: Query, after: Offset = 0, limit: Limit = 25) -> views.Listing[run.ChallengeEntry]:
    """Newest first."""
    return _page(documents.challenges(query.state, query.pool_id)[::-1], after, limit)


@view(endpoints.SLASHES, "Penalties, newest first")
def list_slashes(query: Query, after: Offset = 0, limit: Limit = 25) -> views.Listing[run.SlashEntry]:
    return _page(documents.slashes(query.state, query.pool_id), after, limit)


@view(endpoints.LEDGER, "Accounts of the pool")
def list_ledger(query: Query, after: Offset = 0, limit: Limit = 25) -> views.Listing[run.LedgerEntry]:
    return _page(query.ledger(), after, limit)


# Search


@view(endpoints.SEARCH, "What an address or number names")
def get_hits(query: Query, q: Annotated[str, QueryParameter(min_length=1, max_length=80)]) -> views.Hits:
    """Nodes, validators, operators and files by the beginning of an address or hash (`0x` and at least four digits);
    files, policy steps and pools by number."""
    text, pool = q.strip(), query.pool
    found: Iterator[views.HitEntry] = iter(())
    if pool is not None and re.fullmatch(r"#?[0-9]{1,9}", text):
        found = _by_number(query.state, pool, int(text.lstrip("#")))
    elif pool is not None and re.fullmatch(r"(0x)?[0-9a-fA-F]{4,64}", text):
        found = _by_digits(query.state, pool, text.lower().removeprefix("0x"))
    return views.Hits(query=text, hits=list(islice(found, MOST_HITS)))


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

    accounts = [account for (of, _), account in state.accounts.items() if of == pool.pool]
    named = [
        *(("node", account.node, account.node, "node") for account in accounts),
        *(("validator", seat.owner, seat.owner, "owner of seats") for seat in state.seats.values()),
        *(
            ("validator", seat.voter, seat.owner, f"votes for seat {seat.seat}")
            for seat in state.seats.values()
            if seat.voter != seat.owner
        ),
        *(("operator", account.operator, account.operator, "operator of nodes") for account in accounts),
        ("pool", pool.owner, str(pool.pool), f"owner of pool {pool.pool}"),
    ]
    for kind, address, name, label in dict.fromkeys(named):
        if begins(address):
            yield views.HitEntry(kind=kind, id=name, label=label)
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
