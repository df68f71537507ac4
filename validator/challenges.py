"""The case of one node, recomputed: its files in the chain's order, and what each pays the bets of its pool's law."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from chain.contracts.node_cases import MOST_FILES
from chain.judging import Accusation, CaseOutcome, Trial
from chain.records import Account, Submission, Terms
from protocol.audit import audit_sample
from protocol.config import PoolConfig
from protocol.errors import IntegrityError
from protocol.evidence.figures import blocks_in, engine_labels, engines_of, rows_of
from protocol.evidence.null_model import (
    ACCUMULATORS,
    ALL,
    BETS,
    BLOCK_ACCUMULATORS,
    DELIVERIES,
    LIMIT_NATS,
    NAMES,
    NodeCase,
    PairLaw,
    Sum,
    block_sums,
    delivery_nats,
    file_sums,
    least,
)
from protocol.seeds import jury_seed
from protocol.verdict import BallotDocument, Code, Verdict, tally
from validator.rounds import trial_place

Nats = Mapping[str, tuple[float, ...]]
Documents = Callable[[Submission], Iterable[Verdict]]
"""The verdict documents on a file that are to be believed, or our own verdict on it."""


@dataclass(frozen=True)
class Seen:
    """A file as one document saw it: engines with their versions, the same as the law's keys, and the sums of every
    accumulator over the file."""

    worker: str
    verifier: str
    engines: tuple[str, str]
    sums: Mapping[str, Sum]


@dataclass(frozen=True)
class FileEvidence:
    """What one file adds. `documents`: how many were used; `notes`: why others were not; `nats`: what it pays; `seen`:
    the used documents."""

    submission: Submission
    documents: int
    notes: tuple[str, ...]
    nats: dict[str, tuple[float, ...]]
    seen: tuple[Seen, ...] = ()


@dataclass
class Law:
    """The laws of a pool's pairs of engines; `samples` are those of a problem. `own_engine`: only who measures with the
    worker's own engine clears it."""

    pairs: Sequence[PairLaw]
    samples: int
    own_engine: bool = False
    _by_engines: dict[tuple[str, str], PairLaw] = field(init=False)

    def __post_init__(self) -> None:
        self._by_engines = {(one.worker, one.verifier): one for one in self.pairs}

    def nats(self, verdict: Verdict) -> Nats:
        """What a file pays by one document. Raises IntegrityError where the document says nothing that counts."""
        rows, engines = rows_of(verdict), engines_of(verdict)
        if not rows:
            raise IntegrityError("it holds no figures of rows", "its voter runs an older program, or refused the file")
        if engines not in self._by_engines:
            raise IntegrityError(f"no law for files of {engines[0]} seen by {engines[1]}", "calibrate that pair")
        blocks = blocks_in(verdict)
        own = None if blocks is None else block_sums(blocks)
        return self._by_engines[engines].nats(file_sums(rows, self.samples), own)

    def clears(self, verdict: Verdict) -> bool:
        """Whether a document on an accepted file that shows nothing says that there is nothing."""
        worker, verifier = engines_of(verdict)
        return not self.own_engine or worker == verifier

    def seen(self, verdict: Verdict) -> Seen:
        """A document that counts, in sums over its file."""
        problems, blocks = file_sums(rows_of(verdict), self.samples), block_sums(blocks_in(verdict) or ())
        sums = {
            name: Sum(math.fsum(one[name].total for one in units), math.fsum(one[name].count for one in units))
            for names, units in ((ACCUMULATORS, problems), (BLOCK_ACCUMULATORS, blocks))
            for name in names
        }
        return Seen(*engine_labels(verdict), engines_of(verdict), sums)

    def rates(self, seen: Seen) -> dict[str, float]:
        """The least rate of each accumulator that a bet against such a document takes for honest."""
        bets = self._by_engines[seen.engines].bets
        made = {name: [bet.rate for bet in bets[name] if bet.tilt] for name in ALL if name in bets}
        return {name: min(rates) for name, rates in made.items() if rates}


def law_of(config: PoolConfig, terms: Terms) -> Law | None:
    """The law that a pool's configuration names; None if it names none, or one of another audit rate than its terms."""
    if config.evidence is None or config.evidence.audit_rate != terms.auditRate:
        return None
    return Law(config.evidence.laws, config.work.samples_per_problem, config.evidence.own_engine)


def lawless(config: PoolConfig, audit_rate: int) -> str:
    """Why no node case can convict anybody in a pool of this configuration, whose terms have this audit rate (of
    65536); empty where one can."""
    if config.evidence is None:
        return "the pool's configuration names no law of evidence"
    if config.evidence.audit_rate != audit_rate:
        return f"the pool names a law of audit rate {config.evidence.audit_rate}, and its terms {audit_rate}"
    return ""


