"""Verdicts on disk: a submission is judged once per process, for all its seats and through restarts. Documents behind
revealed votes are published from there."""

import logging
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from protocol.encoding import canonical_json, keccak
from protocol.errors import IntegrityError
from protocol.files import write_atomic
from protocol.seeds import AUDIT_EVERYTHING
from protocol.verdict import BallotDocument, Verdict
from runtime.orchestrator_client import OrchestratorClient
from validator.judging.checks import SubmissionFacts
from validator.tasks import TransactionTasks

log = logging.getLogger("muster.validator")


class VerdictStore:
    """Verdicts by all that they depend on: facts, the pool's configuration, and `engine` if it is not the usual one."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._waiting, self._published = folder, folder / "documents", folder / "published"
        for part in (self._waiting, self._published):
            part.mkdir(parents=True, exist_ok=True)

    def find(self, facts: SubmissionFacts, config_hash: bytes, engine: str = "") -> Verdict | None:
        path = self._path(facts, config_hash, engine)
        try:
            return replace(Verdict.parse(path.read_bytes()), lane_seed=facts.lane_seed.hex())
        except FileNotFoundError:
            return None
        except (OSError, IntegrityError) as error:
            log.warning("the kept verdict %s is damaged (%s): judging again", path, error)
            return None

    def keep(self, facts: SubmissionFacts, verdict: Verdict, engine: str = "") -> None:
        write_atomic(self._path(facts, bytes.fromhex(verdict.config_hash), engine), verdict.canonical())

    def keep_document(self, document: BallotDocument) -> bytes:
        """Store what a ballot's verdict hash stands for. Returns the hash."""
        if not (self._published / f"{document.digest.hex()}.json").exists():
            write_atomic(self._waiting / f"{document.digest.hex()}.json", document.canonical())
        return document.digest

    def unpublished(self, digest: bytes) -> bytes | None:
        """Return a document that nobody else has yet."""
        try:
            return (self._waiting / f"{digest.hex()}.json").read_bytes()
        except OSError:
            return None

    def mark_published(self, digest: bytes) -> None:
        """Remember, also through a restart, that this document is published."""
        (self._waiting / f"{digest.hex()}.json").rename(self._published / f"{digest.hex()}.json")

    def _path(self, facts: SubmissionFacts, config_hash: bytes, engine: str) -> Path:
        work, committed = facts.work, asdict(facts.commitment)
        hashes = {"step_seed": work.step_seed, "manifest": work.manifest, "lane_seed": facts.lane_seed}
        fields = work.id.flat() | {"sequence": facts.sequence, "audit_rate": facts.audit_rate} | hashes | committed
        fields = {key: value.hex() if isinstance(value, bytes) else value for key, value in fields.items()}
        if facts.audit_rate >= AUDIT_EVERYTHING:
            # The seed draws the audit sample and nothing else: where all is audited, a second draw changes nothing.
            del fields["lane_seed"]
        fields |= {"engine": engine} if engine else {}
        key = keccak(canonical_json(fields) + config_hash)
        return self._folder / f"{facts.sequence:08d}-{key.hex()[:24]}.json"


class VerdictPublisher:
    """Uploads a pool's documents to its service (None: it has none) in a thread of its own: no vote waits for a slow
    service. Thread-safe."""

    def __init__(self, orchestrator: OrchestratorClient | None, verdicts: VerdictStore) -> None:
        self._orchestrator, self._verdicts = orchestrator, verdicts
        self._tasks = TransactionTasks(1)

    def publish(self, digest: bytes, head: int) -> None:
        """Upload the document of a revealed vote unless that is done. What failed is tried again at the next call."""
        if self._orchestrator is not None and self._verdicts.unpublished(digest) is not None:
            what = f"verdict {digest.hex()[:12]} is published"
            self._tasks.run(digest, head, what, partial(self._upload, self._orchestrator, digest), quiet=True)

    def close(self) -> None:
        self._tasks.stop()

    def _upload(self, orchestrator: OrchestratorClient, digest: bytes) -> None:
        document = self._verdicts.unpublished(digest)
        if document is not None:
            orchestrator.upload_verdict(document)
            self._verdicts.mark_published(digest)
