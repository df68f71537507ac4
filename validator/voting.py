"""What a seat says where it could not judge. A pool that names a family reaches seats that never chose it: all they owe
it is an answer, and the answer `unavailable` is never fined. Pure."""

import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from chain.contracts import BallotContract, Committee, Court, Juries, Place
from chain.errors import ContractError
from chain.indexer.records import Accusation, Lane, Panel, Pool, Round, Submission, Trial
from chain.indexer.state import State
from chain.suite import Suite
from chain.transactions import Receipt
from protocol.config import PoolConfig
from protocol.errors import printable
from protocol.identity import PoolId, WorkId
from protocol.verdict import LANE, BallotDocument, Code, Finding, Verdict, pack
from validator import rounds
from validator.ballots import Ballot
from validator.challenges import ChallengeVerdict, judge_challenge, null_model_of
from validator.judging.queue import JudgeTask, LaneVerdict, TaskKey
from validator.judging.verdicts import VerdictPublisher
from validator.pools import PoolCollaborators, UnopenedPool, ValidatorCollaborators
from validator.rounds import SeatAction, last_to_commit, member_action, settler

_BLOCKS, _TENTH = 6, 10


def answer_margin(window: int, block_seconds: int) -> int:
    """Seconds before the end of a commit window of `window` seconds from which on an answer is due: a tenth of it, at
    least six blocks (the transaction may be lost once, or late), at most half of it."""
    return min(window // 2, max(_BLOCKS * block_seconds, window // _TENTH))


def answer_due(pool: Pool, panel: Panel, now: int, block_seconds: int, always: bool = False) -> bool:
    """Whether a drawn member that has not judged has to answer now rather than go on trying. Never before the draw,
    for until then silence is free; in a pool that its seats chose by its number only for what is `always` answered."""
    if (pool.validator_group == pool.pool and not always) or not panel.drawn or panel.settled:
        return False
    margin = answer_margin(panel.commit_until - panel.drawn_time, block_seconds)
    return panel.commit_until - margin <= now < panel.commit_until


def answer_honest(lacking: Sequence[str], needs_bytes: bool, blames: bool) -> bool:
    """Whether files that are not judged may be called unavailable; `lacking`: for each why its bytes could not be had,
    empty if they were. A committee may always: accept and unavailable never contradict each other, so the pool's owner
    alone bears it, who reached for strangers' machines with a model and windows of its own choice. A jury may only
    where the bytes were not had (`needs_bytes`: a disputer would pay for showing them), and never where its verdict
    `blames` the seats that accepted the file, who may have done no wrong."""
    return not lacking or (not blames and (all(lacking) or not needs_bytes))


def answer_document(
    where: str,
    seed: bytes,
    pools: PoolId,
    config_hash: bytes,
    files: Sequence[Submission],
    audit_seed: bytes,
    judged: Mapping[int, Verdict],
    why: Mapping[int, str],
) -> BallotDocument:
    """The verdicts on the files at the places in `judged`, and `unavailable` for all others; `why` says for what
    reason."""

    def unavailable(at: int, file: Submission) -> Verdict:
        return Verdict(
            **WorkId(pools, file.node, file.step, file.counter).flat(),
            sequence=file.sequence,
            sha256=file.sha256.hex(),
            lane_seed=audit_seed.hex(),
            config_hash=config_hash.hex(),
            code=Code.UNAVAILABLE,
            engine={},
            audited=[],
            findings=(Finding("answer", Code.UNAVAILABLE, {}, why[at]),),
        )

    verdicts = tuple(judged[at] if at in judged else unavailable(at, file) for at, file in enumerate(files))
    return BallotDocument(where, seed.hex(), verdicts)


# ~ How a seat votes in a round of a lane, and in a trial: the same steps on two contracts.


log = logging.getLogger("muster.validator")
_OTHERS_SECONDS, _LOOK_SECONDS = 1.0, 0.1


class Vote(ABC):
    """How a seat votes at `place`: in a round of a lane, or in a trial. `needs_bytes`: whether only a file whose bytes
    could not be had is to be called unavailable; `blames`: whether that outcome has other seats fined;
    `always_answers`: whether a seat that could not judge says so whatever kept it, and whoever chose the pool;
    `as_worker`: whether files are measured by the engine that made them; `whole`: whether one that is missing decides
    for all."""

    needs_bytes, blames, always_answers, as_worker, whole = False, False, False, False, False

    def __init__(self, place: Place, current: Panel) -> None:
        self.place, self.current = place, current

    @abstractmethod
    def codes(self, verdict: LaneVerdict) -> int:
        """A verdict as the contract takes it."""

    @abstractmethod
    def at(self, suite: Suite) -> BallotContract:
        """The contract that takes the votes."""

    def commit(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        """Send the hidden vote as member `member`."""
        return self.at(suite).commit(self.place, member, ballot.commitment).send()

    def show_at_once(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        """Commit and show it in one transaction, as the last member to commit."""
        return self.at(suite).vote(self.place, member, ballot.codes, ballot.verdict_hash, ballot.salt).send()

    def reveal(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        """Show it."""
        return self.at(suite).reveal(self.place, member, ballot.codes, ballot.verdict_hash, ballot.salt).send()


class LaneVote(Vote):
    """`files` are the lane's, `judged` those that the round votes on. The member whose turn it is settles with its
    reveal."""

    def __init__(
        self, lane: Lane, current: Round, files: Sequence[Submission], judged: Sequence[Submission] = ()
    ) -> None:
        super().__init__((lane.pool, lane.lane, current.round), current)
        self._lane, self._files, self._judged = lane.lane, files, judged

    def codes(self, verdict: LaneVerdict) -> int:
        by_place = {file.place: code for file, code in zip(self._judged, verdict.codes, strict=True)}
        return pack([by_place.get(place, Code.NONE) for place in range(LANE)])

    def at(self, suite: Suite) -> Court:
        return suite.court

    def reveal(self, suite: Suite, member: int, ballot: Ballot) -> Receipt:
        if self.current.all_committed and settler(self.current, self._lane) == member:
            opened = member, ballot.codes, ballot.verdict_hash, ballot.salt
            # The others reveal at the same moment: a second is worth a block, and more is not.
            deadline = time.monotonic() + _OTHERS_SECONDS
            while time.monotonic() < deadline:
                try:
                    return suite.court.reveal_and_settle(self.place, *opened, self._files).send()
                except ContractError as error:
                    log.debug("lane %d is not settled with a reveal: %s", self._lane, error)
                    if error.tx_hash or error.name != "NotSettleable":
                        break
                time.sleep(_LOOK_SECONDS)
        return super().reveal(suite, member, ballot)


class TrialVote(Vote):
    """`accepted`: whether an acceptance is at stake, whose seats are fined when it ends."""

    needs_bytes = True

    def __init__(self, trial: Trial, accepted: bool = True) -> None:
        super().__init__((trial.trial,), trial)
        self.blames = accepted

    def codes(self, verdict: LaneVerdict) -> int:
        return int(verdict.codes[0])

    def at(self, suite: Suite) -> Juries:
        return suite.juries


class CaseVote(TrialVote):
    """In the jury of a node case; `config`: the pool's configuration, None where it could not be had. Whoever accuses
    can name files of any age, whose bytes or weights nobody has any more, and more of them than there is time for: a
    juror's silence would be fined then, and cost the accuser nothing. So it always answers, by which nobody loses but
    the accuser its jury's fees."""

    always_answers, as_worker, whole = True, True, True

    def __init__(self, trial: Trial, case: Accusation, state: State, config: PoolConfig | None) -> None:
        super().__init__(trial, accepted=False)
        self._case, self._state, self._config = case, state, config

    def codes(self, verdict: LaneVerdict) -> int:
        judged = self._judged({one.sequence: one for one in verdict.verdicts})
        log.info("case %d against %s: %s: %s", self._case.case, self._case.node, judged.code.label, judged.why)
        return int(judged.code)

    def _judged(self, verdicts: Mapping[int, Verdict]) -> ChallengeVerdict:
        pool, node = self._case.pool, self._case.node
        if self._config is None:
            return ChallengeVerdict(Code.UNAVAILABLE, "the pool's configuration, which names the law, cannot be had")
        law = null_model_of(self._config, self._state.pools[pool].terms)
        return judge_challenge(self._case, self._state.submissions_of(pool, node), law, verdicts)


# ~ A body that our seats may vote in, and on what.


@dataclass(frozen=True)
class VotingRound:
    """A round or trial in which our seats may vote. `audit_seed` draws the audit sample of its files."""

    where: str
    committee: Committee
    files: list[Submission]
    vote: Vote
    audit_seed: bytes

    @property
    def digest(self) -> bytes:
        return rounds.files_digest(self.files)

    @property
    def task_key(self) -> TaskKey:
        """What the judge queue knows it by."""
        return self.where, self.committee.seed, self.digest


# ~ Gives the answer that is owed where our seats could not judge: finds what was judged all the same, and says why the
# ~ rest was not.


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
        facts = rounds.submission_facts(self._id(pool), pool, file, seed, voting.audit_seed)
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


# ~ Who votes in a round or trial, and which of the members are ours.


def ours(committee: Committee, voters: Mapping[str, object]) -> Iterator[tuple[int, int, str]]:
    """(member, seat, voter) of those whose keys we hold."""
    for member, (seat, voter) in enumerate(zip(committee.seats, committee.voters, strict=True)):
        if voter in voters:
            yield member, seat, voter


def drawn_committee(state: State, current: Panel) -> Committee:
    """The committee of a drawn round; a voting key replaced since then counts at once, as on chain."""
    return Committee(current.seats, tuple(state.seats[seat].voter for seat in current.seats), current.seed)


class Committees:
    """Who votes in a contract's bodies. What it forecasts of a body is asked for once a block."""

    def __init__(self, contract: BallotContract) -> None:
        self._contract = contract
        self._block = (0, 0)
        self._forecasts: dict[Place, Committee | None] = {}

    def of(self, state: State, current: Panel, place: Place) -> Committee | None:
        """From events once drawn, before that from the chain's own forecast; None while it is not known."""
        if current.drawn:
            return drawn_committee(state, current)
        if not current.seed_block or state.head < current.seed_block:
            return None
        block = state.head, state.generation
        if self._block != block:
            self._block, self._forecasts = block, {}
        if place not in self._forecasts:
            self._forecasts[place] = self._forecast(place)
        return self._forecasts[place]

    def _forecast(self, place: Place) -> Committee | None:
        try:
            return self._contract.committee_of(place)
        except ContractError as error:
            log.debug("no committee: %s", error)
            return None


# ~ Votes with our seats: judge, commit, reveal; the same for a lane's round and for a trial.
# ~
# ~ A file counts as unavailable when sources answer that they have none. When no source answers, or checks are not
# ~ done in time, the seat stays silent rather than guess, except in a pool that names a family: this gets its answer
# ~ shortly before the commits' end (`validator.voting`), `unavailable` for whatever is not judged by then.


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
            facts.append(rounds.submission_facts(client.pool_id, pool, file, step_seed, audit_seed))
        mirrors = tuple(client.state.mirrors_of(file) for file in files)
        key = where, seed, rounds.files_digest(files)
        return JudgeTask(key, tuple(facts), mirrors, self._pool.judge, patience)
