"""Votes of our seats in rounds of lanes and in trials: who votes, how a vote is sent, and what is voted.

A vote is a salted commitment, then its reveal. It is judged by the judge queue, stored as a ballot, and only then sent.
"""

import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from chain.contracts import BallotContract, Committee, Court, Juries, Place
from chain.errors import ContractError
from chain.indexer.records import Lane, NodeChallenge, Panel, Pool, Submission, Trial
from chain.indexer.state import State
from chain.suite import Suite
from chain.transactions import Receipt
from protocol.config import PoolConfig
from protocol.errors import printable
from protocol.identity import PoolId
from protocol.verdict import LANE, BallotDocument, Code, Verdict, challenge_label, pack
from validator import decide
from validator.ballots import Ballot
from validator.challenges import ChallengeVerdict, judge_challenge
from validator.decide import SeatAction, last_to_commit, member_action, settler
from validator.judging.checks import SubmissionFacts, not_judged
from validator.judging.queue import JudgeTask, LaneVerdict, TaskKey
from validator.judging.verdicts import VerdictPublisher
from validator.pools import PoolCollaborators, ValidatorCollaborators

log = logging.getLogger("muster.validator")


# --- Who votes


def ours(committee: Committee, voters: Mapping[str, object]) -> Iterator[tuple[int, int, str]]:
    """Yield (member, seat, voter) of the members whose keys we hold."""
    for member, (seat, voter) in enumerate(zip(committee.seats, committee.voters, strict=True)):
        if voter in voters:
            yield member, seat, voter


def drawn_committee(state: State, current: Panel) -> Committee:
    """Return the committee of a drawn round; a voting key replaced since then counts at once, as on chain."""
    return Committee(current.seats, tuple(state.seats[seat].voter for seat in current.seats), current.seed)


class Committees:
    """Who votes in a contract's bodies."""

    def __init__(self, contract: BallotContract) -> None:
        self._contract, self._block = contract, (0, 0)
        self._forecasts: dict[Place, Committee | None] = {}

    def of(self, state: State, current: Panel, key: Place) -> Committee | None:
        """Return the committee: once drawn from events, before that from the chain's forecast, which is asked for once
        a block; None while it is not known."""
        if current.drawn:
            return drawn_committee(state, current)
        if not current.seed_block or state.head < current.seed_block:
            return None
        if self._block != (state.head, state.generation):
            self._block, self._forecasts = (state.head, state.generation), {}
        if key not in self._forecasts:
            try:
                self._forecasts[key] = self._contract.committee_of(key)
            except ContractError as error:
                log.debug("no committee: %s", error)
                self._forecasts[key] = None
        return self._forecasts[key]


# --- How a vote is sent, in a round of a lane and in a trial


_OTHERS_SECONDS, _POLL_SECONDS = 1.0, 0.1


