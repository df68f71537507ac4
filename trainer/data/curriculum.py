"""Makes the curriculum mask that goes with each policy step of a pool with a curriculum."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from chain.indexer.records import Submission
from chain.indexer.state import State
from protocol.config import PoolConfig
from protocol.curriculum import MASK_FILE, Difficulty, Tries, count_tries
from protocol.errors import IntegrityError, MusterError, unwritten
from protocol.files import write_atomic
from protocol.rollout_file.rows import Rollout
from runtime.curriculum import StepNotSeenError, counted_files, expected_mask, read_tries, undisputed
from storage.keys import MissingObjectError
from storage.weights.fetch import OpenObject

log = logging.getLogger("muster.trainer")


class MaskWriter:
    """Writes the masks of one pool. Without a curriculum it does nothing.

    Each final file is read once by this process, and its tries are kept as long as they may count. One that the bucket
    lacks for `patience` seconds is left out. A step's mask waits until the step before it, by whose time files count,
    is `confirmations` deep."""

    def __init__(
        self,
        config: PoolConfig,
        pool: int,
        refresh: Callable[[], State],
        open_object: OpenObject,
        confirmations: int,
        patience: float,
    ) -> None:
        self._config, self._pool, self._refresh, self._open = config, pool, refresh, open_object
        self._confirmations, self._patience = confirmations, patience
        self._tries: dict[str, Tries] = {}
        self._missing_since: dict[str, float] = {}
        self._lock = threading.RLock()  # files are read for training while a mask is made

    def on_read(self, sub: Submission, rollouts: Sequence[Rollout]) -> None:
        """Count the tries of a file that was read for another reason."""
        if self._config.curricula:
            rows = [(rollout.problem_seed, rollout.task_reward) for rollout in rollouts]
            with self._lock:
                self._tries[sub.sha256.hex()] = count_tries(self._config, rows)

    def read_ahead(self) -> None:
        """Read one file that will count and was not read for training, if there is one."""
        if not self._config.curricula:
            return
        state = self._refresh()
        since = self._first_final_time(state, len(state.pools[self._pool].steps))
        for sub in undisputed(state, self._pool):
            name = sub.sha256.hex()
            if sub.final_time >= since and name not in self._tries and name not in self._missing_since:
                with suppress(MusterError), self._lock:
                    self._read(sub)
                return

    def write(self, step: int, folder: Path) -> None:
        """Put a policy step's mask into its folder, unless it is there. Raises MusterError where it has to wait."""
        if not self._config.curricula or (folder / MASK_FILE).is_file():
            return
        with self._lock:
            self._write(step, folder)

    def _write(self, step: int, folder: Path) -> None:
        state = self._refresh()
        steps = state.pools[self._pool].steps
        if step > len(steps) or (step and steps[step - 1].block + self._confirmations > state.head):
            raise StepNotSeenError(f"policy step {step - 1} is not confirmed, and files count by its time", "wait")
        mask = expected_mask(state, self._config, self._pool, step, self._read)
        try:
            # Aside first: what a kill leaves must not lie among the files of the step.
            draft = folder.with_name(f".{folder.name}.mask")
            write_atomic(draft, mask.encoded(self._config))
            os.replace(draft, folder / MASK_FILE)
        except OSError as error:
            raise MusterError(unwritten(error)) from None
        since = self._first_final_time(state, step)  # what became final before it counts for no later step
        wanted = {sub.sha256.hex() for sub in state.submissions_of(self._pool) if sub.final_time >= since}
        self._tries = {name: tries for name, tries in self._tries.items() if name in wanted}
        for index, environment in self._config.curricula.items():
            hard, easy = (mask.count(index, difficulty) for difficulty in (Difficulty.HARD, Difficulty.EASY))
            log.info("step %d: of %d problems of %s, %d are masked as too hard, %d as too easy",
                     step, environment.kept, environment.called, hard, easy)  # fmt: skip

    def _read(self, sub: Submission) -> Tries | None:
        name = sub.sha256.hex()
        if name not in self._tries:
            try:
                self._tries[name] = read_tries(self._config, self._open, sub)
            except (MissingObjectError, IntegrityError) as error:
                since = self._missing_since.setdefault(name, time.monotonic())
                if time.monotonic() - since < self._patience:
                    raise MusterError(f"final file {sub.sequence} waits: {error.what}", error.hint) from None
                log.warning("final file %d is left out of the solve rates: %s", sub.sequence, error)
        return self._tries.get(name)

    def _first_final_time(self, state: State, step: int) -> int:
        """When the first file that counts for a step became final; −1 if none counts."""
        return min((sub.final_time for sub in counted_files(state, self._config, self._pool, step)), default=-1)
