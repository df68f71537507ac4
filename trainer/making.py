"""How a policy step is made of files: by this trainer's own ranks here, by several sites in trainer/sites."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from chain.records import Submission
from storage.weights.manifest import StepSites
from trainer.data import FileCollector, StepFiles
from trainer.exits import UnstableError
from trainer.learner import LearnerGroup
from trainer.model.sharding import Placement
from trainer.records import Records
from trainer.step_metrics import StepMetrics

Check = Callable[[StepMetrics, Sequence[Mapping[str, Any]]], None]
"""Raises UnstableError for a step that must not be published, seeing the records of those before."""


class PolicyAtStep(Protocol):
    """A policy, and the policy step it stands at."""

    @property
    def step(self) -> int: ...

    @property
    def placement(self) -> Placement: ...


class PolicyGroup(Protocol):
    """Who holds the policy: `trainer.learner.LearnerGroup`, or the keeper of several sites."""

    @property
    def learner(self) -> PolicyAtStep: ...

    def start_checkpoint(self, folder: Path, extra: dict[str, Any]) -> None: ...

    def finish_checkpoint(self) -> None: ...

    def load_checkpoint(self, folder: Path) -> dict[str, Any]: ...

    def export(self, folder: Path) -> None: ...

    def renew(self) -> None: ...

    def end(self, code: int) -> None: ...


class StepMaker(Protocol):
    """Takes the policy one step on."""

    @property
    def given(self) -> Sequence[str]:
        """Ids of the files that the next step is bound to; none if it is free to take any."""
        ...

    def make(self, batch: StepFiles) -> StepMetrics | None:
        """A step of these files; None if it was not made, and is to be tried again with what files there are then.
        Raises UnstableError for one that must not be published."""
        ...

    def facts(self) -> dict[str, Any]:
        """What the step's record says of who made it."""
        ...

    def of_file(self, file: str) -> dict[str, Any]:
        """What the record of a file says of who trained on it."""
        ...

    def tend(self) -> None:
        """Called again and again while something else is waited for."""
        ...


class OwnSteps:
    """Steps made by this trainer's ranks. `rewind` takes them back to a policy step. A StepMaker."""

    given: Sequence[str] = ()

    def __init__(
        self,
        group: LearnerGroup,
        check: Check,
        records: Records,
        files: FileCollector,
        rewind: Callable[[int], None],
    ) -> None:
        self._group, self._check, self._records = group, check, records
        self._files, self._rewind = files, rewind

    def make(self, batch: StepFiles) -> StepMetrics | None:
        """Files that made it unstable are refused, and the learners are where they were, unless it cannot be put down
        to at most half of the files."""
        step = self._group.learner.step
        metrics = self._group.train_step(batch.groups)
        try:
            self._check(metrics, self._records.metrics())
        except UnstableError as error:
            blamed = self._unstable_alone(batch, step)
            if not 0 < len(blamed) <= len(batch.files) / 2:
                raise
            for sub in blamed:
                self._files.refuse(sub, error)
            return None
        return metrics

    def facts(self) -> dict[str, Any]:
        return {}

    def of_file(self, file: str) -> dict[str, Any]:
        return {}

    def tend(self) -> None:
        pass

    def _unstable_alone(self, batch: StepFiles, step: int) -> list[Submission]:
        """The files that make policy step `step` unstable without the others. A mean is never further out than all its
        parts: where strangers' files did it, they are among these."""
        earlier, blamed = self._records.metrics(), []
        for sub, groups in zip(batch.files, batch.groups_of, strict=True):
            self._rewind(step)
            try:
                self._check(self._group.train_step(groups), earlier)
            except UnstableError:
                blamed.append(sub)
        self._rewind(step)
        return blamed


def step_sites(record: dict[str, Any]) -> StepSites | None:
    """Which sites a step's record says made it, None if none did."""
    found = record.get("made_by")
    return None if found is None else StepSites.model_validate({name: found[name] for name in StepSites.model_fields})