class Vote(ABC):
    """How our seats vote in a round of a lane or in a trial, which ballots name `where` and its contract `key`. `files`
    are voted on; `audit_seed` draws the rows of theirs that are audited.

    needs_bytes: only a file whose bytes could not be had may be called unavailable.
    always_answers: a seat that could not judge casts its fallback vote whatever kept it, no matter who chose the pool.
    as_worker: files are measured by the engine that made them.
    whole: one missing file decides for all.
    """

    needs_bytes, always_answers, as_worker, whole = False, False, False, False

    def __init__(
        self, where: str, key: Place, current: Panel, committee: Committee, files: list[Submission], audit_seed: bytes
    ) -> None:
        self.where, self.key, self.current, self.committee = where, key, current, committee
        self.files, self.audit_seed = files, audit_seed

    @property
    def task_key(self) -> TaskKey:
        """What the judge queue and the ballots know it by."""
        return self.where, self.committee.seed, decide.files_digest(self.files)

    @abstractmethod
    def codes(self, verdict: LaneVerdict) -> int:
        """Encode a verdict as the contract takes it."""

    @abstractmethod
    def at(self, suite: Suite) -> BallotContract:
        """Return the contract that takes the votes."""

    def commit(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        """Send the hidden vote as member `member`."""
        return self.at(suite).commit(self.key, member, ballot.commitment).send()

    def commit_and_reveal(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        """Commit and reveal in one transaction, as the last member to commit."""
        return self.at(suite).vote(self.key, member, *ballot.opening).send()

    def reveal(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        return self.at(suite).reveal(self.key, member, *ballot.opening).send()


class LaneVote(Vote):
    """A vote in the newest round of a lane with `lane_files`. The member whose turn it is settles with its reveal."""

    def __init__(self, lane: Lane, committee: Committee, lane_files: list[Submission]) -> None:
        current = lane.round
        where, key = decide.round_name(lane, current.round), (lane.pool, lane.lane, current.round)
        super().__init__(where, key, current, committee, decide.judged_files(lane, lane_files), committee.seed)
        self._lane, self._lane_files = lane.lane, lane_files

    def codes(self, verdict: LaneVerdict) -> int:
        by_place = {file.place: code for file, code in zip(self.files, verdict.codes, strict=True)}
        return pack([by_place.get(position, Code.NONE) for position in range(LANE)])

    def at(self, suite: Suite) -> Court:
        return suite.court

    def reveal(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        if self.current.all_committed and settler(self.current, self._lane) == member:
            # The others reveal at the same moment: waiting a second is worth a block, waiting longer is not.
            deadline = time.monotonic() + _OTHERS_SECONDS
            while time.monotonic() < deadline:
                try:
                    return suite.court.reveal_and_settle(self.key, member, *ballot.opening, self._lane_files).send()
                except ContractError as error:
                    log.debug("lane %d is not settled with a reveal: %s", self._lane, error)
                    if error.tx_hash or error.name != "NotSettleable":
                        break
                time.sleep(_POLL_SECONDS)
        return super().reveal(suite, member, ballot)


class TrialVote(Vote):
    """A vote in a jury on one file, by the rows that `audit_seed` draws, or else the jury's own seed."""

    needs_bytes = True

    def __init__(self, trial: Trial, jury: Committee, files: list[Submission], audit_seed: bytes = b"") -> None:
        super().__init__(decide.trial_name(trial), (trial.trial,), trial, jury, files, audit_seed or jury.seed)

    def codes(self, verdict: LaneVerdict) -> int:
        return int(verdict.codes[0])

    def at(self, suite: Suite) -> Juries:
        return suite.juries


class ChallengeVote(TrialVote):
    """A vote in the jury of a node challenge; `config` is the pool's, None where it could not be had.

    A challenger can name files of any age, whose bytes or weights nobody has any more, and more of them than there is
    time for. A juror's silence would be fined then and cost the challenger nothing. So a juror always answers; where
    most answer `unavailable`, nobody loses but the challenger, what their attempts are worth.
    """

    always_answers, as_worker, whole = True, True, True

    def __init__(
        self,
        trial: Trial,
        jury: Committee,
        files: list[Submission],
        challenge: NodeChallenge,
        state: State,
        config: PoolConfig | None,
    ) -> None:
        super().__init__(trial, jury, files)
        self._challenge, self._state, self._config = challenge, state, config

    def codes(self, verdict: LaneVerdict) -> int:
        challenge, config = self._challenge, self._config
        if config is None:
            judged = ChallengeVerdict(Code.UNAVAILABLE, "the pool's configuration cannot be had")
        else:
            history = self._state.submissions_of(challenge.pool, challenge.node)
            judged = judge_challenge(
                challenge,
                history,
                config.evidence,
                {file_verdict.sequence: file_verdict for file_verdict in verdict.verdicts},
            )
        vote = challenge_label(judged.code)
        log.info("challenge %d of %s: %s: %s", challenge.challenge, challenge.node, vote, judged.why)
        return int(judged.code)


# --- Fallback votes: what a seat votes where it could not judge


_SLOW = "it was not judged in time"


def fallback_margin(window: int, block_seconds: int) -> int:
    """Return how many seconds before the end of a commit window a fallback vote is due: a tenth of it, at least six
    blocks (the transaction may be lost once, or late), at most half of it."""
    return min(window // 2, max(6 * block_seconds, window // 10))


def fallback_due(pool: Pool, panel: Panel, now: int, block_seconds: int, always: bool = False) -> bool:
    """Whether a drawn member that has not judged has to vote rather than go on trying. In a pool that its seats chose
    by its number, only what is `always` answered."""
    if (pool.validator_group == pool.pool and not always) or not panel.drawn or panel.settled:
        return False
    margin = fallback_margin(panel.commit_until - panel.drawn_time, block_seconds)
    return panel.commit_until - margin <= now < panel.commit_until


def fallback_honest(lacking: Sequence[str], needs_bytes: bool) -> bool:
    """Whether files that are not judged may be called unavailable; `lacking`: for each why its bytes could not be had,
    empty if they were.

    A committee always may: accept and unavailable never contradict each other, so only the pool's owner bears it, who
    reached for strangers' machines with a model and windows of its own choice. A jury may only where the bytes were not
    had (`needs_bytes`: a disputer would pay for showing them).
    """
    return not lacking or all(lacking) or not needs_bytes


_MOST_REPORTED = 1000


class Voting:
    """Casts the votes of our seats in one pool: judge, commit, reveal.

    A file counts as unavailable when sources answer that they have none. When no source answers, or checks are not done
    in time, the seat stays silent rather than guess, except where a fallback vote is due. What is not voted on from one
    turn to the next is not judged any further. In a pool that is not open (`problem`: why) it reveals votes that were
    cast before and casts fallback votes. `trouble`: why the last vote was a fallback vote, empty if it was judged.
    """

    def __init__(
        self,
        shared: ValidatorCollaborators,
        pool: PoolCollaborators | None,
        publisher: VerdictPublisher,
        problem: Callable[[], str] = str,
    ) -> None:
        self.voters, self.trouble = shared.voters, ""
        self._chain, self._pool, self._publisher, self._problem = shared.chain, pool, publisher, problem
        self._ballots, self._queue, self._tasks = shared.ballots, shared.queue, shared.tasks
        self._verdicts = shared.verdicts
        self._wanted: set[TaskKey] = set()
        self._reported: dict[str, None] = {}

    def advance(self, state: State, pool: Pool, vote: Vote, now: int) -> None:
        """Do what is due for each of our members. A vote belongs to the key that committed it, also after the seat has
        named another: only that key can reveal it."""
        task, seed, digest = vote.task_key
        for member, (seat, voter) in enumerate(zip(vote.committee.seats, vote.committee.voters, strict=True)):
            committed = vote.current.commits.get(member)
            matching = self._ballots.committed(task, seat, committed) if committed else None
            if matching is not None and matching.voter not in self.voters:
                if voter in self.voters and self._is_news(f"{task} {seat} key"):
                    log.error(
                        "%s: seat %d committed its vote by the key %s, which alone can reveal it: name that key in "
                        "`voters`, too, or the seat is fined", task, seat, matching.voter,
                    )  # fmt: skip
                continue
            voter = matching.voter if matching is not None else voter
            if voter not in self.voters:
                continue
            ready = self._ballots.ready(task, seat, seed, digest, voter)
            action = member_action(vote.current, member, ready is not None, matching is not None, now)
            if action is SeatAction.JUDGE:
                ready = self._ballot(pool, vote, seat, voter, now)
            if action in (SeatAction.JUDGE, SeatAction.COMMIT) and ready is not None:
                if last_to_commit(vote.current, member):
                    cast, verb = partial(self._reveal, vote.commit_and_reveal, voter, member, ready), "votes"
                else:
                    cast, verb = partial(vote.commit, self.voters[voter], member, ready), "commits"
                self._tasks.run((task, seat, "commit"), state.head, f"{task} seat {seat} {verb}", cast)
            elif action is SeatAction.REVEAL and matching is not None:
                reveal = partial(self._reveal, vote.reveal, voter, member, matching)
                self._tasks.run((task, seat, "reveal"), state.head, f"{task} seat {seat} reveals", reveal)
            elif action is SeatAction.LOST and committed and self._is_news(f"{task} {seat}"):
                why = self._ballots.why_lost(task, seat, committed)
                log.error("%s: seat %d CANNOT REVEAL the vote that it committed, and is fined: %s", task, seat, why)

    def end_turn(self) -> set[TaskKey]:
        """Return what all rounds of this turn want judged."""
        wanted, self._wanted = self._wanted, set()
        return wanted

    def verdict(self, pool: Pool, vote: Vote) -> LaneVerdict | None:
        """Return what we vote; None while it is being judged, and where it cannot be judged: while the pool is not
        open, or a policy step's seed not confirmed."""
        if self._pool is None:
            return None
        facts = tuple(self._facts(pool, file, vote.audit_seed) for file in vote.files)
        if any(file_facts.work.step_seed == bytes(32) for file_facts in facts):
            return None
        task = JudgeTask(
            vote.task_key,
            facts,
            tuple(self._pool.pool_client.state.mirrors_of(file) for file in vote.files),
            self._pool.judge,
            # A jury, which needs the bytes, has a window of its own.
            self._pool.jury_patience_for(len(facts)) if vote.needs_bytes else self._pool.patience,
            to_show=not vote.needs_bytes,
            as_worker=vote.as_worker,
            whole=vote.whole,
        )
        self._wanted.add(task.key)
        answer = self._queue.ask(task)
        return answer.result() if answer.done() and not answer.cancelled() else None

    def _ballot(self, pool: Pool, vote: Vote, seat: int, voter: str, now: int) -> Ballot | None:
        """Store a ballot on disk before anybody hears of it."""
        verdict, trouble = self.verdict(pool, vote), ""
        if verdict is None:
            verdict, trouble = self._fallback_vote(pool, vote, now)
        if verdict is None:
            return None
        self.trouble = trouble
        where, seed, files = vote.task_key
        codes, digest, salt = vote.codes(verdict), verdict.verdict_hash, secrets.token_bytes(32)
        commitment = vote.at(self.voters[voter]).ballot_hash(vote.key, voter, codes, digest, salt)
        ballot = Ballot(where, seat, voter, seed, files, codes, digest, salt, commitment)
        self._ballots.keep(ballot)
        return ballot

    def _reveal(
        self, send: Callable[[Suite, int, Ballot], Receipt], voter: str, member: int, ballot: Ballot
    ) -> Receipt:
        receipt = send(self.voters[voter], member, ballot)
        self._publisher.publish(ballot.verdict_hash, receipt.block)
        return receipt

    def _fallback_vote(self, pool: Pool, vote: Vote, now: int) -> tuple[LaneVerdict | None, str]:
        """Return the vote on files of which some are not judged, and why they are not; (None, "") while none is due,
        and where silence is more honest.

        A pool of a validator group reaches seats that never chose it. All they owe it is a vote, and `unavailable` is
        never fined. Every such vote is logged as an error: this machine may be at fault, and the vote costs the owner
        its pay.
        """
        opened = self._pool
        if not fallback_due(pool, vote.current, now, self._block_seconds, vote.always_answers):
            return None, ""
        judged, problem = self._queue.so_far(vote.task_key)
        problem = printable(problem, 300) or _SLOW
        verdicts, missing = list[Verdict](), dict[int, str]()  # why, by sequence; empty if the bytes were had
        for at, file in enumerate(vote.files):
            facts = self._facts(pool, file, vote.audit_seed)
            verdict = judged.get(at) or self._verdicts.find(facts, pool.config_hash)
            if verdict is None:
                lacks = printable(opened.judge.lacks(file.sha256) if opened else self._problem(), 300)
                missing[file.sequence] = lacks
                verdict = not_judged(facts, pool.config_hash, lacks or problem)
            elif opened and not vote.needs_bytes:
                verdict = opened.judge.to_vote(verdict)
            verdicts.append(verdict)
        if not fallback_honest(tuple(missing.values()), vote.needs_bytes) and not vote.always_answers:
            return None, ""
        reason = next((why or problem for why in missing.values()), "")
        if missing and self._is_news(vote.where):
            log.error(
                "%s: voting `unavailable` on files %s of pool %d, which COULD NOT BE JUDGED: %s (if this machine is at "
                "fault, mend it; else opt out of the pool's validator group: muster validator judge --stop)",
                vote.where, ", ".join(map(str, missing)), pool.pool, reason,
            )  # fmt: skip
        document = BallotDocument(vote.where, vote.committee.seed.hex(), tuple(verdicts))
        codes = tuple(verdict.code for verdict in verdicts)
        return LaneVerdict(codes, self._verdicts.keep_document(document), document.verdicts), reason

    @cached_property
    def _block_seconds(self) -> int:
        return self._chain.suite.params.block_seconds()

    def _is_news(self, what: str) -> bool:
        """Whether something is reported for the first time, as far as the last thousand reports tell."""
        if what in self._reported:
            return False
        self._reported[what] = None
        while len(self._reported) > _MOST_REPORTED:
            del self._reported[next(iter(self._reported))]
        return True

    def _facts(self, pool: Pool, file: Submission, audit_seed: bytes) -> SubmissionFacts:
        """Return a file's facts; the seed of its policy step is zero until it is confirmed."""
        step, suite = pool.steps[file.step], self._chain.suite
        seed = self._pool.pool_client.seed(step) if self._pool else suite.step_seed(pool.pool, step)
        pool_id = PoolId(self._chain.client.chain_id, suite.pools.address, pool.pool)
        return decide.submission_facts(pool_id, pool, file, seed or bytes(32), audit_seed)
