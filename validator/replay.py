"""Replay: judge decided submissions again from public data alone, and say where the result differs."""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

from chain.indexer.records import Round, Submission
from chain.indexer.state import State
from engines.base import Engine
from protocol.errors import IntegrityError, MusterError
from protocol.evidence.figures import CHECK
from protocol.verdict import BallotDocument, Code, Measurement, Verdict
from runtime.pool_client import PoolClient
from runtime.process import ProcessConfig
from validator.decide import committee_seed, deciding_round, submission_facts
from validator.judging.pipeline import FileJudge, LoadedEngine, OtherEngines
from validator.judging.sources import Sources

_DOCUMENT_BYTES = 4 << 20
log = logging.getLogger("muster.replay")


@dataclass(frozen=True)
class Opened:
    """A member's opened vote, and the document that it was bound to by `digest`, unchecked; None if nobody has it."""

    seat: int
    code: Code
    digest: bytes
    document: bytes | None


@dataclass(frozen=True)
class Replayed:
    """The committee's outcome (`voted`) and its members' `opened` votes, beside our own verdict."""

    submission: Submission
    voted: Code
    opened: tuple[Opened, ...]
    verdict: Verdict

    @property
    def agrees(self) -> bool:
        return alike(self.verdict.code, self.voted)


def alike(one: Code, other: Code) -> bool:
    """Whether two codes have the same consequence: accept and unsure both pay."""
    return one == other or (one.is_accept and other.is_accept)


def replay(config: ProcessConfig, sequences: Sequence[int] = ()) -> Iterator[Replayed]:
    """Judge the given submissions of the pool (all decided ones without any) as the committee's members did. Raises
    MusterError where chain, files or weights are out of reach, or a named submission is unknown or undecided."""
    pool_client = PoolClient(config, None)
    try:
        state = pool_client.refresh()
        unjudged = (Code.NONE, Code.VOID)
        decided = {f.sequence: f for f in state.submissions_of(config.pool) if f.votes_code not in unjudged}
        if unknown := set(sequences) - decided.keys():
            what = f"submission {min(unknown)} of pool {config.pool} is unknown or not decided"
            raise MusterError(what, "see muster pool status")
        replayer = Replayer(pool_client, config.engine.make())
        # By steps, so that each step's weights are loaded once.
        for file in sorted((decided[n] for n in set(sequences or decided)), key=lambda f: (f.step, f.sequence)):
            yield replayer.replay(state, file)
    finally:
        pool_client.close()


class OpenedVotes:
    """Fetches what validators voted and published."""

    def __init__(self, sources: Sources) -> None:
        self._document = lru_cache(maxsize=64)(partial(sources.fetch, "verdicts", limit=_DOCUMENT_BYTES))

    def of(self, file: Submission, decided: Round) -> Iterator[Opened]:
        """Yield the opened votes of the deciding round, with the documents behind them."""
        for member, (_, digest) in sorted(decided.reveals.items()):
            code = Code(decided.code_at(file.place, member))
            yield Opened(decided.seats[member], code, digest, self._document(digest))

    def verdicts(self, state: State, file: Submission) -> Iterator[Verdict]:
        """Yield the published verdicts on a file, without those that are not what was voted with."""
        for opened in self.of(file, deciding_round(state, file)):
            try:
                if opened.document is not None:
                    yield BallotDocument.parse(opened.document, opened.digest).on(file.sequence)
            except IntegrityError as error:
                log.info("seat %d on file %d: %s", opened.seat, file.sequence, error.what)


class Replayer:
    """Judges as a validator does; as jurors of node challenges do if it is given the other engines of this machine."""

    def __init__(self, pool_client: PoolClient, engine: Engine, others: OtherEngines | None = None) -> None:
        self._pool_client = pool_client
        self.sources = Sources(pool_client.objects, announced_seconds=60.0)
        loaded = LoadedEngine(engine, others)
        self._judge = FileJudge(pool_client.pool_config(), loaded, self.sources, pool_client.weights)
        self._as_worker = others is not None
        self._votes = OpenedVotes(self.sources)

    def replay(self, state: State, file: Submission) -> Replayed:
        """Judge one submission as the members of its deciding round did."""
        opened = tuple(self._votes.of(file, deciding_round(state, file)))
        return Replayed(file, Code(file.votes_code), opened, self.verdict(state, file))

    def verdict(self, state: State, file: Submission, audit_seed: bytes = b"") -> Verdict:
        """Return our own verdict on a decided submission, by the rows that `audit_seed` draws, or its committee's."""
        pool, client = state.pools[file.pool], self._pool_client
        step_seed = client.seed(pool.steps[file.step])
        if step_seed is None:
            raise MusterError(f"the seed of step {file.step} is not confirmed", "try again in a few blocks")
        audit_seed = audit_seed or committee_seed(state, file)
        facts = submission_facts(client.pool_id, pool, file, step_seed, audit_seed)
        return self._judge.verdict(facts, state.mirrors_of(file), as_worker=self._as_worker)


# --- Where two verdicts differ


CODE = "code"


@dataclass(frozen=True)
class Difference:
    """`measurement` is the name of one, or "code"; None stands for what one of the two verdicts lacks."""

    check: str
    measurement: str
    theirs: Measurement | None
    ours: Measurement | None

    @property
    def size(self) -> float | None:
        """The distance of two numbers, None for anything else. A stranger's may be larger than any float."""
        if isinstance(self.theirs, int | float) and isinstance(self.ours, int | float):
            with suppress(OverflowError):
                return abs(float(self.theirs) - float(self.ours))
        return None

    def __str__(self) -> str:
        return f"{self.check}.{self.measurement} {_shown(self.theirs)} against our {_shown(self.ours)}"


def differences(theirs: Verdict, ours: Verdict) -> list[Difference]:
    """Return where two verdicts differ: codes of checks first, then measurements, not the figures of single rows."""
    left, right = ({finding.check: finding for finding in verdict.findings} for verdict in (theirs, ours))
    codes, measurements = list[Difference](), list[Difference]()
    for check in {**left, **right}:
        pair = left.get(check), right.get(check)
        a, b = (finding.code.label if finding else None for finding in pair)
        if a != b:
            codes.append(Difference(check, CODE, a, b))
        if check != CHECK:
            of_a, of_b = (finding.measurements if finding else {} for finding in pair)
            for name in {**of_a, **of_b}:
                if of_a.get(name) != of_b.get(name):
                    measurements.append(Difference(check, name, of_a.get(name), of_b.get(name)))
    return codes + measurements


def largest(differences: Iterable[Difference]) -> dict[str, float]:
    """Return the largest distance of every measurement, as "check.measurement"."""
    out: dict[str, float] = {}
    for difference in differences:
        if difference.size is not None and math.isfinite(difference.size):
            name = f"{difference.check}.{difference.measurement}"
            out[name] = max(out.get(name, 0.0), difference.size)
    return dict(sorted(out.items()))


def _shown(value: Measurement | None) -> str:
    if value is None:
        return "nothing"
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:60]
