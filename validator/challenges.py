"""Node challenges: accusing a node by a series of its files.

A node's evidence is recomputed from its decided files in the chain's order (`history_evidence`). A challenge names a
whole run of them: all that were accepted from the first to the last that it names. A challenger who could leave some
out would choose those that prove most, and no bound would hold. Files before the run count as if they had taken all
wealth (`NodeEvidence`: a start weighs less the later it is), so where the run begins is free to choose.

Everything here is pure: a function of the chain, the pool's configuration and verdict documents, which say what a file
pays by the null model of its policy step. A file of a step without one adds nothing.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from chain.indexer.records import ChallengeOutcome, NodeChallenge, Submission, Trial, outcome_for
from protocol.errors import IntegrityError
from protocol.evidence.figures import BETS, FIGURES, FigureEvidence, Nats, engine_titles, engines_of, figures_of
from protocol.evidence.null_model import LIMIT_NATS, EvidenceConfig, NodeEvidence, least
from protocol.seeds import audit_sample
from protocol.verdict import BallotDocument, Code, Verdict, challenge_label, tally
from validator.decide import trial_name

# Gives the verdict documents on a file that count: published ones, or our own.
Documents = Callable[[Submission], Iterable[Verdict]]
# What a run should show beyond the bound: a jury's draw audits other rows, and these show a little more or less.
SPARE_NATS = 2.0


@dataclass(frozen=True)
class DocumentSums:
    """A file as one document saw it, and by which engines."""

    worker: str
    verifier: str
    figures: Mapping[str, FigureEvidence]


@dataclass(frozen=True)
class FileEvidence:
    """What one decided file adds: `nats`, by the documents `seen`; `notes` say why others were not used."""

    submission: Submission
    notes: tuple[str, ...] = ()
    nats: Nats = field(default_factory=dict)
    seen: tuple[DocumentSums, ...] = ()

    @property
    def documents(self) -> int:
        return len(self.seen)

    @property
    def accepted(self) -> bool:
        return Code(self.submission.code).is_accept


def no_evidence(evidence: EvidenceConfig | None) -> str:
    """Return why no node challenge can convict in a pool of this configuration; empty if one can."""
    return "" if evidence else "the pool's configuration has no `evidence`"


def decided(files: Iterable[Submission]) -> Iterator[Submission]:
    """Yield a node's files in order, without void ones, up to the first that is not decided: so no evidence changes
    afterwards."""
    for file in sorted(files, key=lambda submission: submission.sequence):
        if not file.votes_code:
            return
        if Code.VOID not in (file.votes_code, file.code):
            yield file


def file_evidence(file: Submission, documents: Documents) -> FileEvidence:
    """Return what one decided file adds. Only accepted files count: a refused one has cost its node already."""
    if not Code(file.code).is_accept:
        return FileEvidence(file, ("figures of files that were not accepted",))
    nats, notes, seen = list[Nats](), list[str](), list[DocumentSums]()
    for verdict in documents(file):
        try:
            figures = figures_of(verdict)
        except IntegrityError as error:
            notes.append(error.what)
            continue
        paid = {name: figure.nats for name, figure in figures.items() if figure.nats is not None}
        if paid:
            nats.append(paid)
            seen.append(DocumentSums(*engine_titles(verdict), figures))
        elif figures:
            worker, verifier = engines_of(verdict)
            notes.append(f"policy step {file.step} has no null model for files of {worker} verified by {verifier}")
        else:
            notes.append("it holds no figures")
    return FileEvidence(file, tuple(notes), least(nats), tuple(seen))


def history_evidence(
    files: Iterable[Submission], documents: Documents, before: int = 0
) -> tuple[NodeEvidence, tuple[FileEvidence, ...]]:
    """Return the evidence against a node, and what each of its decided files added to it, after `before` others."""
    evidence = NodeEvidence(files=before)
    files_evidence = tuple(file_evidence(file, documents) for file in decided(files))
    for entry in files_evidence:
        evidence.add(entry.nats)
    return evidence, files_evidence


@dataclass(frozen=True)
class ChallengeVerdict:
    """`code`: the vote; `why`: for the log; `evidence`: what the run adds up to, None if nothing was added up."""

    code: Code
    why: str
    evidence: NodeEvidence | None = None
    found: tuple[FileEvidence, ...] = ()


def challenged_run(files: Sequence[Submission], named: Sequence[int]) -> tuple[int, list[Submission]] | None:
    """Return how many decided files of a node come before the first that a challenge names, and those from there to the
    last; None while one up to the last is not decided."""
    known = list(decided(files))
    if not known or known[-1].sequence < named[-1]:
        return None
    before = sum(file.sequence < named[0] for file in known)
    return before, [file for file in known if named[0] <= file.sequence <= named[-1]]


def judge_challenge(
    challenge: NodeChallenge,
    files: Sequence[Submission],
    config: EvidenceConfig | None,
    verdicts: Mapping[int, Verdict],
) -> ChallengeVerdict:
    """Return a juror's vote on a challenge: a reject code, which slashes, only where the juror's own checks refuse a
    file by the rows that were drawn. What files show together ends the membership (DIFFERENT): the node computes
    otherwise than was calibrated, as an honest one may.

    files: all of the node's in the pool. config: how the pool judges a history, None if it does not. verdicts: ours on
    the named files, by the rows that the jury's seed drew.
    """
    if config is None:
        return ChallengeVerdict(Code.ACCEPT, no_evidence(config))
    refused = [name for name in challenge.sequences if verdicts[name].code.is_reject]
    if refused:
        code = verdicts[refused[0]].code
        return ChallengeVerdict(code, f"files {', '.join(map(str, refused))} are refused: {code.label}")
    missing = [name for name in challenge.sequences if verdicts[name].code is Code.UNAVAILABLE]
    if missing:
        return ChallengeVerdict(Code.UNAVAILABLE, f"files {', '.join(map(str, missing))} could not be judged")
    before, run = challenged_run(files, challenge.sequences) or (0, [])
    if not run or any(file.disputed or file.final_time > challenge.time for file in run):
        return ChallengeVerdict(Code.UNAVAILABLE, "a file of its run was not final when it was opened")
    if tuple(file.sequence for file in run if Code(file.code).is_accept) != challenge.sequences:
        return ChallengeVerdict(Code.ACCEPT, "it leaves out files between the first and the last that it names")
    evidence, files_evidence = history_evidence(run, lambda file: [verdicts[file.sequence]], before)
    if evidence.accused:
        why = f"e^{evidence.peak:.1f}: it computes otherwise than was calibrated, above all in {evidence.most}"
        return ChallengeVerdict(Code.DIFFERENT, why, evidence, files_evidence)
    blind = [name for name in challenge.sequences if config.own_engine and len({*engines_of(verdicts[name])}) > 1]
    if blind:
        listed = ", ".join(map(str, blind))
        why = f"e^{evidence.peak:.1f} by another engine than made files {listed}, which clears nobody"
        return ChallengeVerdict(Code.UNAVAILABLE, why, evidence, files_evidence)
    return ChallengeVerdict(Code.ACCEPT, f"e^{evidence.peak:.1f}: nothing shown", evidence, files_evidence)


def challengeable(files: Sequence[Submission], now: int, first: int, last: int) -> list[Submission]:
    """Return a node's accepted files from number `first` to `last` that a challenge can name at chain time `now`, up to
    the first file that is not final."""
    submissions: list[Submission] = []
    for file in decided(files):
        if file.disputed or file.final_time > now:
            break
        if first <= file.sequence <= last and Code(file.code).is_accept:
            submissions.append(file)
    return submissions


@dataclass(frozen=True)
class ProvenRun:
    """A run that a challenge can name: its first and last file, how many accepted ones, and what these add up to."""

    first: int
    last: int
    files: int
    nats: float


def shortest_run(files: Sequence[FileEvidence], most: int, spare: float = SPARE_NATS) -> ProvenRun | None:
    """Return the run that a challenge should name, which passes the bound by `spare` nats with the fewest accepted
    files, at most `most`; of several the newest, whose bytes are the likeliest to be there. None without one. `files`:
    all decided files of the node in order."""
    best: tuple[int, int, int] | None = None  # accepted files, minus the first's index, the last's index
    # All runs that end with the newest file, side by side, as NodeEvidence would add up each: the index of its first
    # file, its accepted files, its peak, and its wealth. What begins with file k weighs the same in each of them.
    bets = len(FIGURES) * BETS
    first, accepted, peak, wealth = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros((0, bets))
    for index, file in enumerate(files):
        if file.accepted:  # a run begins with a file that it names
            first, accepted, peak = np.append(first, index), np.append(accepted, 0) + 1, np.append(peak, 0.0)
            wealth = np.vstack([wealth, np.full(bets, -math.inf)])
        number = index + 1
        paid = np.concatenate([file.nats.get(name, (0.0,) * BETS) for name in FIGURES])
        wealth = np.logaddexp(wealth, -math.log(number * (number + 1))) + paid
        total = np.logaddexp.reduce(np.logaddexp(wealth, -math.log(number + 1)), axis=1)
        peak = np.maximum(peak, total - math.log(bets))
        open_runs = accepted <= (most if best is None else min(most, best[0]))
        if file.accepted:  # and ends with one
            proven = open_runs & (peak >= LIMIT_NATS + spare)
            for count, start in zip(accepted[proven].tolist(), first[proven].tolist(), strict=True):
                best = min(best or (count, -start, index), (count, -start, index))
            open_runs &= ~proven
        first, accepted, peak, wealth = first[open_runs], accepted[open_runs], peak[open_runs], wealth[open_runs]
    if best is None:
        return None
    count, start, last = best[0], -best[1], best[2]
    evidence = NodeEvidence(files=start)
    for file in files[start : last + 1]:
        evidence.add(file.nats)
    return ProvenRun(files[start].submission.sequence, files[last].submission.sequence, count, evidence.peak)


@dataclass(frozen=True)
class ChallengeRecord:
    """What the chain and the pool say of a challenge, for replaying it: all `files` of the node in the pool, those that
    the challenge `named`, by number, and its newest jury."""

    challenge: NodeChallenge
    files: Sequence[Submission]
    named: Mapping[int, Submission]
    trial: Trial
    evidence: EvidenceConfig | None
    audit_rate: int  # in 1/65536
    config_hash: bytes

    def rows(self, sequence: int) -> list[int]:
        """Return the rows of a named file that the jury's seed drew."""
        if not self.trial.drawn:
            return []
        return audit_sample(self.trial.seed, sequence, self.named[sequence].rows, self.audit_rate)


