"""Sites that are given files, over a bucket in memory: files cost nothing, and some cannot be had."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.site_letters import LetterTable, line
from protocol.sites.log import LogEvent
from protocol.sites.outer import OuterState
from protocol.sites.run import SitesRun
from tests.trainer.sites.replaying import events
from tests.trainer.sites.world import SITES, TRUSTED, SitesWorld, make_run
from trainer.sites.catching_up import step_to
from trainer.sites.inner import ItemsUnusable, Share
from trainer.sites.logbook import Logbook
from trainer.sites.settled import settled_step

NAMES = [str(one.address) for one in SITES]
BAD = NAMES[2]


def file_at(step: int, number: int) -> str:
    return f"{step * 100 + number + 1:064x}"


class FileWork(LetterTable):
    """Trains on the files that are dealt to its site, of which it cannot have those that are `gone`."""

    def __init__(self, gone: set[str]) -> None:
        super().__init__()
        self.gone, self.for_good = gone, False

    def train(self, share: Share, number: int) -> int:
        missing = [item for item in share.own_items if item.hex() in self.gone]
        if missing:
            raise ItemsUnusable(missing, "nobody has it", self.for_good)
        lines = [line(int.from_bytes(item) + number) for item in share.own_items]
        if not lines:
            return 0
        before = np.frombuffer(b"".join(one[:-1] for one in lines), np.uint8)
        after = np.frombuffer(b"".join(one[1:] for one in lines), np.uint8)
        for name, gradient in self._gradients(before, after).items():
            setattr(self, name, (getattr(self, name) - np.float32(0.5) * gradient).astype(np.float32))
        return len(before)


@dataclass
class FilesWorld(SitesWorld):
    """Whose keeper gives six files a step to as many sites as have joined. `gone`: files that no site can have;
    `gone_for`: of one site. `given`: how many are there when a step's files are given."""

    gone: set[str] = field(default_factory=set)
    given: int = 3

    def __post_init__(self) -> None:
        self.work = lambda: FileWork(self.gone)
        super().__post_init__()

    def keeper_turn(self) -> None:
        now = self.keeper.book.schedule
        if len(now.members | now.waiting) >= self.given:
            self.keeper.give([file_at(self.keeper.state.step, number) for number in range(6)])
        self.keeper.turn()

    def begin(self, *numbers: int) -> None:
        for number in numbers:
            self.start(number)._patience.seconds = 0.0

    def events(self) -> Iterator[LogEvent]:
        return events(self.keeper.exchange)

    def files_of(self, step: int) -> dict[str, str]:
        """Of an outer step that was made: the site of each file, empty for nobody's."""
        book = Logbook.newest(self.keeper.exchange)
        assert book is not None
        made = settled_step(self.keeper.exchange, book, step, self.keeper.state.layout)
        return {file_at(step, number): made.site_of(file_at(step, number)) for number in range(6)}

    def replayed(self) -> OuterState:
        """The newest state as anybody computes it from what is published."""
        book = Logbook.newest(self.keeper.exchange)
        assert book is not None
        state = OuterState.start(LetterTable().weights())
        for _, boundary in list(book.chapters_back())[-2::-1]:
            state, _ = step_to(self.keeper.exchange, state, boundary)
        return state


def run_of(sites: int, minimum: int = 1) -> SitesRun:
    admission = TRUSTED.model_copy(update={"minimum": minimum})
    made = make_run(sites, "files", admission=admission, training_seconds=1000, window_seconds=1000, inner_steps=2)
    return made.model_copy(update={"work": "given"})
