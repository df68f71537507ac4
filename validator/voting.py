"""Votes with our seats: judge, commit, reveal; the same for a lane's round and for a trial.

A file counts as unavailable when sources answer that they have none. When no source answers, or checks are not done in
time, the seat stays silent rather than guess, except in a pool that names a family: this gets its answer shortly before
the commits' end (`validator.answers`), `unavailable` for whatever is not judged by then.
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from chain.indexer.records import Pool, Submission
from chain.indexer.state import State
from chain.suite import Suite
from chain.transactions import Receipt
from validator import selectors
from validator.answering import OwedAnswers
from validator.ballots import Ballot
from validator.collaborators import PoolCollaborators, UnopenedPool, ValidatorCollaborators
from validator.committees import ours
from validator.judge_queue import JudgeTask, LaneVerdict, TaskKey
from validator.publishing import VerdictPublisher
from validator.rounds import SeatAction, last_to_commit, member_action
from validator.voting_round import VotingRound

log = logging.getLogger("muster.validator")
_UNDRAWN = bytes(32)


class Voting:
    """Casts the votes of our seats in one pool. What is not voted on from one turn to the next is not judged any
    further. In a pool that could not be opened it shows votes that were cast before, and answers. `trouble`: why the
    last vote was such an answer, empty if it was judged."""

    def __init__(
        self, shared: ValidatorCollaborators, pool: PoolCollaborators | UnopenedPool, publisher: VerdictPublisher
    ) -> None:
        self.voters, self.trouble = shared.voters, ""
        self._pool, self._publisher = pool, publisher
        self._ballots, self._queue, self._tasks = shared.ballots, shared.queue, shared.tasks
        self._answers = OwedAnswers(shared, pool)
        self._wanted: set[TaskKey] = set()
        self._lost: set[tuple[str, int]] = set()

    def advance(self, state: State, pool: Pool, voting: VotingRound, now: int) -> None:
        """Start the next action of each of our seats."""
        where, committee, vote = voting.where, voting.committee, voting.vote
        for member, seat, voter in ours(committee, self.voters):
            ready = self._ballots.ready(where, seat, committee.seed, voting.digest)
            committed = vote.current.commits.get(member)
            matching = self._ballots.committed(where, seat, committed) if committed else None
            action = member_action(vote.current, member, ready is not None, matching is not None, now)
            if action is SeatAction.JUDGE:
                ready = self._ballot(pool, voting, seat, voter, now)
            if action in (SeatAction.JUDGE, SeatAction.COMMIT) and ready is not None:
                if last_to_commit(vote.current, member):
                    cast, what = partial(self._show, vote.show_at_once, voter, member, ready), "votes"
                else:
                    cast, what = partial(vote.commit, self.voters[voter], member, ready), "commits"
                self._tasks.run((where, seat, "commit"), state.head, f"{where} seat {seat} {what}", cast)
            elif action is SeatAction.REVEAL and matching is not None:
                reveal = partial(self._show, vote.reveal, voter, member, matching)
                self._tasks.run((where, seat, "reveal"), state.head, f"{where} seat {seat} reveals", reveal)
            elif action is SeatAction.LOST and (where, seat) not in self._lost:
                self._lost.add((where, seat))
                log.error("%s: seat %d committed a vote that is not in its ballot box", where, seat)

    def look_ahead(self, pool: Pool, where: str, files: list[Submission]) -> None:
        """Judge what will be voted on before its draw: the draw then waits for nothing."""
        task = self._task(pool, where, files, b"", _UNDRAWN, 0.0)
        if task is not None:
            self._wanted.add(task.key)
            self._queue.prepare(task)

    def end_turn(self) -> set[TaskKey]:
        """All rounds were looked at: what they want judged."""
        wanted, self._wanted = self._wanted, set()
        return wanted

    def verdict(self, pool: Pool, voting: VotingRound) -> LaneVerdict | None:
        """What we vote; None while it is being judged, and where it cannot be judged yet."""
        if isinstance(self._pool, UnopenedPool):
            return None
        # A jury, which needs the bytes, has a window of its own.
        patience = self._pool.jury_patience_for(len(voting.files)) if voting.vote.needs_bytes else self._pool.patience
        seed, audit_seed = voting.committee.seed, voting.audit_seed
        task = self._task(pool, voting.where, voting.files, seed, audit_seed, patience)
        if task is None:
            return None
        vote = voting.vote
        task = replace(task, to_show=not vote.needs_bytes, as_worker=vote.as_worker, whole=vote.whole)
        self._wanted.add(task.key)
        answer = self._queue.ask(task)
        return answer.result() if answer.done() and not answer.cancelled() else None

    def _ballot(self, pool: Pool, voting: VotingRound, seat: int, voter: str, now: int) -> Ballot | None:
        """A ballot on disk before anybody hears of it."""
        verdict, trouble = self.verdict(pool, voting), ""
        if verdict is None:
            verdict, trouble = self._answers.answer(pool, voting, now)
        if verdict is None:
            return None
        self.trouble = trouble
        codes, digest, salt = voting.vote.codes(verdict), verdict.verdict_hash, secrets.token_bytes(32)
        commitment = voting.vote.at(self.voters[voter]).ballot_hash(voting.vote.place, voter, codes, digest, salt)
        seed = voting.committee.seed
        ballot = Ballot(voting.where, seat, voter, seed, voting.digest, codes, digest, salt, commitment)
        self._ballots.keep(ballot)
        return ballot

    def _show(self, show: Callable[[Suite, int, Ballot], Receipt], voter: str, member: int, ballot: Ballot) -> Receipt:
        receipt = show(self.voters[voter], member, ballot)
        self._publisher.publish(ballot.verdict_hash, receipt.block)
        return receipt

    def _task(
        self, pool: Pool, where: str, files: list[Submission], seed: bytes, audit_seed: bytes, patience: float
    ) -> JudgeTask | None:
        """What is to be judged; None while the pool is not open, or a policy step's seed is not confirmed."""
        if isinstance(self._pool, UnopenedPool):
            return None
        client, facts = self._pool.pool_client, []
        for file in files:
            step_seed = client.seed(pool.steps[file.step])
            if step_seed is None:
                return None
            facts.append(selectors.submission_facts(client.pool_id, pool, file, step_seed, audit_seed))
        mirrors = tuple(client.state.mirrors_of(file) for file in files)
        key = where, seed, selectors.files_digest(files)
        return JudgeTask(key, tuple(facts), mirrors, self._pool.judge, patience)
