"""What became of files, for the public documents of a run: submissions, slashes, disputes, canaries,
node cases."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from chain.indexer.records import Pool, Slash, Status, Submission
from chain.indexer.state import State
from orchestrator.trained import Trained
from protocol.api.judged import CanaryEntry, CaseEntry, DisputeEntry, SlashEntry
from protocol.api.run import SubmissionEntry
from protocol.verdict import Code

RECENT = 60


def files(state: State, pool: Pool, trained: Trained, recent: int | None) -> list[SubmissionEntry]:
    """Newest first."""
    wanted = pool.sequences if recent is None else pool.sequences[-recent:]
    newest = [state.submissions[pool.pool, sequence] for sequence in reversed(wanted)]
    return [SubmissionEntry(**submission_fields(state, sub, trained)) for sub in newest]


def submission_fields(state: State, sub: Submission, trained: Trained) -> dict[str, Any]:
    """The fields of a SubmissionEntry (and more that its record has)."""
    steps = trained.steps(sub)
    derived = {
        "decided": sub.decided_time or None,
        "status": sub.status.value,
        "reason": Code(sub.code).label if sub.code else "",
        "disputed": (sub.pool, sub.sequence) in state.disputes,
        "trained": max(steps, default=None),
        "trained_twice": len(steps) > 1,
        "sha256": sub.sha256.hex(),
    }
    return vars(sub) | derived


def counts(state: State, pool: int) -> dict[str, int]:
    """Submissions by status."""
    found = Counter(sub.status for sub in state.submissions_of(pool))
    return {status.value: found[status] for status in Status}


def slashes(state: State, pool: int) -> list[SlashEntry]:
    """The newest penalties of nodes and seats, newest first."""
    return slash_entries([slash for slash in reversed(state.slashes) if slash.pool in (pool, 0)][:RECENT])


def slash_entries(found: Iterable[Slash]) -> list[SlashEntry]:
    seat = "minority, withheld or overturned vote"
    return [SlashEntry(**vars(one), reason=Code(one.code).label if one.code else seat) for one in found]


def disputes(state: State, pool: int) -> list[DisputeEntry]:
    """Every dispute of a file."""
    return [
        DisputeEntry(**vars(one), outcome=Code(one.code).label if one.resolved else "before a jury")
        for (of, _), one in state.disputes.items()
        if of == pool
    ]


def canaries(state: State, pool: int) -> list[CanaryEntry]:
    """Every opened canary, with the seats it accuses."""
    out = []
    for (of, _), one in state.canaries.items():
        if of == pool:
            slashed = {str(seat): amount for seat, amount in one.slashed.items()}
            shown = {"reason": Code(one.reason).label, "accused": list(one.accused), "slashed": slashed}
            out.append(CanaryEntry(**vars(one) | shown))
    return out


def cases(state: State, pool: int) -> list[CaseEntry]:
    """Every case against a node, with its jury's votes."""
    out = []
    for one in state.cases.values():
        if one.pool == pool:
            jury = state.trials[one.trial]
            shown = {
                "sequences": list(one.sequences),
                "trial": jury.trial,
                "jurors": jury.size,
                "drawn": jury.drawn,
                "committed": len(jury.commits),
                "votes": dict(Counter(Code(code).label for code, _ in jury.reveals.values())),
                "outcome": one.outcome.name.lower(),
                "reason": Code(one.code).label if one.code else "",
            }
            out.append(CaseEntry(**vars(one) | shown))
    return out
