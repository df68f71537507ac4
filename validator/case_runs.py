"""What a node case should name: of a node's files the shortest run that is no honest node's. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.evidence.process import LIMIT_NATS, NodeCase
from protocol.verdict import Code
from validator.node_evidence import FileEvidence

SPARE_NATS = 2.0
"""Beyond the bound: a jury's draw names other rows, and these show a little more or less."""


@dataclass(frozen=True)
class NameableRun:
    """The numbers of its first and last file; how many accepted `files` it has, which a case names; `nats`: what they
    add up to."""

    first: int
    last: int
    files: int
    nats: float


def shortest_run(found: Sequence[FileEvidence], most: int, spare: float = SPARE_NATS) -> NameableRun | None:
    """The run of at most `most` accepted files that passes the bound by `spare` nats with the fewest of them, and of
    such the newest, whose bytes are the likeliest to be there; None without one. `found`: all decided files of the node
    in order, from its first."""
    best: NameableRun | None = None
    for start in reversed(range(len(found))):
        if _accepted(found[start]):
            best = _from(found, start, most if best is None else best.files - 1, spare) or best
    return best


def _from(found: Sequence[FileEvidence], start: int, most: int, spare: float) -> NameableRun | None:
    """The shortest run that begins with a file and has at most `most` accepted ones."""
    case, files = NodeCase(files=start), 0
    for one in found[start:]:
        files += _accepted(one)
        if files > most:
            break
        case.add(one.nats)
        # A case ends with a file that it names; others in a run only add what is known of their delivery.
        if _accepted(one) and case.peak >= LIMIT_NATS + spare:
            return NameableRun(found[start].submission.sequence, one.submission.sequence, files, case.peak)
    return None


def _accepted(one: FileEvidence) -> bool:
    return Code(one.submission.code).is_accept
