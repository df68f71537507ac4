"""Judge decided submissions again from public data alone, and say where the result differs from what was decided."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from chain.indexer.records import Round, Submission
from chain.indexer.state import State
from engines.base import Engine
from protocol.errors import IntegrityError, MusterError
from protocol.verdict import BallotDocument, Code, Verdict
from runtime.pool_client import PoolClient
from runtime.process import ProcessConfig
from validator.context import SubmissionFacts
from validator.held_engines import LoadedEngine, OtherEngines
from validator.judging import FileJudge
from validator.selectors import deciding_round, submission_facts
from validator.sources import Sources

_DOCUMENT_BYTES = 4 << 20
log = logging.getLogger("muster.replay")


@dataclass(frozen=True)
class Opened:
    """A member's opened vote: its code for the submission, the hash of the document it was bound to, and the document,
    None where nobody serves it. Its bytes are not checked here."""

    seat: int
    code: Code
    digest: bytes
    document: bytes | None


@dataclass(frozen=True)
class Replayed:
    """`voted`: the committee's outcome; `opened`: its members' votes; `verdict`: ours, with all measurements."""

    submission: Submission
    voted: Code
    opened: tuple[Opened, ...]
    verdict: Verdict

    @property
    def agrees(self) -> bool:
        """Accept and unsure are one: both pay."""
        return alike(self.verdict.code, self.voted)


def alike(one: Code, other: Code) -> bool:
    """Whether two codes have the same consequence: accept and unsure both pay."""
    return one == other or (one.is_accept and other.is_accept)


def replay(config: ProcessConfig, sequences: Sequence[int] = ()) -> Iterator[Replayed]:
    """Judge the given submissions of the pool (all decided ones without any) as the committee's members did.

    Needs no key: chain, object store and weights are public. Raises MusterError when one of them is out of reach, or a
    named submission is unknown or undecided.
    """
    pool_client = PoolClient(config, None)
    try:
        state = pool_client.refresh()
        wanted = _chosen(state, config.pool, sequences)
        replayer = Replayer(pool_client, config.engine.make())
        # By steps, so that each step's weights are loaded once.
        for file in sorted(wanted, key=lambda file: (file.step, file.sequence)):
            yield replayer.replay(state, file)
    finally:
        pool_client.close()


def _chosen(state: State, pool: int, sequences: Sequence[int]) -> list[Submission]:
    unjudged = (Code.NONE, Code.VOID, Code.LATE)
    decided = {file.sequence: file for file in state.submissions_of(pool) if file.votes_code not in unjudged}
    for sequence in sequences:
        if sequence not in decided:
            raise MusterError(
                f"submission {sequence} of pool {pool} is unknown or not decided", "see muster pool status"
            )
    return [decided[sequence] for sequence in dict.fromkeys(sequences)] if sequences else list(decided.values())


class OpenedVotes:
    """Fetches what validators said."""

    def __init__(self, sources: Sources) -> None:
        self._document = lru_cache(maxsize=64)(partial(sources.fetch, "verdicts", limit=_DOCUMENT_BYTES))

    def of(self, file: Submission, decided: Round) -> Iterator[Opened]:
        """The votes of the deciding round that were opened, with the documents behind them."""
        for member, (_, digest) in sorted(decided.reveals.items()):
            code = Code(decided.code_at(file.place, member))
            yield Opened(decided.seats[member], code, digest, self._document(digest))

    def verdicts(self, state: State, file: Submission) -> Iterator[Verdict]:
        """The published documents' verdicts on a file; what is not published or not what was voted with is left out."""
        for opened in self.of(file, deciding_round(state, file)):
            try:
                if opened.document is not None:
                    yield BallotDocument.parse(opened.document, opened.digest).on(file.sequence)
            except IntegrityError as error:
                log.info("seat %d on file %d: %s", opened.seat, file.sequence, error.what)


class Replayer:
    """Judges as a validator does; as jurors of node cases do if it is given the other engines of this machine."""

    def __init__(self, pool_client: PoolClient, engine: Engine, others: OtherEngines | None = None) -> None:
        self._pool_client = pool_client
        self.sources = Sources(pool_client.objects, announced_seconds=60.0)
        loaded = LoadedEngine(engine, others)
        self._judge = FileJudge(pool_client.pool_config(), loaded, self.sources, pool_client.weights)
        self._as_worker = others is not None
        self._votes = OpenedVotes(self.sources)

    def replay(self, state: State, file: Submission) -> Replayed:
        """Judge one submission as the members of its deciding round did."""
        decided = deciding_round(state, file)
        verdict = self.verdict(state, file)
        return Replayed(file, Code(file.votes_code), tuple(self._votes.of(file, decided)), verdict)

    def verdict(self, state: State, file: Submission, audit_seed: bytes = b"") -> Verdict:
        """Our own verdict on a decided submission, by the rows that `audit_seed` draws; without one by those that its
        committee looked at."""
        facts = self._facts(state, file, audit_seed or deciding_round(state, file).seed)
        return self._judge.verdict(facts, state.mirrors_of(file), as_worker=self._as_worker)

    def _facts(self, state: State, file: Submission, audit_seed: bytes) -> SubmissionFacts:
        pool = state.pools[file.pool]
        step_seed = self._pool_client.seed(pool.steps[file.step])
        if step_seed is None:
            raise MusterError(f"the seed of step {file.step} is not confirmed", "try again in a few blocks")
        return submission_facts(self._pool_client.pool_id, pool, file, step_seed, audit_seed)
