"""What is behind a file's outcome, from the pool's bucket: the published verdicts, and the rollouts themselves.

Every byte is a stranger's: documents are checked against the hashes on chain, rollout files read in a sandbox.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tokenizers import Tokenizer

from chain.indexer.records import Pool, Submission
from chain.indexer.state import State
from orchestrator.http_errors import HttpError
from orchestrator.views import files
from protocol.api.views import FindingEntry, RolloutEntry, RolloutsView, VerdictEntry, VerdictsView
from protocol.config import WorkConfig
from protocol.errors import MusterError, UnreachableError
from protocol.evidence.figures import CHECK
from protocol.identity import PoolId
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, Rollout
from protocol.verdict import MAX_DOCUMENT_BYTES, BallotDocument, Verdict
from storage.keys import MissingObjectError, object_key, parse_key
from storage.weights.manifest import MAX_STORED_BYTES, ManifestScope, unseal

ROWS = 8
MAX_TOKENIZER_BYTES = 64 << 20
MAX_TEXT = 20_000
OpenObject = Callable[[str, int], bytes]
"""(key, limit in bytes) → the object's bytes."""


@dataclass
class Evidence:
    """Reads a pool's bucket for the dashboard: one file at a time, so that onlookers never hold up the pool's work."""

    pool: PoolId
    work: WorkConfig
    open_object: OpenObject
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _tokenizers: dict[bytes, Tokenizer | None] = field(default_factory=dict)

    def verdicts(self, state: State, sequence: int) -> VerdictsView:
        """The published verdicts on a file. Raises HttpError 404, UnreachableError."""
        sub = files.find(state, self.pool.pool, sequence)
        members = [(member.seat, member.verdict) for panel in files.panels(state, sub) for member in panel.members]
        with self._turn:
            shown = [self._verdict(sub, seat, key) for seat, key in members if key]
        return VerdictsView(sequence=sequence, verdicts=shown)

    def _verdict(self, sub: Submission, seat: int, key: str) -> VerdictEntry:
        try:
            data = self.open_object(key, MAX_DOCUMENT_BYTES)
            verdict = BallotDocument.parse(data, parse_key(key).digest).on(sub.sequence)
            return verdict_entry(seat, key, verdict)
        except MissingObjectError:
            return VerdictEntry(seat=seat, key=key, problem="its voter has not published it")
        except UnreachableError:
            raise
        except (MusterError, ValueError) as error:
            return VerdictEntry(seat=seat, key=key, problem=str(error)[:200])

    def rollouts(self, state: State, sequence: int, first: int) -> RolloutsView:
        """Some rows of a file from row `first` on. Raises HttpError 404, UnreachableError."""
        sub = files.find(state, self.pool.pool, sequence)
        limits = Limits.of(self.work)
        with self._turn:
            try:
                data = self.open_object(object_key("rollouts", sub.sha256), limits.file_bytes)
                header, rows = read(data, limits)
            except MissingObjectError:
                return _no_rollouts(sequence, "the file is not in the pool's bucket")
            except UnreachableError:
                raise
            except MusterError as error:
                return _no_rollouts(sequence, error.what[:200])
            tokenizer = self._tokenizer(state.pools[self.pool.pool])
        if first >= len(rows):
            raise HttpError(404, f"file {sequence} has {len(rows)} rows", "ask for an earlier row")
        shown = [_rollout(first + place, row, tokenizer) for place, row in enumerate(rows[first : first + ROWS])]
        return RolloutsView(
            sequence=sequence,
            engine=header.engine,
            dtype=header.dtype,
            device=header.device,
            total=len(rows),
            next=first + ROWS if first + ROWS < len(rows) else None,
            rows=shown,
            problem="",
        )

    def _tokenizer(self, pool: Pool) -> Tokenizer | None:
        """The tokenizer among the weights of the pool's first step; None if it cannot be read."""
        manifest = pool.steps[0].manifest
        if manifest not in self._tokenizers:
            try:
                self._tokenizers[manifest] = self._read_tokenizer(manifest, pool.owner)
            except UnreachableError:
                raise
            except Exception:  # a hostile tokenizer.json can make the parser raise anything
                self._tokenizers[manifest] = None
        return self._tokenizers[manifest]

    def _read_tokenizer(self, manifest_hash: bytes, owner: str) -> Tokenizer:
        stored = self.open_object(object_key("manifests", manifest_hash), MAX_STORED_BYTES)
        manifest = unseal(stored, manifest_hash, ManifestScope(self.pool, owner))
        (file,) = (one for one in manifest.files if one.name == "tokenizer.json" and one.size <= MAX_TOKENIZER_BYTES)
        data = b"".join(self.open_object(shard.key, shard.size) for shard in file.shards)
        return Tokenizer.from_str(data.decode())


def verdict_entry(seat: int, key: str, verdict: Verdict) -> VerdictEntry:
    return VerdictEntry(
        seat=seat,
        key=key,
        problem="",
        code=verdict.code.label,
        engine=verdict.engine,
        audited=len(verdict.audited),
        findings=[
            FindingEntry(check=one.check, code=one.code.label, note=one.note, figures=one.measurements)
            for one in verdict.findings
            if one.check != CHECK  # columns of numbers, which are in the document itself
        ],
    )


def _no_rollouts(sequence: int, problem: str) -> RolloutsView:
    return RolloutsView(sequence=sequence, engine="", dtype="", device="", total=0, next=None, rows=[], problem=problem)


def _rollout(number: int, row: Rollout, tokenizer: Tokenizer | None) -> RolloutEntry:
    def words(tokens: tuple[int, ...]) -> str:
        if tokenizer is None:
            return " ".join(map(str, tokens))[:MAX_TEXT]
        return tokenizer.decode(list(tokens), skip_special_tokens=False)[:MAX_TEXT]

    return RolloutEntry(
        row=number,
        problem=row.slot,
        sample=row.sample,
        seed=str(row.problem_seed),
        prompt=words(row.prompt_tokens),
        completion=words(row.output_tokens),
        text=tokenizer is not None,
        prompt_tokens=len(row.prompt_tokens),
        output_tokens=len(row.output_tokens),
        target_length=row.target_length,
        stopped=row.finish == 0,
        task_reward=row.task_reward,
        length_penalty=row.length_penalty,
        reward=row.reward,
    )