def decided(files: Iterable[Submission]) -> Iterator[Submission]:
    """A node's files in order, up to the first that is not decided: what follows waits for it, so that the case never
    changes afterwards. Void ones are nobody's doing and are left out."""
    for file in sorted(files, key=lambda one: one.sequence):
        if not file.votes_code and file.code != Code.LATE:
            return
        if Code.VOID not in (file.votes_code, file.code):
            yield file


def evidence_of(file: Submission, law: Law, documents: Documents) -> FileEvidence:
    """What one decided file adds: by its figures only if it was accepted, for what a refused one costs its node has
    paid; by whether it was handed in, whatever became of it."""
    delivered, counts = file.code != Code.LATE, Code(file.code).is_accept
    nats: dict[str, tuple[float, ...]] = {DELIVERIES: delivery_nats(delivered)}
    said: list[Nats] = []
    notes: list[str] = [] if counts or not delivered else ["figures of files that were not accepted"]
    seen: list[Seen] = []
    for verdict in documents(file) if counts else ():
        try:
            said.append(law.nats(verdict))
            seen.append(law.seen(verdict))
        except IntegrityError as error:
            notes.append(error.what)
    return FileEvidence(file, len(said), tuple(notes), nats | least(said), tuple(seen))


def node_case(files: Iterable[Submission], law: Law, documents: Documents) -> tuple[NodeCase, list[FileEvidence]]:
    """The case of a node and what each of its decided files added to it."""
    case = NodeCase()
    found = [evidence_of(file, law, documents) for file in decided(files)]
    for one in found:
        case.add(one.nats)
    return case, found


# ~ What a juror says of a node case: a pure function of the chain, the pool's law and its own verdicts on the files that
# ~ the case names.
# ~
# ~ A case stands on a whole run of a node's files: all that were accepted from the first to the last that it names. Who
# ~ could leave some out would choose those that prove most, and no bound would hold. Files before the run count as if they
# ~ had taken all wealth (`NodeCase`: a start weighs less the later it is), so where the run begins is free to choose.


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


# ~ What a node case should name: of a node's files the shortest run that is no honest node's. Pure.


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
    best: tuple[int, int, int] | None = None  # accepted files, minus the first's place, the last's place
    runs = _OpenRuns()
    for place, one in enumerate(found):
        ends = _accepted(one)
        runs.add(place, one, ends)
        runs.keep(runs.files <= (most if best is None else min(most, best[0])))
        # A case ends with a file that it names; others in a run only add what is known of their delivery.
        if ends:
            passed = runs.peak >= LIMIT_NATS + spare
            shown = zip(runs.files[passed].tolist(), (-runs.first[passed]).tolist(), strict=True)
            ended = [(files, first, place) for files, first in shown]
            best = min(ended if best is None else [best, *ended], default=None)
            runs.keep(~passed)
    return None if best is None else _run(found, -best[1], best[2], best[0])


class _OpenRuns:
    """All runs that end with the last file added, side by side: one NodeCase for each file that may begin one. What
    begins with a file of number k weighs the same in each of them."""

    def __init__(self) -> None:
        self.first = np.zeros(0, np.int64)
        self.files = np.zeros(0, np.int64)
        self.peak = np.zeros(0)
        self._wealth = np.zeros((0, len(NAMES) * BETS))

    def add(self, place: int, one: FileEvidence, accepted: bool) -> None:
        """Settle the file at a place of the node's life in every run; if it was accepted, it begins one too."""
        if accepted:
            self.first = np.append(self.first, place)
            self.files = np.append(self.files, 0) + 1
            self.peak = np.append(self.peak, 0.0)
            self._wealth = np.vstack([self._wealth, np.full(len(NAMES) * BETS, -math.inf)])
        number = place + 1
        paid = np.concatenate([one.nats.get(name, (0.0,) * BETS) for name in NAMES])
        self._wealth = np.logaddexp(self._wealth, -math.log(number * (number + 1))) + paid
        total = np.logaddexp.reduce(np.logaddexp(self._wealth, -math.log(number + 1)), axis=1)
        self.peak = np.maximum(self.peak, total - math.log(len(NAMES) * BETS))

    def keep(self, which: NDArray[np.bool_]) -> None:
        """Drop all other runs."""
        self.first, self.files, self.peak = self.first[which], self.files[which], self.peak[which]
        self._wealth = self._wealth[which]


def _run(found: Sequence[FileEvidence], first: int, last: int, files: int) -> NameableRun:
    case = NodeCase(files=first)
    for one in found[first : last + 1]:
        case.add(one.nats)
    return NameableRun(found[first].submission.sequence, found[last].submission.sequence, files, case.peak)


def _accepted(one: FileEvidence) -> bool:
    return Code(one.submission.code).is_accept


# ~ A node case, recomputed: what its jury should have said, what each juror's published document adds up to, and whether
# ~ the outcome on chain follows from the votes. Pure.


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
