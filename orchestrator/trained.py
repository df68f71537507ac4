"""Which submissions were trained on, by the trainer's reports: matched by file, not by sequence."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from chain.indexer.records import Submission
from orchestrator.tables import ConsumedRow, StepReportRow


@dataclass(frozen=True)
class Trained:
    """`files`: SHA-256 (hex) → steps; `unnamed`: sequence → steps, of files not yet on chain at the report; `newest`:
    the newest step reported, 0 before the first."""

    files: dict[str, list[int]] = field(default_factory=dict)
    unnamed: dict[int, list[int]] = field(default_factory=dict)
    newest: int = 0

    def steps(self, sub: Submission) -> list[int]:
        """The steps that trained on a submission; more than one should not happen."""
        return self.files.get(sub.sha256.hex()) or self.unnamed.get(sub.sequence) or []

    def consumed(self, subs: Iterable[Submission]) -> set[int]:
        """The sequences, as they are now, of those that were trained on."""
        return {sub.sequence for sub in subs if self.steps(sub)}


def store(session: Session, step: int, sequences: Iterable[int], known: dict[int, str]) -> None:
    """Replace the report of one step. `known`: sequence → SHA-256 (hex) as of now. What an earlier report matched is
    kept: a report repeated after a reorganisation still names the sequences from before it."""
    before = dict(
        session.execute(select(ConsumedRow.sequence, ConsumedRow.sha256).where(ConsumedRow.step == step)).all()
    )
    session.execute(delete(ConsumedRow).where(ConsumedRow.step == step))
    session.add_all(
        ConsumedRow(step=step, sequence=sequence, sha256=before.get(sequence) or known.get(sequence, ""))
        for sequence in sequences
    )


def reported(session: Session) -> tuple[object, ...]:
    """Changes with every report."""
    query = select(func.count(), func.max(StepReportRow.reported)).select_from(StepReportRow)
    return tuple(session.execute(query).one())


def load(session: Session) -> Trained:
    """Everything that was reported."""
    out = Trained(newest=session.scalar(select(func.max(StepReportRow.step))) or 0)
    for row in session.scalars(select(ConsumedRow).order_by(ConsumedRow.step)):
        if row.sha256:
            out.files.setdefault(row.sha256, []).append(row.step)
        else:
            out.unnamed.setdefault(row.sequence, []).append(row.step)
    return out
