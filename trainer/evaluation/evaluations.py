"""Evaluations beside training: a thread measures one policy step after another, and training never waits for it.

At most one step waits while another is measured. A newer step replaces one that waits, which is recorded as skipped;
the base model and the last step are never skipped.
"""

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from eth_account.signers.local import LocalAccount

from protocol.api.work import Evaluation, SetResult, SignedEvaluation, sign_evaluation
from protocol.config import PoolConfig
from protocol.errors import MusterError, printable
from protocol.identity import PoolId

log = logging.getLogger("muster.trainer")


class Evaluator(Protocol):
    """Who measures. `stop` makes a measurement under way fail soon."""

    def __call__(self, pool: PoolConfig, folder: Path, step: int) -> list[SetResult]:
        """The results of the pool's held-out sets with the weights in `folder`, those of policy step `step`. Raises
        MusterError."""

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Candidate:
    """A policy step to measure: its weights and the digest of its manifest."""

    step: int
    folder: Path
    manifest: bytes


class Evaluations:
    """The evaluations of a run. Only the evaluator runs in the thread; everything else belongs to the caller's.

    `known`: steps measured or skipped before a restart.
    """

    def __init__(
        self, pool: PoolConfig, pool_id: PoolId, account: LocalAccount, evaluator: Evaluator, known: Iterable[int] = ()
    ) -> None:
        self._pool, self._pool_id, self._account, self._evaluator = pool, pool_id, account, evaluator
        self._known = set(known)
        self._changed = threading.Condition()
        self._waiting: list[Candidate] = []
        self._running: Candidate | None = None
        self._done: list[Evaluation] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="evaluations", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """Begin nothing more and end what runs; it is measured after the restart."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._evaluator.stop()
        if self._thread.is_alive():
            self._thread.join(patience)

    def offer(self, candidate: Candidate) -> None:
        """A policy step was published: measure it if it is due and was not yet."""
        step = candidate.step
        if step in self._known or not self._pool.evaluation.due(step, self._pool.train.steps):
            return
        self._known.add(step)
        with self._changed:
            if not candidate.folder.is_dir():
                self._skip(candidate, "its weights are gone")
                return
            for late in [one for one in self._waiting if not self._must(one)]:
                self._waiting.remove(late)
                self._skip(late, f"step {step} came before its turn")
            self._waiting.append(candidate)
            self._changed.notify_all()

    @property
    def pinned(self) -> set[Path]:
        """Folders that are still needed."""
        with self._changed:
            return {one.folder for one in (*self._waiting, *([self._running] if self._running else []))}

    @property
    def idle(self) -> bool:
        """Whether nothing waits, runs or has yet to be collected."""
        with self._changed:
            return not (self._waiting or self._running or self._done)

    def collect(self) -> list[SignedEvaluation]:
        """What was finished or skipped since the last call, signed."""
        with self._changed:
            done, self._done = self._done, []
        return [sign_evaluation(self._account, self._pool_id, one) for one in done]

    def _must(self, candidate: Candidate) -> bool:
        return candidate.step in (0, self._pool.train.steps)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
                candidate = self._running = self._waiting.pop(0)
            try:
                results = self._evaluator(self._pool, candidate.folder, candidate.step)
            except Exception as error:  # whatever happens to a measurement, training goes on
                if not isinstance(error, MusterError):
                    log.exception("the evaluation of step %d failed", candidate.step)
                self._finish(candidate, [], printable(f"it failed: {error}", 190))
            else:
                self._finish(candidate, results)

    def _finish(self, candidate: Candidate, results: list[SetResult], failure: str = "") -> None:
        with self._changed:
            self._running = None
            if self._stopping:
                return
            if failure:
                self._skip(candidate, failure)
            else:
                self._done.append(self._evaluation(candidate, results))
        for one in results:
            log.info("held-out set %s at step %d: %.3f ± %.3f", one.name, candidate.step, one.average, one.error)

    def _skip(self, candidate: Candidate, why: str) -> None:
        log.warning("the evaluation of step %d is skipped: %s", candidate.step, why)
        self._done.append(self._evaluation(candidate, [], why))

    def _evaluation(self, candidate: Candidate, results: list[SetResult], skipped: str = "") -> Evaluation:
        return Evaluation(
            step=candidate.step,
            manifest=candidate.manifest.hex(),
            config_hash=self._pool.digest.hex(),
            time=round(time.time(), 3),
            results=results,
            skipped=skipped,
        )
