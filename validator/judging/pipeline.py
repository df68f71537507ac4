"""From a submission to its verdict, for validators, jurors and replays alike.

`judge` goes from bytes to verdict: read, check, prefill once, check again. It is total on hostile input; only faults of
this machine (the reader's sandbox, the engine) raise. `FileJudge` fetches a file, brings the weights, chooses the
engine and stores the verdict.

Two engines differ by more than small cheats change. So a file of a node challenge is measured by the engine that its
header names, if this machine has it and the pool has a null model for the pair. A worker that names another engine than
it uses only makes its own errors larger.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engines.base import Engine
from engines.torch_process import arithmetic_of, vllm_installed
from environments.pool import FollowingEnvironments, PoolEnvironments
from protocol.config import PoolConfig
from protocol.errors import MusterError, printable, unwritten
from protocol.evidence.figures import arithmetic_label
from protocol.evidence.null_model import StepNullModels
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, MalformedFile
from protocol.seeds import Work
from protocol.verdict import Code, Finding, Verdict, combine
from runtime.pool_client import PoolClient
from runtime.process import EngineConfig, EngineName
from runtime.weights_ahead import WeightsAhead
from storage.keys import MissingObjectError
from storage.weights.cache import manifest_of
from validator.judging.checks import (
    FILE_CHECKS,
    PREFILL_CHECKS,
    CheckContext,
    SubmissionFacts,
    not_judged,
    refuse,
    verdict_on,
)
from validator.judging.measurements import evidence, measure
from validator.judging.sources import Sources
from validator.judging.verdicts import VerdictStore
from validator.retention import RetentionStore

log = logging.getLogger("muster.validator")


def judge(
    facts: SubmissionFacts,
    data: bytes | None,
    config: PoolConfig,
    environment: PoolEnvironments,
    engine: Engine,
    null_models: StepNullModels | None = None,
) -> Verdict:
    """Judge one submission. `data` is None when nobody served bytes of its SHA-256; `engine` holds its step's weights,
    with which its `null_models` come. Raises MusterError if reader or engine fails."""
    context, findings = _open(facts, data, config, environment)
    audited: list[int] = []
    if context is not None:
        for check in FILE_CHECKS:
            findings.append(check(context))
            if not findings[-1].code.is_accept:
                break  # what follows would rest on false ground
        else:
            context = replace(context, measurements=measure(context, engine))
            findings += [*(check(context) for check in PREFILL_CHECKS), evidence(context, engine.info, null_models)]
            audited = context.audited
    info = engine.info
    arithmetic = {"name": info.name, "version": info.version, "dtype": info.dtype, "device": info.device}
    return verdict_on(facts, config.digest, combine(findings), arithmetic, audited, findings)


def _open(
    facts: SubmissionFacts, data: bytes | None, config: PoolConfig, environment: PoolEnvironments
) -> tuple[CheckContext | None, list[Finding]]:
    if data is None:
        return None, [refuse("fetch", Code.UNAVAILABLE, "no source serves the file")]
    if hashlib.sha256(data).digest() != facts.commitment.sha256:
        return None, [refuse("fetch", Code.UNAVAILABLE, "no source serves bytes of the committed SHA-256")]
    try:
        header, rollouts = read(data, Limits.of(config.work))
    except MalformedFile as error:
        return None, [refuse("read", Code.MALFORMED, error.what[:300])]
    return CheckContext(facts, config, environment, data, header, tuple(rollouts)), []


class OtherEngines:
    """Engines besides the one that judges everything. Each is started when a file first needs it, and kept."""

    def __init__(self, configs: Sequence[EngineConfig] = ()) -> None:
        self._configs = {
            arithmetic_label(config.name, config.dtype, arithmetic_of(config.device)): config for config in configs
        }
        self._started: dict[str, LoadedEngine] = {}

    def of(self, key: str) -> "LoadedEngine | None":
        """Return the engine with this arithmetic; None if there is none, or it did not start, which is tried once."""
        config = self._configs.pop(key, None)
        if config is not None:
            log.info("starting the engine %s for a file that was made with it", key)
            try:
                self._started[key] = LoadedEngine(config.make())
            except Exception as error:  # an engine's library raises anything, and the one that judges is left
                log.warning("the engine %s does not start: %s", key, printable(str(error) or repr(error)))
        return self._started.get(key)


class LoadedEngine:
    """An engine that the judges of several pools share, with the manifest of the weights that it `loaded`, those that
    it failed to load (`refused`), and the machine's `others`."""

    def __init__(self, engine: Engine, others: OtherEngines | None = None) -> None:
        self.engine, self.others = engine, others or OtherEngines()
        self.loaded, self.refused = b"", set[bytes]()

    @property
    def key(self) -> str:
        """Its arithmetic, as null models name it."""
        info = self.engine.info
        return arithmetic_label(info.name, info.dtype, info.device)

    def load(self, manifest: bytes, folder: Path) -> None:
        self.loaded = b""
        self.refused.add(manifest)
        self.engine.load(folder)
        self.refused.discard(manifest)
        self.loaded = manifest


