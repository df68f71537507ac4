"""What a worker does between two outer steps: the interface of inner tasks, and their learners on all ranks.

A worker may be several processes (ranks) that hold parts of the weights. Rank 0 runs the worker and the inner task; the
other ranks follow its commands.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from diloco.partition import owner, split_evenly
from diloco.store import Saving
from diloco.tensors import F32, Tensors
from protocol.errors import MusterError
from trainer.checkpoint import PendingCheckpoint
from trainer.data.batch import Group
from trainer.distributed import BroadcastCalls
from trainer.learner import Learner
from trainer.model.policy import Policy
from trainer.model.sharding import Placement, whole
from trainer.reports.step_metrics import StepMetrics
from trainer.sft import Example, SftLearner, SftMetrics

POSITION = "documents"
"""The metric by which workers report how many documents of the stream they have passed."""


@dataclass(frozen=True)
class DataShare:
    """Which of a run's data is `worker`'s in outer step `step`, while `members` take part.

    `seed`: 32 bytes (hex). `items`: the files that the outer step trains on (hex), None where workers read a stream.
    `positions`: documents of the stream that the makers of the newest outer step had passed, ascending, if this worker
    is none of them."""

    seed: str
    worker: str
    members: tuple[str, ...]
    items: tuple[str, ...] | None = None
    step: int = 0
    positions: tuple[int, ...] = ()

    @property
    def position(self) -> int:
        """Where in the stream this worker begins at least: the lower median of `positions`, which no minority moves; 0
        where it goes on from its own."""
        return self.positions[(len(self.positions) - 1) // 2] if self.positions else 0

    def owns(self, item: bytes) -> bool:
        """Return whether a document of the stream (its position as 32 bytes) is this worker's."""
        return owner(bytes.fromhex(self.seed), item, self.members) == self.worker

    @cached_property
    def files(self) -> tuple[bytes, ...]:
        """The worker's files, of `items`."""
        items = [bytes.fromhex(item) for item in self.items or ()]
        return split_evenly(bytes.fromhex(self.seed), items, self.members).get(self.worker, ())


class FilesUnusableError(MusterError):
    """A worker cannot train on `items`, files of its share; `for_good`: however long it waits."""

    def __init__(self, items: Sequence[bytes], why: str, for_good: bool) -> None:
        more = f" and {len(items) - 1} more" if len(items) > 1 else ""
        super().__init__(f"file {items[0].hex()[:16]}…{more} cannot be used: {why}")
        self.items, self.for_good = tuple(items), for_good


class InnerTask(Protocol):
    """Weights, an optimizer and a position in the data. One thread uses it."""

    def weights(self) -> Tensors:
        """Return a copy, float32."""
        ...

    def load(self, weights: Tensors) -> None:
        """Continue from these weights; optimizer and position stay."""
        ...

    def train(self, share: DataShare, number: int) -> int:
        """Take inner step `number` of an outer step; return how many tokens it was trained on, 0 if there is nothing
        left to train on until the next outer step. Raises FilesUnusableError."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """Return metrics of the inner steps since `load` or `restore`."""
        ...

    def save(self, folder: Path) -> Saving:
        """Begin to write everything that continuing exactly here needs into a new folder; what happens meanwhile
        changes nothing of it. Nothing else is saved or restored before it is finished. Raises MusterError."""
        ...

    def restore(self, folder: Path) -> None:
        """Restore what `save` wrote. Raises IntegrityError where it is damaged."""
        ...


class _Learner(Protocol):
    @property
    def policy(self) -> Policy: ...

    @property
    def placement(self) -> Placement: ...

    def start_checkpoint(self, folder: Path, extra: dict[str, Any]) -> PendingCheckpoint: ...

    def load_checkpoint(self, folder: Path) -> dict[str, Any]: ...


class WorkerLearners(BroadcastCalls):
    """The learners of a worker's ranks. Rank 0 calls the methods; the others are in `follow` meanwhile."""

    def __init__(self, learner: _Learner) -> None:
        super().__init__(learner.placement.ranks)
        self._learner = learner
        self._pending: PendingCheckpoint | None = None

    def weights(self) -> Tensors:
        """Return a copy of the whole model, float32."""
        return cast(Tensors, self._call("weights"))

    def load(self, weights: Tensors) -> None:
        """Put weights in place of all ranks' parts."""
        self.ranks.command(("load", ()))  # the others receive them one tensor at a time
        self._run_together("load", (weights,))

    def save(self, folder: Path, extra: dict[str, Any] | None = None) -> Saving:
        """Begin to write what continuing exactly here needs, and `extra` (JSON). Raises MusterError."""
        self._call("save", folder, extra or {})
        return self

    def done(self) -> bool:
        """Return whether this rank has written its part of what `save` began."""
        return self._pending is None or self._pending.done()

    def finish(self) -> None:
        """Return once what `save` began is on disk, of all ranks. Raises MusterError."""
        self._call("finish")

    def restore(self, folder: Path) -> dict[str, Any]:
        """Restore what `save` wrote, and return its `extra`. Raises IntegrityError where it is damaged."""
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


