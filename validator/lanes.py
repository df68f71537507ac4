"""Lanes from the first file to the last fee: vote where our seats are drawn, judge ahead, settle, collect."""

from chain.contracts import Court
from chain.indexer.records import Lane, Pool, Submission
from chain.indexer.state import State
from validator import selectors
from validator.committees import Committees
from validator.fees import FeeCollection
from validator.keeper import Keeper
from validator.votes import LaneVote
from validator.voting import Voting
from validator.voting_round import VotingRound

_LIKELY = 0.5


class LaneHandler:
    def __init__(self, court: Court, voting: Voting, fees: FeeCollection, keeper: Keeper) -> None:
        self._committees, self._voting, self._fees, self._keeper = Committees(court), voting, fees, keeper

    def advance(self, state: State, pool: Pool, now: int) -> None:
        """Do what is due in every lane of the pool that may still need us, oldest first."""
        seats = selectors.seats_of(state, self._voting.voters)
        for (number, _), lane in sorted(state.lanes.items()):
            if number != pool.pool or self._fees.is_closed(lane):
                continue
            files = state.files_of(lane)
            if not lane.round.settled:
                self._vote(state, pool, lane, files, now)
            self._keeper.settle(state, lane, files, seats, now)
            self._fees.collect_lane(state, lane, files, now)

    def _vote(self, state: State, pool: Pool, lane: Lane, files: list[Submission], now: int) -> None:
        current, where = lane.round, selectors.lane_place(lane, lane.round.round)
        judged = selectors.judged_files(lane, files)
        vote = LaneVote(lane, current, files, judged)
        committee = self._committees.of(state, current, vote.place)
        if committee is not None:
            self._voting.advance(state, pool, VotingRound(where, committee, judged, vote, committee.seed), now)
        elif selectors.chance(state, self._voting.voters, pool) >= _LIKELY:
            self._voting.look_ahead(pool, where, judged or files)
