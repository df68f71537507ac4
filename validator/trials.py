"""Trials: vote where our seats are jurors, of a file or of a node case; have the jury's verdict recorded,
collect the fees."""

from chain.contracts import Juries
from chain.indexer.records import Pool, Submission, Trial
from chain.indexer.state import State
from protocol.config import PoolConfig
from validator import selectors
from validator.committees import Committees
from validator.fees import FeeCollection
from validator.keeper import Keeper
from validator.votes import CaseVote, TrialVote
from validator.voting import Voting
from validator.voting_round import VotingRound


class TrialHandler:
    """`config`: the pool's configuration; None where it could not be had, and no file is judged."""

    def __init__(
        self,
        juries: Juries,
        voting: Voting,
        fees: FeeCollection,
        keeper: Keeper,
        config: PoolConfig | None = None,
    ) -> None:
        self._committees, self._voting, self._fees, self._keeper = Committees(juries), voting, fees, keeper
        self._config = config

    def advance(self, state: State, pool: Pool, now: int) -> None:
        """Do what is due in every trial of the pool."""
        for trial in state.trials.values():
            if trial.pool == pool.pool:
                self._advance(state, pool, trial, now)

    def _advance(self, state: State, pool: Pool, trial: Trial, now: int) -> None:
        if trial.settled and not trial.drawn:
            return  # nobody's duty
        files, vote = self._judged(state, trial)
        file = files[0] if files else None
        jury = self._committees.of(state, trial, vote.place)
        if not trial.drawn and not trial.settled:
            self._keeper.draw_or_dismiss(state, trial, file, selectors.seats_of(state, self._voting.voters))
        if jury is None:
            return
        if trial.settled:
            self._fees.collect_trial(state, trial, jury)
            return
        # Jurors look at the rollouts that the committee looked at; of a node case at those that their own draw names,
        # which nobody knew when the case was opened.
        own_draw = file is None or state.case_of(trial.trial) is not None
        audit_seed = jury.seed if own_draw or file is None else selectors.deciding_round(state, file).seed
        voting = VotingRound(selectors.trial_place(trial), jury, files, vote, audit_seed)
        self._voting.advance(state, pool, voting, now)
        if trial.all_revealed or (trial.drawn and now >= trial.reveal_until):
            self._keeper.conclude(state, trial, file, selectors.seats_of(state, self._voting.voters))

    def _judged(self, state: State, trial: Trial) -> tuple[list[Submission], TrialVote]:
        """The files that a jury judges, and how it votes."""
        case = state.case_of(trial.trial)
        if case is not None:
            return selectors.named_files(state, case), CaseVote(trial, case, state, self._config)
        file = state.submissions[trial.pool, trial.sequence]
        return [file], TrialVote(trial, selectors.acceptance_at_stake(state, file))
