"""Judge decided submissions again from public data alone, and say where the result differs from what was decided."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chain.judging import Round
from chain.records import Submission
from chain.state import State
from engines.base import Engine
from engines.factory import make_engine
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.rollouts.schema import Limits
from protocol.tasks.environment import Environment
from protocol.verdict import Code, Verdict
from runtime.pool_client import PoolClient
from runtime.process import ProcessConfig
from storage.keys import Kind, object_key
from storage.missing import MissingObjectError
from validator import selectors
from validator.context import SubmissionFacts
from validator.judge_queue import MIRRORS_ASKED
from validator.pipeline import judge

log = logging.getLogger("muster.validator")
_DOCUMENT_BYTES = 4 << 20


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
    """`voted`: the committee's outcome; `opened`: its members' votes; `verdict`: ours, with all figures."""

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
    link = PoolClient(config, None)
    try:
        state, engine = link.refresh(), config.engine
        wanted = _chosen(state, config.pool, sequences)
        runner = make_engine(engine.name, engine.dtype, engine.device, engine.threads, engine.batch)
        bench = _Bench(link, state, runner)
        # By steps, so that each step's weights are loaded once.
        for file in sorted(wanted, key=lambda file: (file.step, file.sequence)):
            opened = tuple(bench.opened(file, selectors.deciding_round(state, file)))
            yield Replayed(file, Code(file.votes_code), opened, bench.judge(file))
    finally:
        link.close()


def _chosen(state: State, pool: int, sequences: Sequence[int]) -> list[Submission]:
    decided = {file.sequence: file for file in state.submissions_of(pool) if file.votes_code not in (0, Code.VOID)}
    for sequence in sequences:
        if sequence not in decided:
            raise MusterError(
                f"submission {sequence} of pool {pool} is unknown or not decided", "see muster pool status"
            )
    return [decided[sequence] for sequence in dict.fromkeys(sequences)] if sequences else list(decided.values())


class _Bench:
    """Judges as a validator does, and fetches what validators said."""

    def __init__(self, link: PoolClient, state: State, engine: Engine) -> None:
        self._link, self._state, self._engine = link, state, engine
        self._rules = link.pool_config()
        self._environment: Environment | None = None
        self._loaded = b""
        self._documents: dict[bytes, bytes | None] = {}

    def judge(self, file: Submission) -> Verdict:
        facts = self._facts(file)
        if facts.work.manifest != self._loaded:
            folder = self._link.weights(file.step)
            self._environment = self._environment or Environment.of(self._rules, folder)
            self._engine.load(folder)
            self._loaded = facts.work.manifest
        assert self._environment is not None
        data = self._object("rollouts", file.sha256, Limits.of(self._rules.work).file_bytes, file.mirrors)
        return judge(facts, data, self._rules, self._environment, self._engine)

    def opened(self, file: Submission, decided: Round) -> Iterator[Opened]:
        """The votes of the deciding round that were opened, with the documents behind them."""
        for member, (_, digest) in sorted(decided.reveals.items()):
            if digest not in self._documents:
                self._documents[digest] = self._object("verdicts", digest, _DOCUMENT_BYTES)
            code = Code(decided.code_at(file.place, member))
            yield Opened(decided.seats[member], code, digest, self._documents[digest])

    def _facts(self, file: Submission) -> SubmissionFacts:
        link, pool = self._link, self._state.pools[file.pool]
        seed = link.seed(pool.steps[file.step])
        if seed is None:
            raise MusterError(f"the seed of step {file.step} is not confirmed", "try again in a few blocks")
        lane_seed = selectors.deciding_round(self._state, file).seed
        return selectors.submission_facts(link.pool_id, pool, file, seed, lane_seed)

    def _object(self, kind: Kind, digest: bytes, limit: int, mirrors: Sequence[str] = ()) -> bytes | None:
        """The object from the service or, as validators do, from where its node announced it."""
        key = object_key(kind, digest)
        try:
            return self._link.objects(key, limit)
        except (MissingObjectError, IntegrityError):
            return self._from_mirrors(key, limit, mirrors)
        except UnreachableError:
            data = self._from_mirrors(key, limit, mirrors)
            if data is None:
                raise
            return data

    def _from_mirrors(self, key: str, limit: int, mirrors: Sequence[str]) -> bytes | None:
        for url in mirrors[:MIRRORS_ASKED]:
            try:
                return self._link.objects.elsewhere(url, key, limit)
            except MusterError as error:
                log.info("mirror: %s", error)
        return None
