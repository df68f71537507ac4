"""What a worker does between two outer steps: the interface of inner tasks (diloco/tasks.py has them)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from diloco.partition import owner, split_evenly
from diloco.tensors import Tensors
from protocol.errors import MusterError

POSITION = "documents"  # the metric by which workers report how many documents of the stream they have passed


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

    def owns(self, position: int) -> bool:
        """Return whether the document at a position of the stream is this worker's."""
        return owner(bytes.fromhex(self.seed), position.to_bytes(32, "big"), self.members) == self.worker

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


class Saving(Protocol):
    """Something that is being written to disk as it was when that began. One thread uses it."""

    def done(self) -> bool:
        """Return whether `finish` need not wait any longer."""
        ...

    def finish(self) -> None:
        """Return once it is written. Raises MusterError."""
        ...


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
