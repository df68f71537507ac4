"""How often each problem was solved, from accepted files: read once, kept in the database, shown to everybody.

The database holds what each file says. Which files count follows from the chain each time: those that were final and
undisputed when the newest policy step was published. So a restart loses nothing, and a reorganisation needs no undoing.
The curriculum itself does not rely on this; trainers and auditors compute it from the files.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from chain.indexer.records import Submission
from orchestrator.chain import PoolView
from orchestrator.db import Database, SolveCountsRow
from protocol.api.views import Difficulties, DifficultyEntry
from protocol.config import EnvironmentConfig, PoolConfig
from protocol.curriculum import CurriculumMask, Difficulty, ProblemTries, SolveRate, tries_from_json, tries_to_json
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError, MusterError
from protocol.identity import PoolId
from runtime.curriculum import published_mask, read_tries, undisputed
from storage.keys import MissingObjectError
from storage.weights.fetch import OpenObject
from storage.weights.manifest import ManifestScope

log = logging.getLogger("muster.orchestrator")
_CHUNK = 500
_REST = 9
_MISSING_SECONDS, _IDLE_SECONDS = 60.0, 1.0
BINS = 12


@dataclass
class _Counted:
    """Sums over the files in `files`. `rates`: of numbered problems; `loose`: problems made from any seed, which occur
    once, by the share solved."""

    step: int | None = None
    files: set[str] = field(default_factory=set)
    rates: dict[tuple[int, int], SolveRate] = field(default_factory=dict)
    loose: dict[int, list[int]] = field(default_factory=dict)

    def add(self, name: str, environments: Sequence[EnvironmentConfig], tries: Iterable[ProblemTries]) -> None:
        self.files.add(name)
        for one in tries:
            if environments[one.environment].numbered:
                key = (one.environment, one.number)
                self.rates[key] = self.rates.get(key, SolveRate()) + one.rate
            else:
                self.loose.setdefault(one.environment, [0] * BINS)[solved_bin(one.rate)] += 1


def solved_bin(rate: SolveRate) -> int:
    """Return 0 for never solved, 11 for always, and between them the tenth."""
    if rate.solved in (0, rate.tried):
        return BINS - 1 if rate.solved else 0
    return 1 + 10 * rate.solved // rate.tried


class SolveRates:
    """The solve rates of one pool. `view` may be called from any thread, the rest from one."""

    def __init__(self, db: Database, view: PoolView, config: PoolConfig, pool: PoolId, open_object: OpenObject) -> None:
        self._db, self._view, self._config, self._pool, self._open = db, view, config, pool, open_object
        self._lock = threading.Lock()
        self._counted = _Counted()
        self._unread: list[Submission] = []
        self._absent: dict[str, float] = {}
        self._mask: tuple[bytes, CurriculumMask] | None = None

    def work(self, leads: Callable[[], bool]) -> float:
        """Count files, read one if this replica leads, and return the seconds until the next call. It takes at most a
        tenth of its thread's time: requests come first, and the rates may lag behind."""
        started = time.monotonic()
        self.refresh()
        read = leads() and self.read_one()
        pause = _REST * (time.monotonic() - started)
        return pause if read else max(_IDLE_SECONDS, pause)

    def refresh(self) -> None:
        """Count what the database has of the files that count."""
        state = self._view.state
        pool = self._view.pool(state)
        steps = pool.steps if pool else []
        until = steps[-1].time if steps else -1
        final = {sub.sha256.hex(): sub for sub in undisputed(state, self._view.pool_id) if sub.final_time <= until}
        with self._lock:
            if not self._counted.files <= final.keys():
                self._counted = _Counted()
            self._counted.step = len(steps) - 1 if steps else None
            missing = [name for name in final if name not in self._counted.files]
        for start in range(0, len(missing), _CHUNK):
            names = missing[start : start + _CHUNK]
            with self._db.reading() as session:
                rows = session.scalars(select(SolveCountsRow).where(SolveCountsRow.sha256.in_(names))).all()
            with self._lock:
                for row in rows:
                    self._counted.add(row.sha256, self._config.environments, tries_from_json(json.loads(row.counts)))
        with self._lock:
            self._unread = [sub for name, sub in final.items() if name not in self._counted.files]
        if pool is not None and steps and self._config.curricula:
            self._read_mask(steps[-1].manifest, pool.owner)

    def read_one(self) -> bool:
        """Read one file that no replica has read; return False if none can be fetched."""
        now = time.monotonic()
        for sub in self._unread:
            name = sub.sha256.hex()
            if now < self._absent.get(name, now):
                continue
            try:
                tries = read_tries(self._config, self._open, sub)
            except (MissingObjectError, IntegrityError) as error:
                log.info("accepted file %d is not counted: %s", sub.sequence, error)
                self._absent[name] = now + _MISSING_SECONDS
                continue
            with self._db.session() as session:
                session.merge(SolveCountsRow(sha256=name, counts=canonical_json(tries_to_json(tries)).decode()))
            self._absent.pop(name, None)
            return True
        return False

    def view(self) -> Difficulties:
        """Return what was counted."""
        with self._lock:
            counted, mask, entries = self._counted, self._mask[1] if self._mask else None, []
            for number, environment in enumerate(self._config.environments):
                solved = list(counted.loose.get(number, [0] * BINS))
                for (of, _), rate in counted.rates.items():
                    if of == number:
                        solved[solved_bin(rate)] += 1
                hard, easy = None, None
                if environment.curriculum is not None and mask is not None:
                    hard, easy = mask.count(number, Difficulty.HARD), mask.count(number, Difficulty.EASY)
                entries.append(
                    DifficultyEntry(
                        environment=environment.called,
                        problems=environment.kept or None,
                        tried=sum(solved),
                        solved=solved,
                        hard=hard,
                        easy=easy,
                    )
                )
            return Difficulties(
                step=counted.step, files=len(counted.files), unread=len(self._unread), environments=entries
            )

    def _read_mask(self, digest: bytes, owner: str) -> None:
        if self._mask is None or self._mask[0] != digest:
            try:
                mask = published_mask(self._config, self._open, digest, ManifestScope(self._pool, owner))
            except MusterError as error:
                log.info("the newest curriculum mask cannot be read: %s", error)
                return
            with self._lock:
                self._mask = digest, mask
