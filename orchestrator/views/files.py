"""Files for the dashboard: pages of them, and all that the chain says of one."""

from collections.abc import Iterator
from itertools import islice

from chain.indexer.records import Panel, Pool, Round, Status, Submission, Trial
from chain.indexer.state import State
from orchestrator import submission_views
from orchestrator.http_errors import HttpError
from orchestrator.trained import Trained
from protocol.api.run import SubmissionEntry
from protocol.api.views import Listing, MemberEntry, PanelEntry, SubmissionView
from protocol.verdict import Code, code_at
from storage.keys import object_key


def find(state: State, pool: int, sequence: int) -> Submission:
    """Raises HttpError 404 if there is no such file."""
    found = state.submissions.get((pool, sequence))
    if found is None:
        raise HttpError(404, f"pool {pool} has no file {sequence}", "see the list of files")
    return found


def listing(
    state: State,
    pool: Pool | None,
    trained: Trained,
    *,
    limit: int,
    after: int | None = None,
    node: str | None = None,
    status: Status | None = None,
    step: int | None = None,
) -> Listing[SubmissionEntry]:
    """Newest first: those before sequence `after`, of one node, status or policy step."""
    if pool is None:
        return Listing(rows=[], total=0, next=None)
    sequences = pool.sequences
    if node is not None:
        account = state.accounts.get((pool.pool, node))
        sequences = account.sequences if account else []
    wanted = _matching(state, pool.pool, sequences, after, status, step)
    found = list(islice(wanted, limit + 1))
    rows = [SubmissionEntry(**submission_views.submission_fields(state, sub, trained)) for sub in found[:limit]]
    total = len(sequences) if status is None and step is None else None
    return Listing(rows=rows, total=total, next=rows[-1].sequence if len(found) > limit else None)


def _matching(
    state: State, pool: int, sequences: list[int], after: int | None, status: Status | None, step: int | None
) -> Iterator[Submission]:
    for sequence in reversed(sequences):
        if after is not None and sequence >= after:
            continue
        sub = state.submissions[pool, sequence]
        if status in (None, sub.status) and step in (None, sub.step):
            yield sub


def view(state: State, sub: Submission, trained: Trained) -> SubmissionView:
    """One file with its committees, juries, dispute, canary and penalties."""
    place = (sub.pool, sub.sequence)
    of_file = [one for one in submission_views.disputes(state, sub.pool) if one.sequence == sub.sequence]
    canaries = [one for one in submission_views.canaries(state, sub.pool) if one.sequence == sub.sequence]
    derived = {
        "root": sub.root.hex(),
        "key": object_key("rollouts", sub.sha256),
        "lane": sub.lane,
        "attested": state.lane_of(sub).is_judged(sub.place),
        "final": sub.final_time or None,
        "panels": panels(state, sub),
        "dispute": of_file[0] if of_file else None,
        "canary": canaries[0] if canaries else None,
        "slashes": submission_views.slash_entries(one for one in state.slashes if (one.pool, one.sequence) == place),
    }
    return SubmissionView(**submission_views.submission_fields(state, sub, trained) | derived)


def panels(state: State, sub: Submission) -> list[PanelEntry]:
    """A file's committees, then its juries."""
    committees = [_committee(state, one, sub.place) for one in state.lane_of(sub).rounds if one.drawn]
    place = (sub.pool, sub.sequence)
    juries = [
        one for one in state.trials.values() if (one.pool, one.sequence) == place and one.trial not in state.trial_cases
    ]
    return committees + [_jury(state, one) for one in juries]


def _committee(state: State, one: Round, place: int) -> PanelEntry:
    votes = {member: (one.code_at(place, member), digest) for member, (_, digest) in one.reveals.items()}
    outcome = code_at(one.codes, place) if one.settled else Code.NONE
    return _panel(state, one, "committee", one.round, votes, outcome)


def _jury(state: State, one: Trial) -> PanelEntry:
    votes = {member: (Code(code), digest) for member, (code, digest) in one.reveals.items()}
    return _panel(state, one, "jury", one.trial, votes, Code(one.code))


def _panel(
    state: State, panel: Panel, kind: str, number: int, votes: dict[int, tuple[Code, bytes]], outcome: Code
) -> PanelEntry:
    members = []
    for member, seat in enumerate(panel.seats):
        code, digest = votes.get(member, (Code.NONE, b""))
        members.append(
            MemberEntry(
                seat=seat,
                owner=state.seats[seat].owner,
                committed=member in panel.commits,
                code=code.label if code else "",
                verdict=object_key("verdicts", digest) if len(digest) == 32 else "",
            )
        )
    return PanelEntry(
        kind=kind,
        number=number,
        drawn=panel.drawn_time or None,
        seed=panel.seed.hex(),
        outcome=outcome.label if outcome else "",
        members=members,
    )
