"""How a policy step is made of files: by this trainer's own ranks here, by several sites in trainer/sites."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from chain.indexer.records import Submission
from storage.weights.manifest import StepSites
from trainer.config import GuardConfig
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


_LEAST_HISTORY = 5


def check_step(config: GuardConfig, metrics: StepMetrics, earlier: Sequence[Mapping[str, Any]]) -> None:
    """Raise UnstableError if a step's loss, entropy or gradient is not a number, if its gradient norm is far above
    those of `earlier` steps' records, or if its entropy has suddenly gone. A step without signal is never unstable."""
    if not metrics.groups_used:
        return
    trouble = _not_finite(metrics) or _exploding(config, metrics, earlier) or _collapsing(config, metrics, earlier)
    if trouble:
        raise UnstableError(
            f"training has become unstable: step {metrics.step} has {trouble}; it is not published, and the checkpoint "
            f"of step {metrics.step - 1} is kept",
            "look at the rollouts of its files, then name bad ones in `exclude` or change `guards`, and start again",
        )


def _not_finite(metrics: StepMetrics) -> str:
    figures = {"loss": metrics.loss, "entropy": metrics.entropy, "gradient norm": metrics.grad_norm}
    return ", ".join(f"{name} {value}" for name, value in figures.items() if not math.isfinite(value))


def _exploding(config: GuardConfig, metrics: StepMetrics, earlier: Sequence[Mapping[str, Any]]) -> str:
    norms = [entry["grad_norm"] for entry in earlier if entry["grad_norm"] > 0][-config.norm_window :]
    if len(norms) < _LEAST_HISTORY:
        return ""
    usual = statistics.median(norms)
    if metrics.grad_norm <= config.norm_factor * usual:
        return ""
    return f"a gradient norm of {metrics.grad_norm:.4g}, {metrics.grad_norm / usual:.0f} times that of earlier steps"


def _collapsing(config: GuardConfig, metrics: StepMetrics, earlier: Sequence[Mapping[str, Any]]) -> str:
    if metrics.entropy < config.entropy_floor:
        return f"an entropy of {metrics.entropy:.4g}, below `guards.entropy_floor`"
    known = [entry["entropy"] for entry in earlier if entry["tokens"]][-_LEAST_HISTORY:]
    if len(known) < _LEAST_HISTORY:
        return ""
    usual = statistics.median(known)
    if metrics.entropy >= config.entropy_share * usual:
        return ""
    return f"an entropy of {metrics.entropy:.4g}, after {usual:.4g} in the steps before"


def step_sites(record: dict[str, Any]) -> StepSites | None:
    """Which sites a step's record says made it, None if none did."""
    found = record.get("made_by")
    return None if found is None else StepSites.model_validate({name: found[name] for name in StepSites.model_fields})
