"""What a pool's files add up to, and which of them were trained on, updated from one chain state to the next."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from chain.indexer.records import Status, Submission
from chain.indexer.state import State
from orchestrator.db import ConsumedRow, StepReportRow
from orchestrator.ledger import sums_of


@dataclass(frozen=True)
class ConsumedFiles:
    """Which files were trained on, by the trainer's reports, matched by content: a reorganisation may change sequences.
    `files`: SHA-256 (hex) → steps; `unnamed`: sequence → steps, of files not on chain at the time of the report;
    `newest`: the newest step reported, 0 before the first; `over`: whether it is the run's last."""

    files: dict[str, list[int]] = field(default_factory=dict)
    unnamed: dict[int, list[int]] = field(default_factory=dict)
    newest: int = 0
    over: bool = False

    def steps(self, sub: Submission) -> list[int]:
        """Return the steps that trained on a submission; more than one should not happen."""
        return self.files.get(sub.sha256.hex()) or self.unnamed.get(sub.sequence) or []


def store_consumed(session: Session, step: int, sequences: Iterable[int], known: dict[int, str]) -> None:
    """Replace the report of one step; `known`: sequence → SHA-256 (hex) now. What was matched before is kept: a report
    repeated after a reorganisation still names the sequences from before it."""
    own = ConsumedRow.step == step
    before = dict(session.execute(select(ConsumedRow.sequence, ConsumedRow.sha256).where(own)).all())
    session.execute(delete(ConsumedRow).where(own))
    session.add_all(
        ConsumedRow(step=step, sequence=sequence, sha256=before.get(sequence) or known.get(sequence, ""))
        for sequence in sequences
    )


_REPORTS = select(func.count(), func.max(StepReportRow.reported)).select_from(StepReportRow)


def report_version(session: Session) -> tuple[object, ...]:
    """Return a value that changes with every report of the trainer."""
    return tuple(session.execute(_REPORTS).one())


def load_consumed(session: Session) -> ConsumedFiles:
    newest = session.scalars(select(StepReportRow).order_by(StepReportRow.step.desc()).limit(1)).first()
    over = newest is not None and bool(json.loads(newest.body).get("final"))
    consumed = ConsumedFiles(newest=newest.step if newest else 0, over=over)
    for row in session.scalars(select(ConsumedRow).order_by(ConsumedRow.step)):
        if row.sha256:
            consumed.files.setdefault(row.sha256, []).append(row.step)
        else:
            consumed.unnamed.setdefault(row.sequence, []).append(row.step)
    return consumed


class FileAggregates:
    """Sums over the files of one pool; an update costs as much as files changed. `sums`: for the escrow; `accepted`:
    how many are; `consumed`: sequences of pending and accepted files that were trained on; `queued`: sequence → file,
    pending or accepted and not consumed."""

    def __init__(self, pool: int) -> None:
        self._pool = pool
        self._open: dict[tuple[int, int], Submission] = {}
        self._generation = -1
        self._consumed_files = ConsumedFiles()
        self._clear()

    def _clear(self) -> None:
        self.sums, self.accepted = Counter[str](), 0
        self.consumed: set[int] = set()
        self.queued: dict[int, Submission] = {}

    def update(self, state: State, consumed: ConsumedFiles) -> None:
        """Take in a state no older than the last one, and the trainer's reports."""
        if consumed is not self._consumed_files or state.generation != self._generation:
            self._clear()
            self._consumed_files, self._generation = consumed, state.generation
            for new in state.submissions_of(self._pool):
                self._replace(None, new)
        else:
            for old, new in self._changes(state):
                self._replace(old, new)
        self._open = dict(state.submissions)

    def _changes(self, state: State) -> Iterator[tuple[Submission | None, Submission]]:
        # A state shares unchanged records with the state before it, and holds those alone that are not final.
        for key, new in state.submissions.items():
            old = self._open.get(key)
            if new is not old and new.pool == self._pool:
                archived = state.archive.lane(new.pool, new.lane) if old is None else None
                yield archived["submissions"][key] if archived else old, new
        for key in self._open.keys() - state.submissions.keys():
            if key[0] == self._pool:
                yield self._open[key], state.submissions[key]

    def _replace(self, old: Submission | None, new: Submission) -> None:
        if old is not None:
            self.sums.subtract(sums_of([old]))
            self.accepted -= old.status is Status.ACCEPTED
        self.sums.update(sums_of([new]))
        self.accepted += new.status is Status.ACCEPTED
        self.consumed.discard(new.sequence)
        self.queued.pop(new.sequence, None)
        if new.status not in (Status.PENDING, Status.ACCEPTED):
            return
        if self._consumed_files.steps(new):
            self.consumed.add(new.sequence)
        if new.status is Status.PENDING or new.sequence not in self.consumed:
            self.queued[new.sequence] = new
