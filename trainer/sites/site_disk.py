"""What a site writes down, in an order in which a kill at any moment loses no outer step and repeats none.

Two kinds of folders, each complete or absent: the outer state with the inner work as it was right after it, and the
contribution that is on its way with the inner work as it was when it was made. A state is written while inner steps go
on from it. Until it is there, the state before it and the contribution to that stay: the outer step that led to it is
made again of these and of what is published. The next contribution waits for it, so nobody hears of work of which the
beginning is not on the disk.
"""

import logging
from pathlib import Path

from protocol.errors import IntegrityError
from protocol.sites.layout import TensorLayout, Tensors
from protocol.sites.outer import OuterState
from protocol.waits import WAITS
from trainer.sites.inner import InnerWork
from trainer.sites.replica_store import StateFolder
from trainer.sites.share_of_step import InnerProgress, OwnContribution, PendingFolder, read_work, write_work

log = logging.getLogger("muster.sites")


class SiteDisk:
    """In `home`. `progress`, `owed`: of the inner work as it was last taken from there."""

    def __init__(self, home: Path, layout: TensorLayout, shards: int, inner: InnerWork) -> None:
        self._states = StateFolder(home / "outer", layout, shards)
        self._pending = PendingFolder(home / "pending", layout)
        self._layout, self._inner = layout, inner
        self._spent = False
        self.progress = InnerProgress()
        self.owed: Tensors | None = None

    def newest(self) -> OuterState | None:
        """The newest state that is whole; the inner work is as it was then. None if there is none."""
        return self._states.newest(self._restore)

    def on_its_way(self, state: OuterState) -> OwnContribution | None:
        """The newest contribution that was made from `state`, with the inner work as it was then; None if none is
        there."""
        return self._pending.newest(state.digest.hex(), self._inner)

    def hold(self, state: OuterState, owed: Tensors | None, progress: InnerProgress) -> None:
        """Begin to write a new state with the inner work that goes on from it."""
        self._states.begin(state, lambda folder: write_work(folder, self._inner, progress, owed, self._layout))
        self._spent = True

    def keep(self, step: int, own: OwnContribution) -> None:
        """Write a contribution to outer step `step` down, after the state that it was made from."""
        self.finish()
        self._pending.keep(step, own, self._inner)

    def drop(self) -> None:
        """The contribution will not be offered any more."""
        self._pending.drop()

    def undo(self) -> None:
        """Go back to the inner work as it was when the outer step under way began. Raises IntegrityError."""
        if self.newest() is None:
            raise IntegrityError("no outer state on disk is intact", "start this site with a new home")

    def tend(self) -> None:
        """Go on with what is being written, without a wait."""
        if self._spent and self._states.tend():
            self._over()

    def finish(self) -> None:
        """Return once all that was begun is there."""
        if self._spent:
            with WAITS.on("the disk, for the newest outer state"):
                self._states.finish()
            self._over()

    def _over(self) -> None:
        """The contribution that led to a state is needed no more once that is there."""
        self._pending.drop()
        self._spent = False

    def _restore(self, folder: Path) -> None:
        self.progress, self.owed = read_work(folder, self._inner, self._layout)
