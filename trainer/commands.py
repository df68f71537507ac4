"""One learner on every rank, driven by rank 0."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from trainer.everywhere import Everywhere
from trainer.learner import Learner
from trainer.ranks import Ranks
from trainer.rollouts import Group
from trainer.state.checkpoint import PendingCheckpoint
from trainer.step_metrics import StepMetrics


class LearnerGroup(Everywhere):
    """The learners of all ranks."""

    def __init__(self, ranks: Ranks, make: Callable[[], Learner]) -> None:
        super().__init__(ranks)
        self._make = make
        self._pending: PendingCheckpoint | None = None
        self.learner = make()

    def train_step(self, groups: Sequence[Group]) -> StepMetrics:
        """One training step on every rank; see Learner."""
        return cast(StepMetrics, self._everywhere("train_step", groups))

    def start_checkpoint(self, folder: Path, extra: dict[str, Any]) -> None:
        """Begin to write a checkpoint; see Learner."""
        self._everywhere("start_checkpoint", folder, extra)

    def finish_checkpoint(self) -> None:
        """Wait until the checkpoint begun last is complete. Raises MusterError if it cannot be written."""
        self._everywhere("finish_checkpoint")

    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Restore a checkpoint on every rank; see Learner."""
        return cast(dict[str, Any], self._everywhere("load_checkpoint", folder))

    def export(self, folder: Path) -> None:
        """Write the policy's weights to `folder`; see Policy."""
        self._everywhere("export", folder)

    def renew(self) -> None:
        """Start with fresh learners at policy step 0."""
        self._everywhere("renew")

    def _do(self, name: str, arguments: tuple[Any, ...]) -> Any:
        match name:
            case "train_step":
                return self.learner.train_step(*arguments)
            case "start_checkpoint":
                self._pending = self.learner.start_checkpoint(*arguments)
            case "finish_checkpoint":
                assert self._pending is not None, "no checkpoint was begun"
                self._pending.wait()
            case "load_checkpoint":
                return self.learner.load_checkpoint(*arguments)
            case "export":
                self.learner.policy.export(*arguments)
            case "renew":
                self.learner = self._make()
            case _:
                raise AssertionError(f"no command {name!r}")
        return None
