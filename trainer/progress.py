"""How far a run has come: the learner, and what must be exactly as old as its weights, in checkpoints on disk."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.errors import IntegrityError
from protocol.files import drop_old, remove_leftovers
from trainer.checkpoint import checkpoint_path, checkpoints
from trainer.making import PolicyAtStep, PolicyGroup
from trainer.records import Records

log = logging.getLogger("muster.trainer")
_KEPT_CHECKPOINTS = 3


class TrainingProgress:
    """Starts from the newest intact checkpoint in `folder`, or with the fresh learners of `group` at policy step 0.

    `consumed`: ids of the files trained on. `manifests`: digests of the policy steps published so far. `document`: the
    record of the learner's own step, empty for step 0: a restart must not report that step as empty.
    """

    def __init__(self, folder: Path, group: PolicyGroup, records: Records) -> None:
        self._folder, self._group, self._records = folder, group, records
        self.consumed: set[str] = set()
        self.manifests: list[bytes] = []
        self.document: dict[str, Any] = {}
        remove_leftovers(folder)
        found = checkpoints(folder)
        if found and not any(map(self._resume, reversed(found))):
            group.renew()  # a damaged checkpoint may have left some of its weights

    @property
    def learner(self) -> PolicyAtStep:
        return self._group.learner

    def keep(self, document: dict[str, Any], files: list[dict[str, Any]], meanwhile: Callable[[], None]) -> None:
        """Write the checkpoint of the step just trained, with its lines for the records, and do something else
        meanwhile. Raises MusterError if the checkpoint cannot be written; it may be tried again."""
        self.document = document
        extra = {
            "consumed": sorted(self.consumed),
            "manifests": [digest.hex() for digest in self.manifests],
            "document": document,
            "files": files,
        }
        self._group.start_checkpoint(checkpoint_path(self._folder, self.learner.step), extra)
        try:
            meanwhile()
        finally:
            self._group.finish_checkpoint()
        drop_old(checkpoints(self._folder), _KEPT_CHECKPOINTS)

    def rewind(self, step: int) -> None:
        """Take the learners back to policy step `step`, where they stood before what must not count. Raises
        IntegrityError if its checkpoint is damaged."""
        if step:
            self._group.load_checkpoint(checkpoint_path(self._folder, step))
        else:
            self._group.renew()

    def _resume(self, path: Path) -> bool:
        try:
            extra = self._group.load_checkpoint(path)
        except IntegrityError as error:
            log.warning("%s", error)
            return False
        self.consumed = set(extra["consumed"])
        self.manifests = [bytes.fromhex(digest) for digest in extra["manifests"]]
        self.document = extra["document"]
        if self.document:
            self._records.write(self.document, extra["files"])
        log.info("resumed at policy step %d with %d consumed files", self.learner.step, len(self.consumed))
        return True
