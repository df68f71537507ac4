"""What a juror says of a node case: a pure function of the chain, the pool's law and its own verdicts on the files that
the case names.

A case stands on a whole run of a node's files: all that were accepted from the first to the last that it names. Who
could leave some out would choose those that prove most, and no bound would hold. Files before the run count as if they
had taken all wealth (`NodeCase`: a start weighs less the later it is), so where the run begins is free to choose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chain.indexer.records import Accusation, Submission
from protocol.evidence.process import DELIVERIES, NodeCase
from protocol.verdict import Code, Verdict
from validator.node_evidence import FileEvidence, Law, decided, evidence_of

_SAMPLING = ("misses", "unexplained", "gaps", "steering", "surprise", "dullness")


@dataclass(frozen=True)
class CaseRun:
    """The node's decided files from the first to the last that a case names, and how many there are before."""

    before: int
    files: tuple[Submission, ...]


@dataclass(frozen=True)
class CaseVerdict:
    """`code`: the vote; `case`: what the run adds up to, None where nothing was added up; `why`: for the log."""

    code: Code
    why: str
    case: NodeCase | None = None
    found: tuple[FileEvidence, ...] = ()


def run_of(files: Sequence[Submission], named: Sequence[int]) -> CaseRun | None:
    """The run between two of a node's files; None while a file up to its end is not decided."""
    known = list(decided(files))
    if not known or known[-1].sequence < named[-1]:
        return None
    before = sum(file.sequence < named[0] for file in known)
    return CaseRun(before, tuple(file for file in known if named[0] <= file.sequence <= named[-1]))


def run_case(run: CaseRun, law: Law, verdicts: Mapping[int, Verdict]) -> tuple[NodeCase, tuple[FileEvidence, ...]]:
    """The evidence of a run, by verdicts on its accepted files (sequence → verdict)."""
    case = NodeCase(files=run.before)
    found = tuple(
        evidence_of(file, law, lambda one: [verdicts[one.sequence]] if one.sequence in verdicts else [])
        for file in run.files
    )
    for one in found:
        case.add(one.nats)
    return case, found


def judge_case(
    case: Accusation, files: Sequence[Submission], law: Law | None, verdicts: Mapping[int, Verdict]
) -> CaseVerdict:
    """The vote on a case: `files` are all of the node's in the pool, `law` the pool's (None: it names none that holds
    for its terms), `verdicts` ours on the named files, by the rows that the jury's seed drew."""
    if law is None:
        return CaseVerdict(Code.ACCEPT, "the pool names no law of evidence")
    missing = [name for name in case.sequences if verdicts[name].code is Code.UNAVAILABLE]
    if missing:
        return CaseVerdict(Code.UNAVAILABLE, f"files {', '.join(map(str, missing))} could not be judged")
    run = run_of(files, case.sequences)
    if run is None or any(file.disputed or file.final_time > case.time for file in run.files):
        return CaseVerdict(Code.UNAVAILABLE, "a file of its run was not final when it was opened")
    if tuple(file.sequence for file in run.files if Code(file.code).is_accept) != case.sequences:
        return CaseVerdict(Code.ACCEPT, "it leaves out files between the first and the last that it names")
    summed, found = run_case(run, law, verdicts)
    blind = [name for name in case.sequences if not law.clears(verdicts[name])]
    if not summed.accused and blind:
        listed = ", ".join(map(str, blind))
        why = f"e^{summed.peak:.1f} by another engine than made files {listed}, which clears nobody"
        return CaseVerdict(Code.UNAVAILABLE, why, summed, found)
    if not summed.accused:
        return CaseVerdict(Code.ACCEPT, f"e^{summed.peak:.1f}: nothing shown", summed, found)
    return CaseVerdict(_reason(summed), f"e^{summed.peak:.1f}: no honest node's", summed, found)


def _reason(case: NodeCase) -> Code:
    """The reject code that names what most of the evidence is."""
    most = max(case.wealth, key=case.nats)
    if most == DELIVERIES:
        return Code.REJECT_ASSIGNMENT
    return Code.REJECT_SAMPLING if most in _SAMPLING else Code.REJECT_WEIGHTS


def nameable(files: Sequence[Submission], now: int, first: int, last: int) -> list[Submission]:
    """The accepted files of a node from one number to another that a case can name at chain time `now`: up to the first
    that is not final, behind which no run may go."""
    found: list[Submission] = []
    for file in decided(files):
        if file.disputed or file.final_time > now:
            break
        if first <= file.sequence <= last and Code(file.code).is_accept:
            found.append(file)
    return found
