"""Collects the fees of our members and jurors, once nothing of what they judged can change."""

from chain.judging import Lane, Trial
from chain.records import Submission
from chain.state import State
from validator import selectors
from validator.collaborators import ValidatorCollaborators
from validator.committees import DrawnCommittee, drawn_committee
from validator.publishing import VerdictPublisher


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
        if not lane.decided or not selectors.all_final(files, now):
            return
        missing = 0
        for current in lane.rounds:
            where = selectors.lane_place(lane, current.round)
            for member, seat, voter in drawn_committee(state, current).ours(self._voters):
                if member in current.closed:
                    continue
                missing += 1
                if member in current.reveals:
                    self._publisher.publish_later(current.reveals[member][1], state.head)
                close = self._voters[voter].court.close_member(lane.pool, lane.lane, current.round, member).send
                self._tasks.run((where, seat, "close"), state.head, f"{where} seat {seat} collects", close, quiet=True)
        if not missing:
            self._closed.add((lane.pool, lane.lane))

    def collect_trial(self, state: State, trial: Trial, jury: DrawnCommittee) -> None:
        where = selectors.trial_place(trial)
        for juror, seat, voter in jury.ours(self._voters):
            if juror not in trial.closed:
                close = self._voters[voter].juries.close_juror(trial.trial, juror).send
                self._tasks.run((where, seat, "close"), state.head, f"{where} seat {seat} collects", close, quiet=True)