def others(own: EngineConfig) -> tuple[EngineConfig, ...]:
    """Return the installed engines besides the one that a machine judges with, in the same dtype on the same device."""
    here: tuple[EngineName, ...] = ("transformers", "vllm") if vllm_installed() else ("transformers",)
    used = here[-1] if own.name == "auto" else own.name
    return tuple(own.model_copy(update={"name": name}) for name in here if name != used)


JudgeOne = Callable[
    [SubmissionFacts, bytes | None, PoolConfig, PoolEnvironments, Engine, StepNullModels | None], Verdict
]


class MissingFileError(MissingObjectError):
    """No source has a rollout file (yet)."""


_MOST_LACKING = 1000  # files whose absence is remembered


class FileJudge:
    """Judges submissions of one pool, one at a time, with the weights that `weights` brings. Verdicts are stored in
    `verdicts` and not judged again, the files themselves retained in `files` (None: nowhere)."""

    def __init__(
        self,
        config: PoolConfig,
        engine: LoadedEngine,
        sources: Sources,
        weights: Callable[[Work], Path],
        verdicts: VerdictStore | None = None,
        files: RetentionStore | None = None,
        judge_one: JudgeOne = judge,
    ) -> None:
        self._config, self._engine, self._sources, self._weights = config, engine, sources, weights
        self._verdicts, self._files, self._judge_one = verdicts, files, judge_one
        self._following = FollowingEnvironments(config)
        self._environment: PoolEnvironments | None = None
        self._null_models: StepNullModels | None = None
        self._manifest = b""
        self._lacking: dict[bytes, str] = {}
        self.judged = 0

    def verdict(
        self, facts: SubmissionFacts, announced: Sequence[str] = (), *, final: bool = True, as_worker: bool = False
    ) -> Verdict:
        """Return the verdict on a submission. A file that nobody has is unavailable if that is `final`, else
        MissingFileError is raised. `as_worker`: measure with the engine that the file names, if possible. Raises
        MusterError if a source, the weights or this machine fail."""
        stored = None if as_worker else self._stored(facts, self._engine)
        if stored is not None and self._is_retained(facts):
            return stored
        # Who votes on a file answers for its bytes, so a verdict alone is not enough. The files of a node challenge are
        # final, and hundreds of them would take the room of those that a committee's seat has to be able to show.
        data = self._fetch(facts, announced, keep=not as_worker)
        if data is None and not final:
            raise MissingFileError(f"no source has file {facts.sequence}", "it may appear later")
        engine = self._engine
        if as_worker and data is not None:
            engine = self._workers(facts, data)
            stored = self._stored(facts, engine)
        if data is not None and stored is not None:
            return stored
        engine, verdict = self._judged(facts, data, engine)
        self.judged += 1
        # A file that nobody has now may be there later.
        if self._verdicts and verdict.code is not Code.UNAVAILABLE:
            try:
                self._verdicts.keep(facts, verdict, "" if engine is self._engine else engine.key)
            except OSError as error:  # a vote cannot wait until the disk has room
                log.warning("a verdict is not kept for a restart: %s", unwritten(error))
        return verdict

    def is_there(self, facts: SubmissionFacts, announced: Sequence[str] = ()) -> bool:
        """Whether a file's bytes can be fetched. Raises MusterError if its sources fail."""
        return self._fetch(facts, announced, keep=False) is not None

    def unjudged(self, facts: SubmissionFacts, why: str) -> Verdict:
        return not_judged(facts, self._config.digest, why)

    def to_vote(self, verdict: Verdict) -> Verdict:
        """Return what a seat votes that will have to show the bytes: `unavailable` if it would accept and cannot retain
        them, or filling its disk would have it fined."""
        submission, sha256 = (verdict.pool, verdict.sequence), bytes.fromhex(verdict.sha256)
        if not verdict.code.is_accept or self._files is None or self._files.has(submission, sha256):
            return verdict
        note = f"was {verdict.code.label}, but there is no room to keep its bytes"
        finding = Finding("keep", Code.UNAVAILABLE, {}, note)
        return replace(verdict, code=Code.UNAVAILABLE, findings=(*verdict.findings, finding))

    def lacks(self, sha256: bytes) -> str:
        """Return why the bytes of a file could not be fetched the last time, if so."""
        return self._lacking.get(sha256, "")

    def warm(self, work: Work) -> None:
        """Load the weights of a policy step, so that the first verdict need not wait for them."""
        self._load(work, self._engine)

    def _fetch(self, facts: SubmissionFacts, announced: Sequence[str], keep: bool) -> bytes | None:
        sha256, limit = facts.commitment.sha256, Limits.of(self._config.work).file_bytes
        # A process killed before it had judged has the file, and its owner may not serve it a second time.
        retained = self._files.read(sha256) if self._files is not None and self._is_retained(facts) else None
        if retained is not None and hashlib.sha256(retained).digest() == sha256:
            return retained
        self._lacking.pop(sha256, None)
        while len(self._lacking) >= _MOST_LACKING:
            del self._lacking[next(iter(self._lacking))]
        try:
            data = self._sources.fetch("rollouts", sha256, limit, announced)
        except MusterError as error:
            self._lacking[sha256] = str(error)
            raise
        if data is None:
            self._lacking[sha256] = "no source serves the file"
        if data is not None and self._files is not None and keep:
            self._files.keep((facts.work.id.pool.pool, facts.sequence), sha256, data)
        return data

    def _is_retained(self, facts: SubmissionFacts) -> bool:
        file = facts.work.id.pool.pool, facts.sequence
        return self._files is None or self._files.has(file, facts.commitment.sha256)

    def _stored(self, facts: SubmissionFacts, engine: LoadedEngine) -> Verdict | None:
        other = "" if engine is self._engine else engine.key
        return self._verdicts.find(facts, self._config.digest, other) if self._verdicts else None

    def _workers(self, facts: SubmissionFacts, data: bytes) -> LoadedEngine:
        """Return the engine that a file's header names; ours if its step has no null model of that one verified by
        itself, or it is not here."""
        try:
            header, _ = read(data, Limits.of(self._config.work))
        except MalformedFile:
            return self._engine
        named = arithmetic_label(header.engine, header.dtype, header.device)
        if self._config.evidence is None or named == self._engine.key:
            return self._engine
        null_models = self._step_null_models(self._weights(facts.work))
        if null_models is None or null_models.pair(named, named) is None:
            return self._engine
        engine = self._engine.others.of(named)
        if engine is None or facts.work.manifest in engine.refused:
            log.warning(
                "file %d was made with %s, which is not installed here or cannot start: judged with %s",
                facts.sequence, named, self._engine.key,
            )  # fmt: skip
            return self._engine
        return engine

    def _judged(self, facts: SubmissionFacts, data: bytes | None, engine: LoadedEngine) -> tuple[LoadedEngine, Verdict]:
        """Return the verdict and the engine that it is by: ours if another one fails, for want of memory maybe."""
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
        return self._judge_one(facts, data, self._config, environment, engine.engine, self._null_models)

    def _load(self, work: Work, engine: LoadedEngine) -> PoolEnvironments:
        if self._environment is None or self._manifest != work.manifest or engine.loaded != work.manifest:
            folder = self._weights(work)
            environment = self._following.of(folder)
            engine.load(work.manifest, folder)
            self._null_models = self._step_null_models(folder)
            self._environment, self._manifest = environment, work.manifest
        return self._environment

    def _step_null_models(self, folder: Path) -> StepNullModels | None:
        manifest = manifest_of(folder) if self._config.evidence else None
        return manifest.null_models if manifest else None


_REACH = 4  # policy steps beyond the newest that was asked for, which are still fetched ahead


class JudgedWeights:
    """Brings the weights of a file's policy step and checks every byte each time, because a verdict rests on them.
    While the pool gives us files to judge, each new step is fetched once it is published. The cache `keep`s so many."""

    def __init__(self, client: PoolClient, poll_seconds: float, keep: Callable[[], int]) -> None:
        self._client, self._keep, self._asked = client, keep, -1
        self._ahead = WeightsAhead(client, poll_seconds, self._wanted, keep)
        client.before_close.append(self._ahead.stop)
        self._ahead.start()

    def __call__(self, work: Work) -> Path:
        self._asked = max(self._asked, work.id.step)
        return self._client.weights(work, self._keep())

    def _wanted(self, step: int) -> bool:
        return self._asked >= 0 and step - self._asked <= _REACH
