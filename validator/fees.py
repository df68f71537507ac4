"""Collects the fees of our members and jurors, once nothing of what they judged can change."""

from chain.contracts.court import Committee
from chain.judging import Lane, Trial
from chain.records import Submission
from chain.state import State
from validator import selectors
from validator.collaborators import ValidatorCollaborators
from validator.committees import drawn_committee, ours
from validator.publishing import VerdictPublisher
from validator.votes import LaneVote, TrialVote, Vote


class FeeCollection:
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
        if not lane.round.settled or not all(file.is_final(now) for file in files):
            return  # an outcome that can still change pays nobody
        missing = 0
        for current in lane.rounds:
            where, committee = selectors.lane_place(lane, current.round), drawn_committee(state, current)
            for member in self._collect(state, where, committee, LaneVote(lane, current, files)):
                missing += 1
                if member in current.reveals:
                    self._publisher.publish_later(current.reveals[member][1], state.head)
        if not missing:
            self._closed.add((lane.pool, lane.lane))

    def collect_trial(self, state: State, trial: Trial, jury: Committee) -> None:
        self._collect(state, selectors.trial_place(trial), jury, TrialVote(trial))

    def _collect(self, state: State, where: str, committee: Committee, vote: Vote) -> list[int]:
        """Start what is due, and return those of our members whose fee is still open."""
        missing = []
        for member, seat, voter in ours(committee, self._voters):
            if member not in vote.current.closed:
                missing.append(member)
                close = vote.at(self._voters[voter]).close(vote.place, member).send
                self._tasks.run((where, seat, "close"), state.head, f"{where} seat {seat} collects", close, quiet=True)
        return missing
