"""What a seat does next in a round of a lane (or in a jury): a pure function of the chain and its own ballot."""

from dataclasses import dataclass
from enum import Enum


class SeatAction(Enum):
    """The next step of one seat, or of a keeper."""

    WAIT = "wait"
    JUDGE = "judge"
    COMMIT = "commit"
    REVEAL = "reveal"
    LOST = "lost"
    DONE = "done"


@dataclass(frozen=True)
class RoundView:
    """A round (or trial) as the chain shows it. Bitmaps have bit j for member j; times are Unix seconds, 0 before the
    draw; `known` says whether the committee is known yet."""

    known: bool
    drawn: bool
    members: int
    committed: int
    revealed: int
    settled: bool
    commit_until: int
    reveal_until: int

    @property
    def everyone(self) -> int:
        return (1 << self.members) - 1

    def reveals_open(self, now: int) -> bool:
        """Reveals are taken once all have committed, or from the end of the commit window on."""
        everybody = self.committed & self.everyone == self.everyone
        return self.drawn and (everybody or now >= self.commit_until) and now < self.reveal_until

    def settleable(self, now: int) -> bool:
        """Whether anyone may tally: everybody has revealed; or commits have ended and all who committed have revealed;
        or the reveal window is over."""
        if not self.drawn or self.settled:
            return False
        if self.revealed & self.everyone == self.everyone:
            return True
        return now >= (self.commit_until if self.committed == self.revealed else self.reveal_until)


def member_action(view: RoundView, member: int, ballot_ready: bool, ballot_matches: bool, now: int) -> SeatAction:
    """The next action of a member.

    `ballot_ready`: a judged ballot for this very seed lies on disk. `ballot_matches`: a stored ballot hashes to the
    commitment on chain. `now` is the time of the newest block. After a reorganisation the commitment is gone or the
    seed another one: the same rules then lead to judging or committing again.
    """
    if not view.known:
        return SeatAction.WAIT
    if view.settled:
        return SeatAction.DONE
    bit = 1 << member
    if view.revealed & bit:
        return SeatAction.WAIT
    if view.committed & bit:
        if now >= view.reveal_until:
            return SeatAction.DONE
        if not ballot_matches:
            return SeatAction.LOST
        return SeatAction.REVEAL if view.reveals_open(now) else SeatAction.WAIT
    if view.drawn and now >= view.commit_until:
        return SeatAction.DONE
    return SeatAction.COMMIT if ballot_ready else SeatAction.JUDGE


def turn(number: int, members: int) -> int:
    """The member whose turn it is to settle lane (or conclude trial) `number`: everybody's equally often."""
    return number % members
