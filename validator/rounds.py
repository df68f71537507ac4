"""What a seat does next in a round of a lane (or in a jury): a pure function of the chain and its own ballot."""

from enum import Enum

from chain.indexer.records import Panel


class SeatAction(Enum):
    """The next step of one seat, or of a keeper."""

    WAIT = "wait"
    JUDGE = "judge"
    COMMIT = "commit"
    REVEAL = "reveal"
    LOST = "lost"
    DONE = "done"


def reveals_open(panel: Panel, now: int) -> bool:
    """Reveals are taken once all have committed, or from the end of the commit window on."""
    return panel.drawn and (panel.all_committed or now >= panel.commit_until) and now < panel.reveal_until


def settleable(panel: Panel, now: int) -> bool:
    """Whether anyone may tally: everybody has revealed; or commits have ended and all who committed have revealed; or
    the reveal window is over."""
    if not panel.drawn or panel.settled:
        return False
    if panel.all_revealed:
        return True
    return now >= (panel.commit_until if panel.commits.keys() == panel.reveals.keys() else panel.reveal_until)


def member_action(panel: Panel, member: int, ballot_ready: bool, ballot_matches: bool, now: int) -> SeatAction:
    """The next action of a member of a committee that is known, drawn or not.

    `ballot_ready`: a judged ballot for this very seed lies on disk. `ballot_matches`: a stored ballot hashes to the
    commitment on chain. `now` is the time of the newest block. After a reorganisation the commitment is gone or the
    seed another one: the same rules then lead to judging or committing again.
    """
    if panel.settled:
        return SeatAction.DONE
    if member in panel.reveals:
        return SeatAction.WAIT
    if member in panel.commits:
        if now >= panel.reveal_until:
            return SeatAction.DONE
        if not ballot_matches:
            return SeatAction.LOST
        return SeatAction.REVEAL if reveals_open(panel, now) else SeatAction.WAIT
    if panel.drawn and now >= panel.commit_until:
        return SeatAction.DONE
    return SeatAction.COMMIT if ballot_ready else SeatAction.JUDGE


def last_to_commit(panel: Panel, member: int) -> bool:
    """Whether all others of a drawn body are bound by a commitment, and the member is not yet: nobody could copy its
    vote if it is shown at once."""
    return panel.drawn and panel.commits.keys() | {member} == set(range(len(panel.seats))) and not panel.all_committed


def settler(panel: Panel, number: int) -> int:
    """The member whose reveal settles lane `number`, once all have committed: one of those who did not show their vote
    at once. The last to commit at most did, so somebody is left."""
    hidden = sorted(member for member, commitment in panel.commits.items() if commitment)
    return hidden[turn(number, len(hidden))]


def turn(number: int, members: int) -> int:
    """The member whose turn it is to settle lane (or conclude trial) `number`: everybody's equally often."""
    return number % members
