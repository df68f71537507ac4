"""Gives the answer that is owed where our seats could not judge: finds what was judged all the same, and says why the
rest was not."""

import logging
from functools import cached_property

from chain.indexer.records import Pool, Submission
from protocol.errors import printable
from protocol.identity import PoolId
from protocol.verdict import Code, Verdict
from validator import selectors
from validator.answers import answer_document, answer_due, answer_honest
from validator.collaborators import PoolCollaborators, UnopenedPool, ValidatorCollaborators
from validator.judge_queue import LaneVerdict
from validator.voting_round import VotingRound

log = logging.getLogger("muster.validator")
_SLOW = "it was not judged in time"


class OwedAnswers:
    """The answers of one pool. Every one of them is an error in the log: this machine may be at fault, and what it
    says costs the pool's owner its pay."""

    def __init__(self, shared: ValidatorCollaborators, pool: PoolCollaborators | UnopenedPool) -> None:
        self._chain, self._queue, self._verdicts = shared.chain, shared.queue, shared.verdicts
        self._pool = pool
        self._said: set[str] = set()

    def answer(self, pool: Pool, voting: VotingRound, now: int) -> tuple[LaneVerdict | None, str]:
        """The vote on files of which some are not judged, and why they are not; (None, "") while none is due, and
        where silence is more honest."""
        vote = voting.vote
        if not answer_due(pool, vote.current, now, self._block_seconds, vote.always_answers):
            return None, ""
        judged, problem = self._judged(pool, voting)
        rest = {at: file for at, file in enumerate(voting.files) if at not in judged}
        lacking = {at: printable(self._lacking(file), 300) for at, file in rest.items()}
        honest = answer_honest(tuple(lacking.values()), vote.needs_bytes, vote.blames)
        if not honest and not vote.always_answers:
            return None, ""
        why = {at: lacking[at] or printable(problem, 300) or _SLOW for at in rest}
        seed, audit_seed = voting.committee.seed, voting.audit_seed
        document = answer_document(
            voting.where, seed, self._id(pool), pool.config_hash, voting.files, audit_seed, judged, why
        )
        reason = next(iter(why.values()), "")
        self._say(pool, voting, [file.sequence for file in rest.values()], reason)
        codes = tuple(Code(verdict.code) for verdict in document.verdicts)
        return LaneVerdict(codes, self._verdicts.keep_document(document), tuple(document.verdicts)), reason

    @cached_property
    def _block_seconds(self) -> int:
        return self._chain.suite.params.block_seconds()

    def _judged(self, pool: Pool, voting: VotingRound) -> tuple[dict[int, Verdict], str]:
        """What was judged, now or before a restart, and what keeps the rest from it."""
        judged, problem = self._queue.so_far(voting.task_key)
        for at, file in enumerate(voting.files):
            kept = None if at in judged else self._kept(pool, voting, file)
            if kept is not None:
                judged[at] = kept
        if not isinstance(self._pool, UnopenedPool) and not voting.vote.needs_bytes:
            judged = {at: self._pool.judge.to_vote(verdict) for at, verdict in judged.items()}
        return judged, problem

    def _kept(self, pool: Pool, voting: VotingRound, file: Submission) -> Verdict | None:
        """The verdict that lies on disk."""
        step = pool.steps[file.step]
        if isinstance(self._pool, UnopenedPool):
            seed = self._chain.suite.step_seed(pool.pool, step)
        else:
            seed = self._pool.pool_client.seed(step)
        if seed is None:
            return None
        facts = selectors.submission_facts(self._id(pool), pool, file, seed, voting.audit_seed)
        return self._verdicts.find(facts, pool.config_hash)

    def _id(self, pool: Pool) -> PoolId:
        return PoolId(self._chain.client.chain_id, self._chain.suite.pools.address, pool.pool)

    def _lacking(self, file: Submission) -> str:
        """Why the bytes of a file could not be had; empty if they were, or were not asked for yet."""
        if isinstance(self._pool, UnopenedPool):
            return self._pool.problem()
        return self._pool.judge.lacks(file.sha256)

    def _say(self, pool: Pool, voting: VotingRound, sequences: list[int], reason: str) -> None:
        if sequences and voting.where not in self._said:
            self._said.add(voting.where)
            log.error(
                "%s: answering `unavailable` for files %s of pool %d, which COULD NOT BE JUDGED: %s (if this machine "
                "is at fault, mend it; else opt out of the pool's family: muster validator judge --stop)",
                voting.where, ", ".join(map(str, sequences)), pool.pool, reason,
            )  # fmt: skip
