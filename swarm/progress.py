"""How far a member has come: weights, optimiser, and what they were trained on, in one checkpoint that a kill leaves
whole or absent.

The journal says for each round which groups were trained on. Its line is part of the round's checkpoint and copied to
`journal.jsonl` afterwards, so no kill can make weights that contain a group and a journal that does not know of it.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.files import drop_old, remove_leftovers, write_atomic
from swarm.inbox import EnvelopeInbox
from swarm.inbox_state import InboxState
from swarm.journal import JOURNAL, STATUS, append, rewind
from trainer.checkpoint import checkpoint_path, checkpoints
from trainer.learner import Learner

log = logging.getLogger("muster.swarm")
_KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class SwarmRound:
    """What a round was: mean reward of the own groups, how many of these, the names of the shared groups that were
    trained on, how many of all of these had an advantage (`signal`), those left out as unfit, how many envelopes were
    taken, whether nobody could be reached, what was measured around it: (rounds trained, held-out reward), and how many
    groups were left out as nothing that the own policy would say."""

    round: int
    reward: float
    own: int
    shared: tuple[str, ...]
    signal: int = 0
    unfit: int = 0
    taken: int = 0
    alone: bool = False
    held_out: tuple[tuple[int, float], ...] = ()
    doubted: int = 0

    def line(self) -> dict[str, Any]:
        return {**vars(self), "shared": list(self.shared), "held_out": [list(one) for one in self.held_out]}


@dataclass
class MemberState:
    """`next`: the round to come. `pending`: lines of the journal that are newer than the checkpoint before."""

    next: int = 0
    pending: list[dict[str, Any]] = field(default_factory=list)


class MemberProgress:
    """In `home`: checkpoints, journal, status. One process at a time."""

    def __init__(self, home: Path, every: int) -> None:
        self.home, self._every = home, every
        self._folder = home / "checkpoints"
        self._folder.mkdir(parents=True, exist_ok=True)
        self.state = MemberState()

    def resume(self, learner: Learner, inbox: EnvelopeInbox) -> None:
        """Load the newest intact checkpoint, if there is one. Raises IntegrityError where there are some and none is
        intact: starting over would train again what is in the journal."""
        # In the home itself lie the policy's.
        for folder in (self.home, self._folder):
            remove_leftovers(folder)
        found = checkpoints(self._folder)
        for path in reversed(found):
            try:
                extra = learner.load_checkpoint(path)
            except IntegrityError as error:
                log.warning("%s", error)
                inbox.look_again()
                continue
            self.state = MemberState(extra["next"])
            inbox.restore(InboxState.of(extra["inbox"]))
            rewind(self.home / JOURNAL, self.state.next)
            append(self.home / JOURNAL, extra["lines"])
            log.info("resumed at round %d", self.state.next)
            return
        if found:
            raise IntegrityError(f"no checkpoint in {self._folder} is intact", "join with a new home and a new key")

    def finished(self, learner: Learner, inbox: EnvelopeInbox, done: SwarmRound) -> None:
        """Write down a round. Raises MusterError where the disk does not take it."""
        self.state.next = done.round + 1
        self.state.pending.append(done.line())
        if self.state.next % self._every == 0:
            self.keep(learner, inbox)

    def keep(self, learner: Learner, inbox: EnvelopeInbox) -> None:
        """Write the checkpoint, then the journal."""
        if not self.state.pending:
            return
        lines = self.state.pending
        extra = {"next": self.state.next, "inbox": inbox.state.document(), "lines": lines}
        learner.start_checkpoint(checkpoint_path(self._folder, self.state.next), extra).wait()
        append(self.home / JOURNAL, lines)
        self.state.pending = []
        drop_old(checkpoints(self._folder), _KEPT_CHECKPOINTS)
        inbox.clean()

    def show(self, document: dict[str, Any]) -> None:
        """What `muster swarm status` reads."""
        write_atomic(self.home / STATUS, canonical_json(document))
