"""Collects the fees of our members and jurors, once nothing of what they judged can change."""

from chain.contracts import Committee
from chain.indexer.records import Lane, Panel, Submission, Trial
from chain.indexer.state import State
from validator import selectors
from validator.collaborators import ValidatorCollaborators
from validator.committees import drawn_committee, ours
from validator.publishing import VerdictPublisher
from validator.votes import LaneVote, TrialVote, Vote

_LONGEST_PAUSE = 60.0
"""Seconds between two tries: what was due and could not be collected is in no hurry."""


class FeeCollection:
    """Asks for no fee before the moment from which the contract pays it."""

    def __init__(self, collaborators: ValidatorCollaborators, publisher: VerdictPublisher) -> None:
        self._voters, self._tasks, self._publisher = collaborators.voters, collaborators.tasks, publisher
        self._closed: set[tuple[int, int]] = set()

    def is_closed(self, lane: Lane) -> bool:
        """Whether every member of ours has got its fee."""
        return (lane.pool, lane.lane) in self._closed

    def forget(self) -> None:
        """After a reorganisation: what was collected may not be any more."""
        self._closed.clear()

    def collect_lane(self, state: State, lane: Lane, files: list[Submission], now: int) -> None:
        if not lane.round.settled:
            return
        # A dispute may be over long before the window in which all else could be disputed.
        window_over = now >= lane.round.settled_time + state.pools[lane.pool].terms.challengeWindow
        final, missing = window_over and all(file.is_final(now) for file in files), 0
        for current in lane.rounds:
            where, committee = selectors.lane_place(lane, current.round), drawn_committee(state, current)
            self._publish(state, committee, current)
            if final:  # an outcome that can still change pays nobody
                missing += self._collect(state, where, committee, LaneVote(lane, current, files))
        if final and not missing:
            self._closed.add((lane.pool, lane.lane))

    def collect_trial(self, state: State, trial: Trial, jury: Committee) -> None:
        self._publish(state, jury, trial)
        self._collect(state, selectors.trial_place(trial), jury, TrialVote(trial))

    def _publish(self, state: State, committee: Committee, current: Panel) -> None:
        """What a kill right after a reveal kept from it, or a service that did not answer."""
        for member, _, _ in ours(committee, self._voters):
            if member in current.reveals:
                self._publisher.publish(current.reveals[member][1], state.head)

    def _collect(self, state: State, where: str, committee: Committee, vote: Vote) -> int:
        """Start what is due, and return how many of our members' fees are still open."""
        missing = 0
        for member, seat, voter in ours(committee, self._voters):
            if member not in vote.current.closed:
                missing += 1
                close = vote.at(self._voters[voter]).close(vote.place, member).send
                key, what = (where, seat, "close"), f"{where} seat {seat} collects"
                self._tasks.run(key, state.head, what, close, quiet=True, longest=_LONGEST_PAUSE)
        return missing
