"""The validator's process: judges for several seats, votes in secret, reveals, settles, collects.

Votes it never casts: on files that it did not judge. A file counts as unavailable only when sources answer that they
have none; when no source answers, or checks are not done in time, the seat stays silent rather than guess.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from chain.contracts.court import Committee
from chain.errors import ContractError
from chain.judging import Lane, Round, Trial
from chain.records import Pool, Submission
from chain.sender import Receipt
from chain.state import State
from engines.factory import make_engine
from protocol.api.work import HeartbeatRequest
from protocol.errors import ConfigError, MusterError
from runtime.heartbeats import Heartbeats, heartbeat
from runtime.orchestrator_client import OrchestratorClient
from runtime.pool_client import PoolClient
from validator import selectors
from validator.ballots import Ballot, BallotBox, new_salt
from validator.config import ValidatorConfig
from validator.context import SubmissionFacts
from validator.judge_queue import JudgeQueue, JudgeTask, TaskKey
from validator.judging import FileJudge, JudgeOne
from validator.keeper import Keeper
from validator.pipeline import judge
from validator.rounds import SeatAction, member_action
from validator.sources import Sources
from validator.transaction_tasks import TransactionTasks
from validator.verdict_store import VerdictStore
from validator.votes import LaneVote, TrialVote, Vote

log = logging.getLogger("muster.validator")
_UNDRAWN = bytes(32)
_LIKELY = 0.5


@dataclass(frozen=True)
class VotingRound:
    """A round or trial with our seats on its bench. `audit_seed` draws the audit sample of its files."""

    where: str
    bench: selectors.DrawnCommittee
    files: list[Submission]
    vote: Vote
    audit_seed: bytes

    @property
    def digest(self) -> bytes:
        return selectors.files_digest(self.files)


class Validator:
    """Serves all seats whose voting keys the configuration names. `judge_one` is the pipeline."""

    def __init__(self, config: ValidatorConfig, judge_one: JudgeOne = judge) -> None:
        self.config = config
        accounts = [voter.open() for voter in config.voters]
        self.link = PoolClient(config, None)
        self.voters = {str(a.address): self.link.account_client(a) for a in accounts}
        self.service = OrchestratorClient(
            config.orchestrator, accounts[0], self.link.pool_id, allow_private=config.allow_private_sources
        )
        self.pool_config = self.link.pool_config()
        self.box = BallotBox(self.link.home / "ballots")
        self.verdicts = VerdictStore(self.link.home / "verdicts", self.pool_config.digest)
        engine = make_engine(
            config.engine.name, config.engine.dtype, config.engine.device, config.engine.threads, config.engine.batch
        )
        self._wake = threading.Event()
        weights = partial(self.link.weights, keep=config.keep_steps)
        file_judge = FileJudge(self.pool_config, engine, Sources(self.link.objects), weights, self.verdicts, judge_one)
        self.bench = JudgeQueue(file_judge, self.verdicts, self._patience(), self._wake.set)
        self.tasks = TransactionTasks(2 * len(self.voters) + 2)
        self.keeper = Keeper(next(iter(self.voters.values())), config.pool, self.tasks)
        self.stopping = threading.Event()
        self._wanted: set[TaskKey] = set()
        self._done: set[tuple[int, int]] = set()
        self._lost: set[tuple[str, int]] = set()
        self._published: set[bytes] = set()
        self._generation = self.link.projection.generation
        self._phase = "starting"

    def stop(self) -> None:
        self.stopping.set()
        self._wake.set()

    def run(self) -> int:
        """Serve until `stop`. Returns 0."""
        beats = Heartbeats(self.service, self._beat, self.config.heartbeat_seconds)
        beats.start()
        self.bench.start()
        log.info("serving %d voting keys in pool %d", len(self.voters), self.config.pool)
        try:
            while not self.stopping.is_set():
                try:
                    self.turn()
                except ConfigError:
                    raise
                except MusterError as error:
                    log.info("%s", error)
                    self.stopping.wait(2.0)
                # A new opinion is a vote to be cast: it does not wait for the next look at the chain.
                self._wake.wait(self.config.poll_seconds)
                self._wake.clear()
            return 0
        finally:
            beats.stop()
            self.tasks.stop()
            self.bench.stop()
            self.service.close()
            self.link.close()

    def turn(self) -> None:
        """Look at the chain once and start whatever is due."""
        state = self.link.refresh()
        pool = self.link.pool()
        if pool is None:
            return
        if self._generation != self.link.projection.generation:
            self._generation = self.link.projection.generation
            self.tasks.forget()
            self._done.clear()
        now = self.link.client.now()
        for lane in selectors.lanes_in_order(
            state, self.config.pool, lambda lane: (lane.pool, lane.lane) in self._done
        ):
            self._lane(state, pool, lane, now)
        for trial in state.trials.values():
            if trial.pool == self.config.pool:
                self._trial(state, pool, trial, now)
        self.keeper.keep_house(state, now)
        self.bench.retain(self._wanted)
        self._wanted.clear()

    # ---- Lanes

    def _lane(self, state: State, pool: Pool, lane: Lane, now: int) -> None:
        files, current = state.files_of(lane), lane.round
        court = self.link.suite.court
        bench = self._bench(state, current, partial(court.committee_of, lane.pool, lane.lane, current.round))
        if bench is not None and not current.settled:
            where = selectors.lane_place(lane, current.round)
            voting = VotingRound(where, bench, files, LaneVote(court, lane, current, files), bench.seed)
            self._sit(state, pool, voting, now)
        elif bench is None and not current.settled:
            self._prepare(state, pool, lane, files)
        self.keeper.settle(state, lane, files, self._seats(state), now)
        self._collect(state, lane, files, now)

    def _bench(
        self, state: State, current: Round | Trial, ask: Callable[[], Committee | None]
    ) -> selectors.DrawnCommittee | None:
        """Who votes: from events once drawn, before that from the chain's own forecast."""
        if current.drawn:
            return selectors.drawn_committee(state, current.seats, current.seed)
        if state.head < current.seed_block:
            return None
        try:
            committee = ask()
        except ContractError as error:
            log.debug("no committee: %s", error)
            return None
        return selectors.DrawnCommittee(committee.seats, committee.voters, committee.seed) if committee else None

    def _sit(self, state: State, pool: Pool, voting: VotingRound, now: int) -> None:
        """The next move of each of our seats."""
        for member, seat, voter in voting.bench.ours(self.voters):
            ready = self.box.ready(voting.where, seat, voting.bench.seed, voting.digest)
            committed = voting.vote.commitment(member)
            matching = self.box.committed(voting.where, seat, committed) if committed else None
            view = selectors.round_view(voting.vote.current, True)
            move = member_action(view, member, ready is not None, matching is not None, now)
            if move is SeatAction.JUDGE:
                ready = self._judged_ballot(pool, voting, seat, voter)
            if move in (SeatAction.JUDGE, SeatAction.COMMIT) and ready is not None:
                task = partial(voting.vote.commit, self.voters[voter], member, ready)
                self._start(state, (voting.where, seat, "commit"), f"{voting.where} seat {seat} commits", task)
            elif move is SeatAction.REVEAL and matching is not None:
                task = partial(self._reveal, voting.vote, voter, member, matching)
                self._start(state, (voting.where, seat, "reveal"), f"{voting.where} seat {seat} reveals", task)
            elif move is SeatAction.LOST and (voting.where, seat) not in self._lost:
                self._lost.add((voting.where, seat))
                log.error("%s: seat %d committed a vote that is not in its ballot box", voting.where, seat)

    def _reveal(self, vote: Vote, voter: str, member: int, ballot: Ballot) -> Receipt:
        receipt = vote.reveal(self.voters[voter], member, ballot)
        self._publish(ballot.verdict_hash)
        return receipt

    def _prepare(self, state: State, pool: Pool, lane: Lane, files: list[Submission]) -> None:
        """Judge a lane before its draw, where we are likely to be drawn: the draw then waits for nothing."""
        ours = sum(seat.active and seat.voter in self.voters for seat in state.seats.values())
        if selectors.chance(state, ours, pool.terms.committee) >= _LIKELY:
            task = self._task(pool, selectors.lane_place(lane, lane.round.round), files, b"", _UNDRAWN)
            if task is not None:
                self._wanted.add(task.key)
                self.bench.prepare(task)

    def _judged_ballot(self, pool: Pool, voting: VotingRound, seat: int, voter: str) -> Ballot | None:
        """A ballot on disk before anybody hears of it; None while the bench is still at work."""
        where, seed, digest = voting.where, voting.bench.seed, voting.digest
        task = self._task(pool, where, voting.files, seed, voting.audit_seed)
        if task is None:
            return None
        self._wanted.add(task.key)
        answer = self.bench.ask(task)
        if not answer.done() or answer.exception() is not None:
            return None
        verdict = answer.result()
        codes, salt = voting.vote.codes(verdict), new_salt()
        commitment = voting.vote.hash(voter, codes, verdict.verdict_hash, salt)
        ballot = Ballot(where, seat, voter, seed, digest, codes, verdict.verdict_hash, salt, commitment)
        self.box.keep(ballot)
        return ballot

    def _task(
        self, pool: Pool, where: str, files: list[Submission], seed: bytes, audit_seed: bytes
    ) -> JudgeTask | None:
        """What the bench is to judge; None while a policy step's seed is not confirmed."""
        facts: list[SubmissionFacts] = []
        for file in files:
            step_seed = self.link.seed(pool.steps[file.step])
            if step_seed is None:
                return None
            facts.append(selectors.submission_facts(self.link.pool_id, pool, file, step_seed, audit_seed))
        return JudgeTask(
            (where, seed, selectors.files_digest(files)), tuple(facts), tuple(tuple(f.mirrors) for f in files)
        )

    def _collect(self, state: State, lane: Lane, files: list[Submission], now: int) -> None:
        """Fees of our members, once nothing of the lane can change."""
        if not lane.decided or not selectors.all_final(files, now):
            return
        missing = 0
        for current in lane.rounds:
            where = selectors.lane_place(lane, current.round)
            for member, seat, voter in selectors.drawn_committee(state, current.seats, current.seed).ours(self.voters):
                if member in current.closed:
                    continue
                missing += 1
                if member in current.reveals:
                    self._publish_later(state, current.reveals[member][1])
                close = self.voters[voter].court.close_member(lane.pool, lane.lane, current.round, member).send
                self._start(state, (where, seat, "close"), f"{where} seat {seat} collects", close, quiet=True)
        if not missing:
            self._done.add((lane.pool, lane.lane))

    # ---- Juries

    def _trial(self, state: State, pool: Pool, trial: Trial, now: int) -> None:
        files = [state.submissions[trial.pool, trial.sequence]]
        bench = self._bench(state, trial, partial(self.link.suite.juries.jury_of, trial.trial))
        if bench is None:
            return
        if trial.concluded:
            self._collect_trial(state, trial, bench)
            return
        vote = TrialVote(self.link.suite.juries, trial)
        # Jurors look at the rollouts that the committee looked at.
        audit_seed = selectors.deciding_round(state, files[0]).seed
        self._sit(state, pool, VotingRound(selectors.trial_place(trial), bench, files, vote, audit_seed), now)
        if trial.drawn and (len(trial.reveals) == len(trial.seats) or now >= trial.reveal_until):
            self.keeper.conclude(state, trial, files[0], self._seats(state))

    def _collect_trial(self, state: State, trial: Trial, bench: selectors.DrawnCommittee) -> None:
        where = selectors.trial_place(trial)
        for juror, seat, voter in bench.ours(self.voters):
            if juror not in trial.closed:
                close = self.voters[voter].juries.close_juror(trial.trial, juror).send
                self._start(state, (where, seat, "close"), f"{where} seat {seat} collects", close, quiet=True)

    # ---- Housekeeping

    def _start(
        self, state: State, key: tuple[str, int, str], what: str, task: Callable[[], Any], quiet: bool = False
    ) -> None:
        self.tasks.run(key, state.head, what, task, quiet)

    def _publish_later(self, state: State, digest: bytes) -> None:
        if digest not in self._published and self.verdicts.document(digest) is not None:
            what = f"verdict {digest.hex()[:12]} is published"
            self.tasks.run(("publish", digest), state.head, what, partial(self._publish, digest), quiet=True)

    def _publish(self, digest: bytes) -> int:
        """Upload a revealed ballot's document: evidence for everybody, secret until now."""
        document = self.verdicts.document(digest)
        if document is None or digest in self._published:
            return 0
        try:
            self.service.upload_verdict(document)
            self._published.add(digest)
        except MusterError as error:
            log.info("verdict %s is not published yet: %s", digest.hex()[:12], error)
        return 0

    def _patience(self) -> float:
        """How long a missing file is asked for: half a commit window, so that the vote is in time."""
        pool = self.link.pool()
        window = pool.terms.commitWindow if pool else 10
        return max(1.0, (window - self.config.deadline_margin) / 2)

    def _seats(self, state: State) -> set[int]:
        """Numbers of the seats that we vote for."""
        return {seat.seat for seat in state.seats.values() if seat.voter in self.voters}

    def _beat(self) -> HeartbeatRequest:
        return heartbeat(
            "validator",
            self.config.name,
            phase=f"judging {self.bench.current}" if self.bench.current else "watching",
            engine=self.config.engine.name,
            metrics={"judged": float(self.bench.judged)},
        )
