"""Verdicts on disk: a submission is judged once per process, for all its seats and through restarts."""

import logging
from dataclasses import asdict, replace
from pathlib import Path

from protocol.encoding import canonical_json, keccak
from protocol.errors import IntegrityError
from protocol.files import write_atomic
from protocol.seeds import AUDIT_EVERYTHING
from protocol.verdict import BallotDocument, Verdict
from validator.context import SubmissionFacts

log = logging.getLogger("muster.validator")


def _name(digest: bytes) -> str:
    return f"{digest.hex()}.json"


class VerdictStore:
    """Verdicts by everything they depend on: the facts (lane seed included, unless all is audited), the pool's
    configuration, and `engine` where it is another one than what the process judges everything with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting, self._published = folder / "documents", folder / "published"
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
        """Store what a ballot's verdict hash stands for; returns the hash."""
        if not (self._published / _name(document.digest)).exists():
            write_atomic(self._waiting / _name(document.digest), document.canonical())
        return document.digest

    def document(self, digest: bytes) -> bytes | None:
        """A document that waits for its publication."""
        try:
            return (self._waiting / _name(digest)).read_bytes()
        except OSError:
            return None

    def is_unpublished(self, digest: bytes) -> bool:
        """Whether a document is here that nobody else has yet."""
        return (self._waiting / _name(digest)).exists()

    def published(self, digest: bytes) -> None:
        """Everybody can have this document now, also after a restart."""
        (self._waiting / _name(digest)).rename(self._published / _name(digest))

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
