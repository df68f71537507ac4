"""What a member keeps: checkpoint, journal and status, which a kill leaves whole or absent.

The journal has one line of canonical JSON per round that the weights were trained in, with the groups it trained on. A
round's line is part of its checkpoint and is copied to the journal afterwards, so no kill can leave weights that
contain a group which the journal does not name."""

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.files import drop_old, remove_leftovers, write_atomic
from swarm.inbox import EnvelopeInbox, InboxState

if TYPE_CHECKING:
    from trainer.learner import Learner

log = logging.getLogger("muster.swarm")
JOURNAL, STATUS = "journal.jsonl", "status.json"
_KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class SwarmRound:
    """The result of a round. `reward`: mean of the `own` groups' rewards; `shared`: names of the peers' groups trained
    on; `signal`: how many groups had an advantage; `unfit`, `doubted`: drawn groups that were left out; `taken`: new
    true envelopes; `alone`: whether the exchange was unreachable; `held_out`: measurements as (rounds trained,
    reward)."""

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
        """Return the journal's line."""
        return {**vars(self), "shared": list(self.shared), "held_out": [list(pair) for pair in self.held_out]}


class MemberProgress:
    """Checkpoints, journal and status in `home`. `next` is the round to come. One process at a time."""

    def __init__(self, home: Path) -> None:
        self.home, self._folder, self._journal = home, home / "checkpoints", home / JOURNAL
        self._folder.mkdir(parents=True, exist_ok=True)
        self.next = 0
        self._newest: int | None = None  # round in the journal, once it was read

    def resume(self, learner: "Learner", inbox: EnvelopeInbox) -> None:
        """Load the newest intact checkpoint, if there is any. Raise IntegrityError if there are checkpoints and none is
        intact: starting over would train again on what the journal names."""
        from trainer.checkpoint import checkpoints

        for folder in (self.home, self._folder):  # the policy's leftovers lie in the home itself
            remove_leftovers(folder)
        saved = checkpoints(self._folder)
        for path in reversed(saved):
            try:
                extra = learner.load_checkpoint(path)
            except IntegrityError as error:
                log.warning("%s", error)
                inbox.forget_known()
                continue
            self.next = extra["next"]
            inbox.restore(InboxState.model_validate(extra["inbox"]))
            # Later rounds are made again: their weights are lost.
            kept = [line for line in read_journal(self._journal) if line["round"] < self.next]
            write_atomic(self._journal, b"".join(canonical_json(line) + b"\n" for line in kept))
            self._newest = kept[-1]["round"] if kept else -1
            self._append(extra["lines"])
            log.info("resumed at round %d", self.next)
            return
        if saved:
            raise IntegrityError(f"no checkpoint in {self._folder} is intact", "join with a new home and a new key")

    def finished(self, learner: "Learner", inbox: EnvelopeInbox, result: SwarmRound) -> None:
        """Record a round: its checkpoint, then its line of the journal. Raise MusterError if the disk refuses it."""
        from trainer.checkpoint import checkpoint_path, checkpoints

        self.next, lines = result.round + 1, [result.line()]
        extra = {"next": self.next, "inbox": inbox.state.model_dump(mode="json"), "lines": lines}
        learner.start_checkpoint(checkpoint_path(self._folder, self.next), extra).wait()
        self._append(lines)
        drop_old(checkpoints(self._folder), _KEPT_CHECKPOINTS)
        inbox.clean()

    def show(self, document: dict[str, Any]) -> None:
        """Write what `muster swarm status` reads."""
        write_atomic(self.home / STATUS, canonical_json(document))

    def _append(self, lines: list[dict[str, Any]]) -> None:
        """Add the lines whose round is not in the journal yet. Only the first time is the journal read: a kill may have
        cut off its last line."""
        if self._newest is None:
            known = read_journal(self._journal)
            self._newest = known[-1]["round"] if known else -1
            self._journal.touch()
            os.truncate(self._journal, self._journal.read_bytes().rfind(b"\n") + 1)
        new = [line for line in lines if line["round"] > self._newest]
        with self._journal.open("ab") as file:
            file.writelines(canonical_json(line) + b"\n" for line in new)
            file.flush()
            os.fsync(file.fileno())
        self._newest = new[-1]["round"] if new else self._newest


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the rounds of a journal, without a last line that a kill cut off."""
    lines = path.read_bytes().split(b"\n") if path.is_file() else [b""]
    return [json.loads(line) for line in lines[:-1] if line]


def measured(lines: Iterable[dict[str, Any]]) -> list[tuple[int, float]]:
    """Return a member's measurements in order, as (rounds trained, held-out reward)."""
    return [(trained, reward) for line in lines for trained, reward in line.get("held_out", ())]