class LanguageLearners(WorkerLearners):
    """Learners of examples: text and conversations."""

    def __init__(self, learner: SftLearner) -> None:
        super().__init__(learner)
        self._language = learner

    def update(self, examples: Sequence[Example], number: int | None = None) -> SftMetrics:
        """Learn from a batch, as update `number` of the run; None: as the next one."""
        return cast(SftMetrics, self._call("update", examples, number))

    def loss(self, examples: Sequence[Example]) -> float:
        """Return the mean loss (nats) of the learned tokens, without learning."""
        return cast(float, self._call("loss", examples))

    def _run(self, name: str, arguments: tuple[Any, ...]) -> Any:
        match name:
            case "update":
                examples, number = arguments
                self._language.updates = self._language.updates if number is None else number
                return self._language.update(examples)
            case "loss":
                return self._language.loss(*arguments)
        return super()._run(name, arguments)


class RlLearners(WorkerLearners):
    """Learners that take a policy step's updates one at a time."""

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self._rl = learner
        self._updates: Generator[int, None, StepMetrics] | None = None

    def begin(self, groups: Sequence[Group], step: int, updates: int) -> None:
        """Prepare the updates of policy step `step` + 1 on these groups; `updates` were taken before."""
        self._call("begin", groups, step, updates)

    def update(self) -> tuple[int, StepMetrics | None]:
        """Take the next update and return its tokens; 0 and the step's metrics once there is none left."""
        return cast(tuple[int, StepMetrics | None], self._call("update"))

    def _run(self, name: str, arguments: tuple[Any, ...]) -> Any:
        match name:
            case "begin":
                groups, self._rl.step, self._rl.updates = arguments
                self._updates = self._rl.updates_of(groups)
                return None
            case "update":
                assert self._updates is not None, "no step was begun"
                try:
                    return next(self._updates), None
                except StopIteration as end:
                    self._updates = None
                    return 0, end.value
        return super()._run(name, arguments)


def model_tensors(model: Any, wanted: bool = True) -> Tensors:
    """Return copies of a model's trained parameters in host memory, float32 and whole even where ranks hold parts; none
    where they are not `wanted`. Every rank must call it."""
    tensors: dict[str, F32] = {}
    for name, parameter in _trained(model):
        value = whole(parameter)
        if wanted:
            tensors[name] = value.to("cpu", torch.float32, copy=True).numpy()
    return tensors


@torch.no_grad()
def set_tensors(model: Any, tensors: Tensors | None) -> None:
    """Put tensors in place of the model's parameters. Every rank must call it; those of rank 0 count."""
    for name, parameter in _trained(model):
        given = None if tensors is None else torch.from_numpy(np.ascontiguousarray(tensors[name]))
        if not isinstance(parameter, DTensor):
            assert given is not None, "a process alone has them"
            parameter.copy_(given)
            continue
        mesh = parameter.device_mesh
        value = torch.empty(parameter.shape) if given is None else given
        spread = distribute_tensor(value.to(mesh.device_type), mesh, parameter.placements)
        parameter.to_local().copy_(spread.to_local())


def _trained(model: Any) -> list[tuple[str, torch.Tensor]]:
    return [(name, one.detach()) for name, one in model.named_parameters() if one.requires_grad]
