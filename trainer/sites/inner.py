"""What a site does between two outer steps: the inner steps on the data that is dealt to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from protocol.errors import MusterError
from protocol.sites.dealing import dealt_evenly, dealt_to
from protocol.sites.layout import Tensors


@dataclass(frozen=True)
class Share:
    """What of a run's data is `site`'s in outer step `step`, while `members` take part. `seed`: 32 bytes. `items`: what
    the outer step trains on (32 bytes each), None where that is the work's own matter. `places`: where in the data
    those stood, ascending, who made the newest outer step, if this site is none of them."""

    seed: bytes
    site: str
    members: tuple[str, ...]
    items: tuple[bytes, ...] | None = None
    step: int = 0
    places: tuple[int, ...] = ()

    @property
    def place(self) -> int:
        """Where in the data this site begins at least: the middle of `places`, the lower of two, so that no minority
        moves it. 0 where it goes on from its own."""
        return self.places[(len(self.places) - 1) // 2] if self.places else 0

    def mine(self, item: bytes) -> bool:
        """Whether an item of data that all sites have is this one's: each is dealt to exactly one of the members."""
        return dealt_to(self.seed, item, self.members) == self.site

    @property
    def own_items(self) -> tuple[bytes, ...]:
        """Of `items`, dealt evenly."""
        return dealt_evenly(self.seed, self.items or (), self.members).get(self.site, ())


class ItemsUnusable(MusterError):
    """A site cannot train on `items` of those that are dealt to it; `for_good`: however long it waits."""

    def __init__(self, items: Sequence[bytes], why: str, for_good: bool) -> None:
        more = f" and {len(items) - 1} more" if len(items) > 1 else ""
        super().__init__(f"file {items[0].hex()[:16]}…{more} cannot be used: {why}")
        self.items, self.for_good = tuple(items), for_good


class Saving(Protocol):
    """Something that is being written to a disk as it was when that was begun. One thread uses it."""

    def done(self) -> bool:
        """Whether `finish` need not wait any more."""
        ...

    def finish(self) -> None:
        """Return once it is written. Raises MusterError."""
        ...


class Saved:
    """It is written already."""

    def done(self) -> bool:
        return True

    def finish(self) -> None:
        pass


SAVED = Saved()


class InnerWork(Protocol):
    """Weights, an optimiser of its own and a place in the data. One thread."""

    def weights(self) -> Tensors:
        """A copy, float32."""
        ...

    def load(self, weights: Tensors) -> None:
        """Go on from these weights; optimiser and place stay."""
        ...

    def train(self, share: Share, number: int) -> int:
        """Inner step `number` of an outer step; how many tokens it was trained on, 0 if there is nothing left to train
        on until the next one. Raises ItemsUnusable."""
        ...

    def figures(self) -> Mapping[str, float]:
        """What is worth knowing of the inner steps since `load` or `restore`; what is out of bounds is not told on."""
        ...

    def save(self, folder: Path) -> Saving:
        """Begin to write everything that going on exactly here needs into a new folder; what happens meanwhile changes
        nothing of it. Nothing else is saved or restored before it is finished. Raises MusterError."""
        ...

    def restore(self, folder: Path) -> None:
        """What `save` wrote. Raises IntegrityError where it is damaged."""
        ...