@dataclass(frozen=True)
class JurorReplay:
    """A juror's opened vote. `judged`: what the document behind it adds up to, None where `note` says why not; `fault`:
    what is wrong with them, if anything."""

    seat: int
    code: Code
    judged: ChallengeVerdict | None = None
    note: str = ""
    fault: str = ""


def juror_replay(record: ChallengeRecord, member: int, document: bytes) -> JurorReplay:
    """Compare the opened vote of juror `member` with the document that it was bound to."""
    code, digest = record.trial.reveals[member]
    seat, vote = record.trial.seats[member], Code(code)
    try:
        verdicts = _verdicts(record, BallotDocument.parse(document, digest))
    except IntegrityError as error:
        return JurorReplay(seat, vote, fault=error.what)
    judged = judge_challenge(record.challenge, record.files, record.evidence, verdicts)
    if judged.code == vote:
        return JurorReplay(seat, vote, judged)
    voted, says = challenge_label(vote), challenge_label(judged.code)
    differs = f"it voted {voted}, but its verdict document adds up to {says} ({judged.why})"
    # Nobody is fined for `unavailable` here: a juror that did not get the pool's configuration in time owes that vote.
    noted = vote is Code.UNAVAILABLE
    return JurorReplay(seat, vote, judged, differs if noted else "", "" if noted else differs)


