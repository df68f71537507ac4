"""Which accepted files a training step consumes. Pure: from the projected chain and what was consumed before."""

from collections.abc import Collection
from dataclasses import dataclass

from chain.records import Status, Submission
from chain.state import State


@dataclass(frozen=True)
class Inbox:
    """`files`: usable now, oldest policy step first. `stale`: accepted, never used, and too old for any later step.
    How many are on their way: `confirming` are accepted, not deep enough or disputed; `judging` have no verdict."""

    files: tuple[Submission, ...]
    stale: tuple[Submission, ...]
    confirming: int = 0
    judging: int = 0


def file_id(submission: Submission) -> str:
    """What a file is consumed by: its SHA-256, which a reorganisation does not change (its sequence might)."""
    return submission.sha256.hex()


def look(
    state: State,
    pool: int,
    step: int,
    async_level: int,
    confirmations: int,
    consumed: Collection[str],
    excluded: Collection[str] = (),
) -> Inbox:
    """The files for making policy step `step` + 1 with the policy at `step`.

    A file counts once its acceptance is `confirmations` blocks deep and not disputed; a file of policy step s can be
    used as long as step − s ≤ `async_level`. `excluded`: nodes (canary carriers) whose files are never trained on.
    """
    files: list[Submission] = []
    stale: list[Submission] = []
    seen, confirming, oldest = set(consumed), 0, step - async_level
    for sub in sorted(state.accepted(pool), key=lambda s: (s.step, s.sequence)):
        deep = sub.decided_block + confirmations <= state.head
        if file_id(sub) in seen or sub.node in excluded:
            continue
        if sub.disputed or not deep:
            confirming += sub.step >= oldest
            continue
        seen.add(file_id(sub))
        (stale if sub.step < oldest else files).append(sub)
    judging = sum(
        sub.status is Status.PENDING and sub.step >= oldest and sub.node not in excluded
        for sub in state.submissions_of(pool)
    )
    return Inbox(tuple(files), tuple(stale), confirming, judging)


def overturned(state: State, pool: int, consumed: Collection[str]) -> list[Submission]:
    """Files that were trained on and lost their acceptance afterwards: reported, never rolled back."""
    gone = {Status.REJECTED, Status.MALFORMED, Status.CANARY}
    return [s for s in state.submissions_of(pool) if s.status in gone and file_id(s) in consumed]
