"""A node case, recomputed: what its jury should have said, what each juror's published document adds up to, and whether
the outcome on chain follows from the votes. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chain.contracts import MOST_FILES
from chain.indexer.records import Account, Accusation, CaseOutcome, Submission, Trial
from protocol.errors import IntegrityError
from protocol.seeds import audit_sample, jury_seed
from protocol.verdict import BallotDocument, Code, Verdict, tally
from validator.case_verdict import CaseVerdict, judge_case
from validator.node_evidence import Law
from validator.selectors import trial_place


@dataclass(frozen=True)
class CaseRecord:
    """What the chain and the pool say of a case. `files`: all of the accused node in the pool; `named`: those whose
    numbers the case names, None for a number that no file has; `trials`: its juries in order; `account`: the node's;
    `law`: the pool's, None if it names none that holds for its terms; `audit_rate` in 1/65536."""

    case: Accusation
    files: Sequence[Submission]
    named: Mapping[int, Submission | None]
    trials: Sequence[Trial]
    account: Account | None
    law: Law | None
    audit_rate: int
    config_hash: bytes

    @property
    def trial(self) -> Trial:
        """The jury that decides."""
        return self.trials[-1]

    def rows(self, sequence: int) -> list[int]:
        """The rows of a named file that the jury's seed drew."""
        file = self.named[sequence]
        if file is None or not self.trial.drawn:
            return []
        return audit_sample(self.trial.seed, sequence, file.rows, self.audit_rate)


@dataclass(frozen=True)
class JurorReplay:
    """A juror's opened vote. `judged`: what the document behind it adds up to, None where that cannot be said and
    `note` says why; `fault`: what is wrong with vote or document, empty if nothing is."""

    seat: int
    code: Code
    judged: CaseVerdict | None = None
    note: str = ""
    fault: str = ""


def juror_replay(record: CaseRecord, member: int, document: bytes) -> JurorReplay:
    """The opened vote of juror `member` against the document that it was bound to."""
    code, digest = record.trial.reveals[member]
    seat, vote = record.trial.seats[member], Code(code)
    try:
        verdicts = _verdicts(record, BallotDocument.parse(document, digest))
    except IntegrityError as error:
        return JurorReplay(seat, vote, fault=error.what)
    judged = judge_case(record.case, record.files, record.law, verdicts)
    if judged.code == vote:
        return JurorReplay(seat, vote, judged)
    said = f"it voted {vote.label}, but its verdict document adds up to {judged.code.label} ({judged.why})"
    # Nobody loses by this answer, and who did not have the pool's law in time owes it.
    if vote is Code.UNAVAILABLE:
        return JurorReplay(seat, vote, judged, note=said)
    return JurorReplay(seat, vote, judged, fault=said)


def faults_of(record: CaseRecord, seed_block_hash: bytes | None) -> list[str]:
    """What of a case on chain is not as the contracts make it: files that no case may name, rows that could be known
    when it was opened, an outcome that does not follow from the votes. `seed_block_hash`: that of the block which drew
    the jury, None where nobody has it any more."""
    found = _faults_of_files(record)
    for trial in record.trials:
        if trial.seed_block <= record.case.block:
            found.append(f"jury {trial.trial} was drawn by block {trial.seed_block}, known when the case was opened")
    trial = record.trial
    if trial.drawn and seed_block_hash is not None and trial.seed != jury_seed(seed_block_hash, trial.trial):
        found.append(f"the seed of jury {trial.trial} does not follow from block {trial.seed_block}")
    if record.case.outcome is not CaseOutcome.OPEN:
        found += _faults_of_outcome(record)
    return found


def majority(trial: Trial) -> Code:
    """What the opened votes of a jury come to; NONE without a majority."""
    code = tally([Code(vote) for vote, _ in trial.reveals.values()], trial.size)
    return Code.NONE if code is Code.UNDECIDED else code


def outcome_for(code: Code) -> CaseOutcome:
    """How a case ends by its jury's majority (`NodeCases._outcome`)."""
    if code is Code.NONE:
        return CaseOutcome.LAPSED
    if code is Code.UNAVAILABLE:
        return CaseOutcome.DISMISSED
    return CaseOutcome.UPHELD if code.is_reject else CaseOutcome.REFUTED


def contradicts(record: CaseRecord, ours: CaseVerdict) -> str:
    """Why our own verdict and the outcome on chain cannot both be right; empty where they can, as where the jury could
    not tell."""
    outcome = record.case.outcome
    if outcome not in (CaseOutcome.UPHELD, CaseOutcome.REFUTED) or ours.code is Code.UNAVAILABLE:
        return ""
    should = outcome_for(ours.code)
    if should is outcome:
        return ""
    return f"it was {outcome.name.lower()}, and by our own verdict should be {should.name.lower()}: {ours.why}"


def _faults_of_files(record: CaseRecord) -> list[str]:
    case, found = record.case, []
    if not 1 <= len(case.sequences) <= MOST_FILES or list(case.sequences) != sorted(set(case.sequences)):
        found.append(f"it names {len(case.sequences)} files, not 1 to {MOST_FILES} in ascending order")
    for sequence, file in record.named.items():
        if file is None:
            found.append(f"file {sequence} is not on chain")
        elif file.node != case.node:
            found.append(f"file {sequence} is not the accused node's, but {file.node}'s")
        elif not Code(file.code).is_accept:
            found.append(f"file {sequence} was not accepted")
    return found


def _faults_of_outcome(record: CaseRecord) -> list[str]:
    """Every jury but the last had no majority; the last one's votes give the outcome, and this its consequence."""
    case, found = record.case, []
    for trial in record.trials[:-1]:
        if (code := majority(trial)) is not Code.NONE:
            found.append(f"jury {trial.trial} was replaced, though its votes come to {code.label}")
    code = majority(record.trial)
    if code != case.code or outcome_for(code) is not case.outcome:
        votes = f"the votes come to {code.label}: {outcome_for(code).name.lower()}"
        found.append(f"{votes}; the chain says {Code(case.code).label}: {case.outcome.name.lower()}")
    if case.outcome is CaseOutcome.UPHELD and not (record.account and record.account.ejected):
        found.append("it was upheld, and the node was not ejected")
    return found


def _verdicts(record: CaseRecord, document: BallotDocument) -> dict[int, Verdict]:
    """The verdicts of a juror's document on the named files. Raises IntegrityError unless they are of this jury, these
    files and the rows that were drawn."""
    trial = record.trial
    if (document.where, document.seed) != (trial_place(trial), trial.seed.hex()):
        raise IntegrityError(f"its verdict document is not of jury {trial.trial}", "ask its voter")
    found = {sequence: document.on(sequence) for sequence in record.case.sequences}
    for sequence, verdict in found.items():
        file = record.named[sequence]
        about = verdict.pool, verdict.node, verdict.sha256, verdict.lane_seed, verdict.config_hash
        sha256 = file.sha256.hex() if file else ""
        if about != (record.case.pool, record.case.node, sha256, trial.seed.hex(), record.config_hash.hex()):
            raise IntegrityError(f"its verdict on file {sequence} is of another file, draw or pool", "ask its voter")
        # A file that is refused before the model's pass, or that nobody has, has no rows that anybody looked at.
        missed = set(record.rows(sequence)) - set(verdict.audited)
        if verdict.code.is_accept and missed:
            raise IntegrityError(f"it did not measure row {min(missed)} of file {sequence}, which was drawn", "")
    return found
