"""From the chain's accepted files to the next step's batch: chosen, fetched, or skipped with a warning."""

import logging
import time
from collections.abc import Collection

from chain.records import Submission
from protocol.config import PoolConfig
from protocol.errors import IntegrityError, MusterError
from protocol.rollouts.schema import MalformedFile
from runtime.pool_client import PoolClient
from storage.keys import MissingObjectError
from trainer.config import TrainerConfig
from trainer.inbox import Inbox, file_id, look, overturned
from trainer.loader import Loader
from trainer.rollouts import Group
from trainer.state.records import Records

Batch = tuple[list[Group], list[Submission]]
log = logging.getLogger("muster.trainer")
_REMIND_SECONDS = 10.0


class FileCollector:
    """The files of the next step, none of the node `carrier`'s. `refused`: ids of accepted files that cannot be used;
    `late`: of those that came when they were too old to be used."""

    def __init__(
        self,
        config: TrainerConfig,
        pool_config: PoolConfig,
        client: PoolClient,
        records: Records,
        loader: Loader,
        carrier: str,
    ) -> None:
        self._config, self._train = config, pool_config.train
        self._client, self._records, self._loader, self._carrier = client, records, loader, carrier
        self.refused: set[str] = set(config.exclude)
        self.late: set[str] = set()
        self._overturned: set[str] = set()
        self._missing: dict[str, float] = {}
        self._groups: dict[str, list[Group]] = {}
        self._next_reminder = time.monotonic() + _REMIND_SECONDS

    def batch(self, step: int, consumed: Collection[str]) -> Batch | None:
        """Groups and files for making policy step `step`, None while there are too few."""
        files = self.due(step, consumed)
        for sub in files:
            if file_id(sub) not in self._groups:
                self._load(sub)
        there = [sub for sub in files if file_id(sub) in self._groups]
        if len(there) < self._train.files_per_step:
            self._remind(len(there))
            return None
        groups = [group for sub in files for group in self._groups[file_id(sub)]]
        self._groups.clear()
        return groups, files

    def due(self, step: int, consumed: Collection[str]) -> list[Submission]:
        """The files to train step `step` on, as many as are there.

        A step that was trained before a kill, but whose checkpoint is gone, takes the files its record names.
        """
        state, pool = self._client.refresh(), self._config.pool
        recorded = self._records.trained_in(step)
        if recorded:
            by_id = {file_id(sub): sub for sub in state.submissions_of(pool)}
            return [by_id[entry["sha256"]] for entry in recorded if entry["sha256"] in by_id]
        inbox = look(
            state,
            pool,
            step - 1,
            self._train.async_level,
            self._config.confirmations,
            {*consumed, *self.refused},
            {self._carrier} if self._carrier else (),
        )
        self._warn(inbox, overturned(state, pool, consumed))
        return list(inbox.files[: self._train.files_per_step])

    def _remind(self, there: int) -> None:
        if time.monotonic() >= self._next_reminder:
            self._next_reminder = time.monotonic() + _REMIND_SECONDS
            log.info("%d of %d accepted files for the next step are there", there, self._train.files_per_step)

    def _load(self, sub: Submission) -> None:
        """Read a file; one that cannot be used is skipped, and so is one that stays absent."""
        try:
            self._groups[file_id(sub)] = self._loader.groups(sub)
        except MissingObjectError as error:
            since = self._missing.setdefault(file_id(sub), time.monotonic())
            if time.monotonic() - since >= self._config.missing_seconds:
                self._refuse(sub, error)
        except (MalformedFile, IntegrityError) as error:
            self._refuse(sub, error)

    def _refuse(self, sub: Submission, error: MusterError) -> None:
        self.refused.add(file_id(sub))
        log.warning("accepted file %d of %s is not trained on: %s", sub.sequence, sub.node, error.what)

    def _warn(self, inbox: Inbox, gone: list[Submission]) -> None:
        late, rejected = "came too late to be trained on", "was trained on and then rejected (trained_then_rejected)"
        for files, known, what in ((inbox.stale, self.late, late), (gone, self._overturned, rejected)):
            for sub in files:
                if file_id(sub) not in known:
                    log.warning("file %d of step %d %s", sub.sequence, sub.step, what)
                known.add(file_id(sub))
