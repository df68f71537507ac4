"""What every rank of a site has, a learner with its part of the weights; rank 0 gives the data, takes the weights."""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from protocol.sites.layout import Tensors
from trainer.batch import Group
from trainer.checkpoint import PendingCheckpoint
from trainer.distributed import BroadcastCalls
from trainer.learner import Learner
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.sft import Example, SftLearner, SftMetrics
from trainer.sites.inner import Saving
from trainer.sites.model_tensors import model_tensors, set_tensors
from trainer.step_metrics import StepMetrics


class _Checkpointed(Protocol):
    @property
    def policy(self) -> Policy: ...

    @property
    def placement(self) -> Placement: ...

    def start_checkpoint(self, folder: Path, extra: dict[str, Any]) -> PendingCheckpoint: ...

    def load_checkpoint(self, folder: Path) -> dict[str, Any]: ...


class SiteLearners(BroadcastCalls):
    """The learners of a site's ranks. Rank 0 calls the methods, the others are in `follow` meanwhile."""

    def __init__(self, learner: _Checkpointed) -> None:
        super().__init__(learner.placement.ranks)
        self._learner = learner
        self._pending: PendingCheckpoint | None = None

    def weights(self) -> Tensors:
        """A copy, float32, of the whole model."""
        return cast(Tensors, self._call("weights"))

    def load(self, weights: Tensors) -> None:
        """Put them in place of all ranks' parts."""
        self.ranks.command(("load", ()))  # the others get them a tensor at a time
        self._run_together("load", (weights,))

    def save(self, folder: Path, extra: dict[str, Any] | None = None) -> Saving:
        """Begin to write what going on exactly here needs, and `extra` (JSON), to `folder`. Raises MusterError."""
        self._call("save", folder, extra or {})
        return self

    def done(self) -> bool:
        """Whether this rank has written its part of what `save` began."""
        return self._pending is None or self._pending.done()

    def finish(self) -> None:
        """Return once what `save` began is on the disk, of all ranks. Raises MusterError."""
        self._call("finish")

    def restore(self, folder: Path) -> dict[str, Any]:
        """What `save` wrote; returns its `extra`. Raises IntegrityError where it is damaged."""
        return cast(dict[str, Any], self._call("restore", folder))

    def _run(self, name: str, arguments: tuple[Any, ...]) -> Any:
        match name:
            case "weights":
                return model_tensors(self._learner.policy.model, self.ranks.rank == 0)
            case "load":
                set_tensors(self._learner.policy.model, arguments[0] if arguments else None)
            case "save":
                assert self._pending is None, "one at a time"
                self._pending = self._learner.start_checkpoint(*arguments)
            case "finish":
                pending, self._pending = self._pending, None
                if pending is not None:
                    pending.wait()
            case "restore":
                return self._learner.load_checkpoint(*arguments)
            case _:
                raise AssertionError(f"no command {name!r}")
        return None


class ImitationLearners(SiteLearners):
    """That imitate examples."""

    def __init__(self, learner: SftLearner) -> None:
        super().__init__(learner)
        self._imitation = learner

    def update(self, examples: Sequence[Example], number: int | None = None) -> SftMetrics:
        """Learn from a batch, as update `number` of the run; None: as the next one."""
        return cast(SftMetrics, self._call("update", examples, number))

    def loss(self, examples: Sequence[Example]) -> float:
        """Mean loss (nats) of the learned tokens, without learning."""
        return cast(float, self._call("loss", examples))

    def _run(self, name: str, arguments: tuple[Any, ...]) -> Any:
        match name:
            case "update":
                examples, number = arguments
                self._imitation.updates = self._imitation.updates if number is None else number
                return self._imitation.update(examples)
            case "loss":
                return self._imitation.loss(*arguments)
        return super()._run(name, arguments)


class ReinforcementLearners(SiteLearners):
    """That take a policy step's updates one at a time."""

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self._reinforcement = learner
        self._updates: Generator[int, None, StepMetrics] | None = None

    def begin(self, groups: Sequence[Group], step: int, updates: int) -> None:
        """The updates of policy step `step` + 1 on these groups follow; `updates` were taken before."""
        self._call("begin", groups, step, updates)

    def update(self) -> tuple[int, StepMetrics | None]:
        """The next update's tokens; 0 and the step's metrics once there is none left."""
        return cast(tuple[int, StepMetrics | None], self._call("update"))

    def _run(self, name: str, arguments: tuple[Any, ...]) -> Any:
        match name:
            case "begin":
                groups, self._reinforcement.step, self._reinforcement.updates = arguments
                self._updates = self._reinforcement.updates_of(groups)
                return None
            case "update":
                return self._next_update()
        return super()._run(name, arguments)

    def _next_update(self) -> tuple[int, StepMetrics | None]:
        assert self._updates is not None, "no step was begun"
        try:
            return next(self._updates), None
        except StopIteration as end:
            self._updates = None
            return 0, end.value
