"""What a file was judged by: committees and juries, and the published verdicts and rollouts in the pool's bucket."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tokenizers import Tokenizer

from chain.indexer.records import Panel, Pool, Submission
from chain.indexer.state import State
from orchestrator.auth import HttpError
from orchestrator.ledger import label
from protocol.api import views
from protocol.config import WorkConfig
from protocol.errors import MusterError, UnreachableError
from protocol.evidence.figures import CHECK
from protocol.identity import PoolId
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, Rollout
from protocol.verdict import MAX_DOCUMENT_BYTES, BallotDocument, Code, code_at
from storage.keys import MissingObjectError, object_key, parse_key
from storage.weights.manifest import MAX_STORED_BYTES, ManifestScope, unseal

# Rollouts of a page.
ROWS = 8
MAX_TOKENIZER_BYTES = 64 << 20
MAX_TEXT = 20_000
# Requests that read a file or wait to.
PLACES = 4


def find_submission(state: State, pool: int, sequence: int) -> Submission:
    """Return a file. Raises HttpError 404 if there is no such file."""
    submission = state.submissions.get((pool, sequence))
    if submission is None:
        raise HttpError(404, f"pool {pool} has no file {sequence}", "see the list of files")
    return submission


def panels(state: State, sub: Submission) -> list[views.PanelEntry]:
    """Return a file's committees, then its juries."""
    entries = []
    for committee in state.lane_of(sub).rounds:
        if committee.drawn:
            codes = {member: code_at(packed, sub.place) for member, (packed, _) in committee.reveals.items()}
            outcome = code_at(committee.codes, sub.place) if committee.settled else Code.NONE
            entries.append(_panel(state, committee, "committee", committee.round, codes, outcome))
    for jury in state.trials.values():
        if (jury.pool, jury.sequence) == (sub.pool, sub.sequence) and jury.trial not in state.trial_challenges:
            codes = {member: Code(code) for member, (code, _) in jury.reveals.items()}
            entries.append(_panel(state, jury, "jury", jury.trial, codes, Code(jury.code)))
    return entries


def _panel(
    state: State, panel: Panel, kind: str, number: int, codes: dict[int, Code], outcome: Code
) -> views.PanelEntry:
    verdicts = {member: object_key("verdicts", digest) for member, (_, digest) in panel.reveals.items() if digest}
    return views.PanelEntry(
        kind=kind,
        number=number,
        drawn=panel.drawn_time or None,
        seed=panel.seed.hex(),
        outcome=label(outcome),
        members=[
            views.MemberEntry(
                seat=seat,
                owner=state.seats[seat].owner,
                committed=member in panel.commits,
                code=label(codes.get(member, Code.NONE)),
                verdict=verdicts.get(member, ""),
            )
            for member, seat in enumerate(panel.seats)
        ],
    )


@dataclass
class Evidence:
    """Reads a pool's bucket (`open_object` by key and limit), one file at a time. Few requests wait for their turn,
    since each holds a thread that signed requests need, too; others are sent away. Every byte is a stranger's:
    documents are checked against the hashes on chain, rollout files read in a sandbox."""

    pool: PoolId
    work: WorkConfig
    open_object: Callable[[str, int], bytes]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _places: threading.Semaphore = field(default_factory=partial(threading.Semaphore, PLACES))
    _tokenizers: dict[bytes, Tokenizer | None] = field(default_factory=dict)

    def verdicts(self, state: State, sequence: int) -> views.VerdictsView:
        """Return the published verdicts on a file. Raises HttpError 404, 503, UnreachableError."""
        sub = find_submission(state, self.pool.pool, sequence)
        members = [(member.seat, member.verdict) for panel in panels(state, sub) for member in panel.members]
        with self._turn():
            entries = [self._verdict(sub, seat, key) for seat, key in members if key]
        return views.VerdictsView(sequence=sequence, verdicts=entries)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise HttpError(503, "the service reads other files for onlookers", "ask again in a few seconds", 2)
        try:
            with self._lock:
                yield
        finally:
            self._places.release()

    def _verdict(self, sub: Submission, seat: int, key: str) -> views.VerdictEntry:
        try:
            data = self.open_object(key, MAX_DOCUMENT_BYTES)
            verdict = BallotDocument.parse(data, parse_key(key).digest).on(sub.sequence)
        except MissingObjectError:
            return views.VerdictEntry(seat=seat, key=key, problem="its voter has not published it")
        except UnreachableError:
            raise
        except (MusterError, ValueError) as error:
            return views.VerdictEntry(seat=seat, key=key, problem=str(error)[:200])
        return views.VerdictEntry(
            seat=seat,
            key=key,
            problem="",
            code=verdict.code.label,
            engine=verdict.engine,
            audited=len(verdict.audited),
            findings=[
                views.FindingEntry(
                    check=finding.check, code=finding.code.label, note=finding.note, figures=finding.measurements
                )
                for finding in verdict.findings
                if finding.check != CHECK  # the null model's long columns
            ],
        )

    def rollouts(self, state: State, sequence: int, first: int) -> views.RolloutsView:
        """Return some rows of a file from row `first` on. Raises HttpError 404, 503, UnreachableError."""
        sub = find_submission(state, self.pool.pool, sequence)
        limits = Limits.of(self.work)
        with self._turn():
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
        return views.RolloutsView(
            sequence=sequence,
            engine=header.engine,
            dtype=header.dtype,
            device=header.device,
            total=len(rows),
            next=first + ROWS if first + ROWS < len(rows) else None,
            rows=[_rollout(first + index, row, tokenizer) for index, row in enumerate(rows[first : first + ROWS])],
            problem="",
        )

    def _tokenizer(self, pool: Pool) -> Tokenizer | None:
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
        (file,) = (
            weight_file
            for weight_file in manifest.files
            if weight_file.name == "tokenizer.json" and weight_file.size <= MAX_TOKENIZER_BYTES
        )
        data = b"".join(self.open_object(shard.key, shard.size) for shard in file.shards)
        return Tokenizer.from_str(data.decode())


def _no_rollouts(sequence: int, problem: str) -> views.RolloutsView:
    nothing: dict[str, Any] = {"engine": "", "dtype": "", "device": "", "total": 0, "next": None, "rows": []}
    return views.RolloutsView(sequence=sequence, problem=problem, **nothing)


def _rollout(number: int, row: Rollout, tokenizer: Tokenizer | None) -> views.RolloutEntry:
    def text_of(tokens: tuple[int, ...]) -> str:
        if tokenizer is None:
            return " ".join(map(str, tokens))[:MAX_TEXT]
        return tokenizer.decode(list(tokens), skip_special_tokens=False)[:MAX_TEXT]

    same = ("sample", "target_length", "task_reward", "length_penalty", "reward")
    shown: dict[str, Any] = {
        "row": number,
        "problem": row.slot,
        "seed": str(row.problem_seed),
        "prompt": text_of(row.prompt_tokens),
        "completion": text_of(row.output_tokens),
        "text": tokenizer is not None,
        "prompt_tokens": len(row.prompt_tokens),
        "output_tokens": len(row.output_tokens),
        "stopped": row.finish == 0,
    }
    return views.RolloutEntry(**shown | {name: getattr(row, name) for name in same})
