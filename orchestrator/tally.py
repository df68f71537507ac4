"""What the files of a pool add up to, kept from one state to the next: only files that changed are looked at."""

from collections.abc import Iterator
from itertools import compress
from operator import is_not

from chain.indexer.records import Status, Submission
from chain.indexer.state import State
from orchestrator.ledger import FileSums, sums_of
from orchestrator.supply import QueuedFile
from orchestrator.trained import Trained

Key = tuple[int, int]


class FileTally:
    """The tally of one pool. `sums`: for the escrow; `accepted`: files that are accepted now; `consumed`: sequences of
    pending and accepted files that were trained on; `queued`: pending files, and accepted ones not consumed. Not
    thread-safe."""

    def __init__(self, pool: int) -> None:
        self._pool = pool
        self._files: dict[Key, Submission] = {}
        self._trained = Trained()
        self._clear()

    def update(self, state: State, trained: Trained) -> None:
        """Take in a state, no older than the last one, and the trainer's reports."""
        changes = self._changes(state) if trained is self._trained else None
        if changes is None:
            self._clear()
            changes = [(None, new) for new in state.submissions.values()]
        self._files, self._trained = state.submissions, trained
        for old, new in changes:
            if new.pool == self._pool:
                self._replace(old, new)

    @property
    def queued(self) -> list[QueuedFile]:
        return list(self._queued.values())

    def _clear(self) -> None:
        self.sums, self.accepted = FileSums(), 0
        self.consumed: set[int] = set()
        self._queued: dict[int, QueuedFile] = {}

    def _changes(self, state: State) -> list[tuple[Submission | None, Submission]] | None:
        """Files that changed, before and after; None if there are others now in some places (a reorganisation)."""
        if len(state.submissions) < len(self._files):
            return None
        found = list(self._touched(state))
        followed = all(old is None or (old.pool, old.sequence) == (new.pool, new.sequence) for old, new in found)
        return found if followed else None

    def _touched(self, state: State) -> Iterator[tuple[Submission | None, Submission]]:
        # A state shares the records that did not change with the one before, and has them in the same order.
        olds, news = list(self._files.values()), list(state.submissions.values())
        count = len(olds)
        yield from compress(zip(olds, news, strict=False), map(is_not, olds, news))
        for new in news[count:]:
            yield None, new

    def _replace(self, old: Submission | None, new: Submission) -> None:
        if old is not None:
            self.sums -= sums_of(old)
            self.accepted -= old.status is Status.ACCEPTED
        self.sums += sums_of(new)
        self.accepted += new.status is Status.ACCEPTED
        self.consumed.discard(new.sequence)
        self._queued.pop(new.sequence, None)
        if new.status not in (Status.PENDING, Status.ACCEPTED):
            return
        if self._trained.steps(new):
            self.consumed.add(new.sequence)
        if new.status is Status.PENDING or new.sequence not in self.consumed:
            self._queued[new.sequence] = QueuedFile(new.sequence, new.node, new.step, new.status)
