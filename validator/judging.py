"""The one way from a submission to its verdict, for validators, jurors and replays."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engines.base import Engine
from environments.following import FollowingEnvironments
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from protocol.errors import MusterError, printable
from protocol.evidence.figures import engine_key
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, MalformedFile
from protocol.seeds import Work
from protocol.verdict import Code, Finding, Verdict
from storage.keys import MissingObjectError
from validator.context import SubmissionFacts, verdict_on
from validator.held_engines import LoadedEngine
from validator.kept_files import KeptFiles
from validator.pipeline import judge
from validator.sources import Sources
from validator.verdict_store import VerdictStore

log = logging.getLogger("muster.validator")
JudgeOne = Callable[[SubmissionFacts, bytes | None, PoolConfig, PoolEnvironments, Engine], Verdict]


class MissingFileError(MissingObjectError):
    """No source has a rollout file (yet)."""


class FileJudge:
    """Judges submissions of one pool, one at a time, with the weights that `weights` brings. What was judged is kept in
    `verdicts` and not judged again, the files themselves in `files` (None: nowhere). `judge_one` is the
    pipeline."""

    def __init__(
        self,
        config: PoolConfig,
        engine: LoadedEngine,
        sources: Sources,
        weights: Callable[[Work], Path],
        verdicts: VerdictStore | None = None,
        files: KeptFiles | None = None,
        judge_one: JudgeOne = judge,
    ) -> None:
        self._config, self._engine, self._sources, self._weights = config, engine, sources, weights
        self._verdicts, self._files, self._judge_one = verdicts, files, judge_one
        self._following = FollowingEnvironments(config)
        self._environment: PoolEnvironments | None = None
        self._manifest = b""
        self._lacking: dict[bytes, str] = {}
        self.judged = 0

    def verdict(
        self, facts: SubmissionFacts, announced: Sequence[str] = (), *, final: bool = True, as_worker: bool = False
    ) -> Verdict:
        """What nobody has is unavailable, or MissingFileError unless that is `final`. `as_worker`: measured by the
        engine that the file names, where this machine has it and the pool's law knows the pair. Raises MusterError
        where a source, the weights or this machine fail."""
        kept = None if as_worker else self._known(facts, self._engine)
        if kept is not None and self._is_kept(facts):
            return kept
        # Who votes on a file answers for its bytes, so a verdict alone is not enough. A node case's are final, and
        # hundreds of them would take the room of those that a committee's seat has to be able to show.
        data = self._fetch(facts, announced, keep=not as_worker)
        if data is None and not final:
            raise MissingFileError(f"no source has file {facts.sequence}", "it may appear later")
        engine = self._engine
        if as_worker and data is not None:
            engine = self._workers(facts, data)
            kept = self._known(facts, engine)
        if data is not None and kept is not None:
            return kept
        engine, verdict = self._judged(facts, data, engine)
        self.judged += 1
        # A file that nobody has now may be there later.
        if self._verdicts and verdict.code is not Code.UNAVAILABLE:
            self._verdicts.keep(facts, verdict, self._kept_as(engine))
        return verdict

    def is_there(self, facts: SubmissionFacts, announced: Sequence[str] = ()) -> bool:
        """Whether a file's bytes can be had now. Raises MusterError where its sources fail."""
        return self._fetch(facts, announced, keep=False) is not None

    def unjudged(self, facts: SubmissionFacts, why: str) -> Verdict:
        """`unavailable`, for a file that was not looked at."""
        finding = Finding("answer", Code.UNAVAILABLE, {}, why)
        return verdict_on(facts, self._config, Code.UNAVAILABLE, {}, findings=(finding,))

    def to_vote(self, verdict: Verdict) -> Verdict:
        """What a seat that will have to show the bytes says: `unavailable` where it would accept and cannot keep them.
        Otherwise whoever fills its disk has it fined for every file that comes then."""
        place, sha256 = (verdict.pool, verdict.sequence), bytes.fromhex(verdict.sha256)
        if not verdict.code.is_accept or self._files is None or self._files.has(place, sha256):
            return verdict
        note = f"was {verdict.code.label}, but there is no room to keep its bytes"
        finding = Finding("keep", Code.UNAVAILABLE, {}, note)
        return replace(verdict, code=Code.UNAVAILABLE, findings=(*verdict.findings, finding))

    def lacks(self, sha256: bytes) -> str:
        """Why the bytes of a file could not be had when they were last asked for; empty if they were had, or never
        asked for."""
        return self._lacking.get(sha256, "")

    def warm(self, work: Work) -> None:
        """Load the weights of a policy step, so that the first verdict need not wait for them."""
        self._load(work, self._engine)

    def prepare(self, facts: SubmissionFacts) -> None:
        """Bring the weights that the submission will be judged with."""
        self._weights(facts.work)

    def _fetch(self, facts: SubmissionFacts, announced: Sequence[str], keep: bool) -> bytes | None:
        sha256, limit = facts.commitment.sha256, Limits.of(self._config.work).file_bytes
        # A process killed before it had judged has the file, and its owner may not serve it a second time.
        kept = self._files.read(sha256) if self._files is not None and self._is_kept(facts) else None
        if kept is not None and hashlib.sha256(kept).digest() == sha256:
            return kept
        try:
            data = self._sources.fetch("rollouts", sha256, limit, announced)
        except MusterError as error:
            self._lacking[sha256] = str(error)
            raise
        if data is None:
            self._lacking[sha256] = "no source serves the file"
        else:
            self._lacking.pop(sha256, None)
            if self._files is not None and keep:
                self._files.keep((facts.work.id.pool.pool, facts.sequence), sha256, data)
        return data

    def _is_kept(self, facts: SubmissionFacts) -> bool:
        place = facts.work.id.pool.pool, facts.sequence
        return self._files is None or self._files.has(place, facts.commitment.sha256)

    def _known(self, facts: SubmissionFacts, engine: LoadedEngine) -> Verdict | None:
        return self._verdicts.find(facts, self._config.digest, self._kept_as(engine)) if self._verdicts else None

    def _kept_as(self, engine: LoadedEngine) -> str:
        return "" if engine is self._engine else engine.key

    def _workers(self, facts: SubmissionFacts, data: bytes) -> LoadedEngine:
        """The engine that a file's header names; ours where the law does not know that engine by itself, or this
        machine does not have it."""
        laws = self._config.evidence.laws if self._config.evidence else ()
        try:
            header, _ = read(data, Limits.of(self._config.work))
        except MalformedFile:
            return self._engine
        named = engine_key(header.engine, header.dtype, header.device)
        if named == self._engine.key or all((law.worker, law.verifier) != (named, named) for law in laws):
            return self._engine
        found = self._engine.others.of(named)
        if found is None or found.refused(facts.work.manifest):
            what = (
                "file %d was made with %s, which this machine does not have (`case_engines`) or start: judged with %s"
            )
            log.warning(what, facts.sequence, named, self._engine.key)
            return self._engine
        return found

    def _judged(self, facts: SubmissionFacts, data: bytes | None, engine: LoadedEngine) -> tuple[LoadedEngine, Verdict]:
        """The verdict, and the engine that it is by: ours where another one fails. It may have no memory left beside
        ours, or hold a model of another kind, and a file that ours can measure must not go unjudged for that."""
        if engine is not self._engine:
            self._weights(facts.work)  # where these are missing, no engine is to blame
            try:
                return engine, self._judge_with(facts, data, engine)
            except Exception as error:
                what = "file %d cannot be measured with %s, which made it: judged with %s (%s)"
                log.warning(what, facts.sequence, engine.key, self._engine.key, printable(str(error) or repr(error)))
        return self._engine, self._judge_with(facts, data, self._engine)

    def _judge_with(self, facts: SubmissionFacts, data: bytes | None, engine: LoadedEngine) -> Verdict:
        environment = self._load(facts.work, engine)
        return self._judge_one(facts, data, self._config, environment, engine.engine)

    def _load(self, work: Work, engine: LoadedEngine) -> PoolEnvironments:
        if self._environment is None or self._manifest != work.manifest or not engine.has(work.manifest):
            folder = self._weights(work)
            environment = self._following.of(folder)
            engine.load(work.manifest, folder)
            self._environment, self._manifest = environment, work.manifest
        return self._environment