def faults_of(record: ChallengeRecord) -> Iterator[str]:
    """Yield why a challenge on chain cannot be right: rows that were known when it was opened, an outcome that does not
    follow from the votes."""
    challenge, trial = record.challenge, record.trial
    if trial.seed_block <= challenge.block:
        yield f"jury {trial.trial} was drawn by block {trial.seed_block}, known when the challenge was opened"
    code = majority(trial)
    follows = code == challenge.code and outcome_for(code) is challenge.outcome
    if challenge.outcome is not ChallengeOutcome.OPEN and not follows:
        votes = f"the votes come to {challenge_label(code)}: {outcome_for(code).name.lower()}"
        says = challenge_label(Code(challenge.code))
        yield f"{votes}; the chain says {says}: {challenge.outcome.name.lower()}"


def majority(trial: Trial) -> Code:
    """Return what the opened votes of a jury come to; NONE without a majority."""
    code = tally([Code(vote) for vote, _ in trial.reveals.values()], trial.size)
    return Code.NONE if code is Code.UNDECIDED else code


def contradicts(record: ChallengeRecord, ours: ChallengeVerdict) -> str:
    """Return why our own verdict and the outcome on chain cannot both be right; empty if they can."""
    outcome, should = record.challenge.outcome, outcome_for(ours.code)
    decided = {ChallengeOutcome.UPHELD, ChallengeOutcome.DIFFERENT, ChallengeOutcome.REFUTED}
    if outcome not in decided or ours.code is Code.UNAVAILABLE or should is outcome:
        return ""
    return f"it was {outcome.name.lower()}, and by our own verdict should be {should.name.lower()}: {ours.why}"


def _verdicts(record: ChallengeRecord, document: BallotDocument) -> dict[int, Verdict]:
    """Return the verdicts of a juror's document. Raises IntegrityError unless they are of this jury, these files and
    the rows that were drawn."""
    trial = record.trial
    if (document.where, document.seed) != (trial_name(trial), trial.seed.hex()):
        raise IntegrityError(f"its verdict document is not of jury {trial.trial}", "ask its voter")
    by_sequence = {sequence: document.on(sequence) for sequence in record.challenge.sequences}
    for sequence, verdict in by_sequence.items():
        about = verdict.pool, verdict.node, verdict.sha256, verdict.lane_seed, verdict.config_hash
        sha256 = record.named[sequence].sha256.hex()
        if about != (record.challenge.pool, record.challenge.node, sha256, trial.seed.hex(), record.config_hash.hex()):
            raise IntegrityError(f"its verdict on file {sequence} concerns another file, draw or pool", "ask its voter")
        # A file that is refused before the model's pass, or that nobody has, has no rows that anybody looked at.
        missed = set(record.rows(sequence)) - set(verdict.audited)
        if verdict.code.is_accept and missed:
            raise IntegrityError(f"it did not measure row {min(missed)} of file {sequence}, which was drawn", "")
    return by_sequence
