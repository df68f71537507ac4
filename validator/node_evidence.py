"""The case of one node, recomputed: its files in the chain's order, and what each pays the bets of its pool's law."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chain.indexer.records import Submission, Terms
from protocol.config import PoolConfig
from protocol.errors import IntegrityError
from protocol.evidence.figures import blocks_in, engine_labels, engines_of, rows_of
from protocol.evidence.law import PairLaw, least
from protocol.evidence.process import DELIVERIES, NodeCase, delivery_nats
from protocol.evidence.sums import ACCUMULATORS, ALL, BLOCK_ACCUMULATORS, Sum, block_sums, file_sums
from protocol.verdict import Code, Verdict

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
