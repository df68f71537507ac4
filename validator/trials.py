"""Trials: vote where our seats are jurors, have the jury's verdict recorded, collect the fees."""

from chain.contracts.court import Juries
from chain.judging import Trial
from chain.records import Pool
from chain.state import State
from validator import selectors
from validator.committees import Committees
from validator.fees import FeeCollection
from validator.keeper import Keeper
from validator.votes import TrialVote
from validator.voting import Voting
from validator.voting_round import VotingRound


class TrialHandler:
    def __init__(self, juries: Juries, voting: Voting, fees: FeeCollection, keeper: Keeper) -> None:
        self._committees, self._voting, self._fees, self._keeper = Committees(juries), voting, fees, keeper

    def advance(self, state: State, pool: Pool, now: int) -> None:
        """Do what is due in every trial of the pool."""
        for trial in state.trials.values():
            if trial.pool == pool.pool:
                self._advance(state, pool, trial, now)

    def _advance(self, state: State, pool: Pool, trial: Trial, now: int) -> None:
        if trial.settled and not trial.drawn:
            return  # nobody's duty
        files = [state.submissions[trial.pool, trial.sequence]]
        vote = TrialVote(trial, selectors.acceptance_at_stake(state, files[0]))
        jury = self._committees.of(state, trial, vote.place)
        if not trial.drawn and not trial.settled:
            self._keeper.draw_or_dismiss(state, trial, files[0], selectors.seats_of(state, self._voting.voters))
        if jury is None:
            return
        if trial.settled:
            self._fees.collect_trial(state, trial, jury)
            return
        # Jurors look at the rollouts that the committee looked at.
        audit_seed = selectors.deciding_round(state, files[0]).seed
        voting = VotingRound(selectors.trial_place(trial), jury, files, vote, audit_seed)
        self._voting.advance(state, pool, voting, now)
        if trial.all_revealed or (trial.drawn and now >= trial.reveal_until):
            self._keeper.conclude(state, trial, files[0], selectors.seats_of(state, self._voting.voters))
