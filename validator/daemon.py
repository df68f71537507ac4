"""The validator's process: judges for several seats, votes in secret, reveals, settles, collects.

Votes it never casts: on files that it did not judge. A file counts as unavailable only when sources answer that they
have none; when no source answers, or checks are not done in time, the seat stays silent rather than guess.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from eth_account.signers.local import LocalAccount

from protocol.chain.contracts import Committee, Suite
from protocol.chain.errors import ContractError
from protocol.chain.sender import Receipt
from protocol.chain.state import Lane, Pool, Round, State, Submission, Trial
from protocol.engines.factory import make_engine
from protocol.errors import ConfigError, MusterError
from protocol.link import PoolLink, open_key
from protocol.service import Heartbeats, PoolService
from protocol.verdict import Code, pack
from protocol.waiting import WAITS
from protocol.weights.fetch import fetch
from protocol.weights.manifest import Publisher
from validator import duty
from validator.ballots import Ballot, BallotBox, new_salt
from validator.bench import Bench, Judge, Opinion, Task
from validator.case import Facts
from validator.config import ValidatorConfig
from validator.docket import Docket
from validator.errands import Errands
from validator.pipeline import judge
from validator.rounds import Move, member_move

log = logging.getLogger("muster.validator")
_KEEPER_DELAY = 3.0


class Seat:
    """A voting key of ours and the suite that sends with it."""

    def __init__(self, account: LocalAccount, suite: Suite) -> None:
        self.address = str(account.address)
        self.account = account
        self.suite = suite


class Validator:
    """Serves all seats whose voting keys the configuration names. `judge_one` is the pipeline."""

    def __init__(self, config: ValidatorConfig, judge_one: Judge = judge) -> None:
        self.config = config
        accounts = [open_key(voter) for voter in config.voters]
        self.link = PoolLink(config, None)
        self.voters = {str(a.address): Seat(a, self.link.account_client(a)) for a in accounts}
        self._keeper = next(iter(self.voters.values()))
        chain_id = self.link.deployment.chain_id
        self.service = PoolService(config.orchestrator, accounts[0], chain_id, self.link.pools)
        self.pool_config = self.link.pool_config()
        self.box = BallotBox(self.link.home / "ballots")
        self.docket = Docket(self.link.home / "verdicts", self.pool_config.digest)
        engine = make_engine(
            config.engine.name, config.engine.dtype, config.engine.device, config.engine.threads, config.engine.batch
        )
        self.bench = Bench(
            self.pool_config, engine, self.link.objects, self._weights, self.docket, self._patience(), judge_one
        )
        self.errands = Errands(2 * len(self.voters) + 2)
        self.stopping = threading.Event()
        self._owner = ""
        self._done: set[tuple[int, int]] = set()
        self._due: dict[object, float] = {}
        self._published: set[bytes] = set()
        self._generation = self.link.projection.generation
        self._phase = "starting"

    def stop(self) -> None:
        self.stopping.set()

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
                self.stopping.wait(self.config.poll_seconds)
            return 0
        finally:
            beats.stop()
            self.errands.stop()
            self.bench.stop()
            self.service.close()
            self.link.close()

    def turn(self) -> None:
        """Look at the chain once and start whatever is due."""
        state = self.link.refresh()
        pool = self.link.pool()
        if pool is None:
            return
        self._owner = pool.owner
        if self._generation != self.link.projection.generation:
            self._generation = self.link.projection.generation
            self.errands.forget()
            self._done.clear()
        now = self.link.client.now()
        for lane in duty.lanes_in_order(state, self.config.pool, lambda lane: (lane.pool, lane.lane) in self._done):
            self._lane(state, pool, lane, now)
        for trial in state.trials.values():
            if trial.pool == self.config.pool:
                self._trial(state, pool, trial, now)
        self._keep_house(state, now)

    # ---- Lanes

    def _lane(self, state: State, pool: Pool, lane: Lane, now: int) -> None:
        files = state.files_of(lane)
        current = lane.round
        where = duty.lane_place(lane, current.round)
        bench = self._bench(
            state, current, lambda: self.link.suite.court.committee_of(lane.pool, lane.lane, current.round)
        )
        if bench is not None and not current.settled:
            for member, seat, voter in bench.ours(self.voters):
                self._member(state, pool, _LaneVote(self, lane, current), where, bench, files, member, seat, voter, now)
        self._settle(state, lane, current, files, now)
        self._collect(state, lane, files, now)

    def _bench(self, state: State, current: Round | Trial, ask: Callable[[], Committee | None]) -> duty.Bench | None:
        """Who votes: from events once drawn, before that from the chain's own forecast."""
        if current.drawn:
            return duty.drawn_bench(state, current.seats, current.seed)
        if state.head < current.seed_block:
            return None
        try:
            committee = ask()
        except ContractError as error:
            log.debug("no committee: %s", error)
            return None
        return duty.Bench(committee.seats, committee.voters, committee.seed) if committee else None

    def _member(
        self,
        state: State,
        pool: Pool,
        vote: "_Vote",
        where: str,
        bench: duty.Bench,
        files: list[Submission],
        member: int,
        seat: int,
        voter: str,
        now: int,
    ) -> None:
        """One seat's next move."""
        digest = duty.files_digest(files)
        ready = self.box.ready(where, seat, bench.seed, digest)
        committed = vote.commitment(member)
        matching = self.box.committed(where, seat, committed) if committed else None
        move = member_move(duty.round_view(vote.current, True), member, ready is not None, matching is not None, now)
        if move is Move.JUDGE:
            opinion = self._opinion(pool, where, bench.seed, digest, files, vote.audit_seed(bench))
            if opinion is not None:
                ready = self._fill(vote, where, bench, digest, opinion, seat, voter)
                move = Move.COMMIT
        key, head, voter_seat = (where, seat, move), state.head, self.voters[voter]
        if move is Move.COMMIT and ready is not None:
            ballot = ready
            self.errands.run(
                key, head, f"{where} seat {seat} commits", partial(vote.commit, voter_seat, member, ballot)
            )
        elif move is Move.REVEAL and matching is not None:
            ballot = matching
            self.errands.run(
                key, head, f"{where} seat {seat} reveals", partial(vote.reveal, voter_seat, member, ballot)
            )
        elif move is Move.LOST and self._once((where, seat, "lost")):
            log.error("%s: seat %d committed a vote that is not in %s", where, seat, self.link.home / "ballots")
        if vote.revealed(member) and matching is not None:
            self._publish(matching.verdict_hash, head)

    def _opinion(
        self, pool: Pool, where: str, seed: bytes, digest: bytes, files: list[Submission], audit_seed: bytes
    ) -> Opinion | None:
        facts: list[Facts] = []
        for file in files:
            step_seed = self.link.seed(pool.steps[file.step])
            if step_seed is None:
                return None
            facts.append(
                duty.facts_of(self.link.deployment.chain_id, self.link.pools, pool, file, step_seed, audit_seed)
            )
        mirrors = tuple(tuple(file.mirrors) for file in files)
        return self.bench.ask(Task((where, seed, digest), tuple(facts), mirrors))

    def _fill(
        self,
        vote: "_Vote",
        where: str,
        bench: duty.Bench,
        digest: bytes,
        opinion: Opinion,
        seat: int,
        voter: str,
    ) -> Ballot:
        """A ballot on disk, before anybody hears of it."""
        codes, salt = vote.codes(opinion), new_salt()
        commitment = vote.hash(voter, codes, opinion.verdict_hash, salt)
        ballot = Ballot(where, seat, voter, bench.seed, digest, codes, opinion.verdict_hash, salt, commitment)
        self.box.keep(ballot)
        return ballot

    def _settle(self, state: State, lane: Lane, current: Round, files: list[Submission], now: int) -> None:
        """Tally when it can be; all validators may try, so each waits a random moment first."""
        if current.settled:
            return
        pool = state.pools[lane.pool]
        undrawn = not current.drawn and state.head > current.seed_block + pool.terms.drawBlocks
        if not undrawn and not duty.round_view(current, True).settleable(now):
            return
        where = duty.lane_place(lane, current.round)
        if self._after_delay((where, "settle")):
            court, files = self._keeper.suite.court, list(files)
            self.errands.run(
                (where, "settle"),
                state.head,
                f"{where} settles",
                partial(court.settle, lane.pool, lane.lane, current.round, files),
                quiet=True,
            )

    def _collect(self, state: State, lane: Lane, files: list[Submission], now: int) -> None:
        """Fees of our members, once nothing of the lane can change."""
        if not lane.decided or not duty.all_final(files, now):
            return
        missing = 0
        for current in lane.rounds:
            for member, seat, voter in duty.drawn_bench(state, current.seats, current.seed).ours(self.voters):
                if member in current.closed:
                    continue
                missing += 1
                court, number = self.voters[voter].suite.court, current.round
                self.errands.run(
                    (duty.lane_place(lane, number), seat, "close"),
                    state.head,
                    f"{duty.lane_place(lane, number)} seat {seat} collects",
                    partial(court.close_member, lane.pool, lane.lane, number, member),
                    quiet=True,
                )
        if not missing:
            self._done.add((lane.pool, lane.lane))

    # ---- Juries

    def _trial(self, state: State, pool: Pool, trial: Trial, now: int) -> None:
        files = [state.submissions[trial.pool, trial.sequence]]
        bench = self._bench(state, trial, lambda: self.link.suite.juries.jury_of(trial.trial))
        if bench is None:
            return
        where = duty.trial_place(trial)
        if trial.concluded:
            self._collect_trial(state, trial, bench)
            return
        vote = _TrialVote(self, state, trial)
        for juror, seat, voter in bench.ours(self.voters):
            self._member(state, pool, vote, where, bench, files, juror, seat, voter, now)
        if trial.drawn and (len(trial.reveals) == len(trial.seats) or now >= trial.reveal_until):
            self._conclude(state, trial, files[0])

    def _conclude(self, state: State, trial: Trial, file: Submission) -> None:
        """Record a jury's verdict, at the bench that summoned it."""
        if not self._after_delay((trial.trial, "conclude")):
            return
        suite, file_key = self._keeper.suite, (file.pool, file.sequence)
        disputed = file_key in state.disputes and not state.disputes[file_key].resolved
        conclude = suite.appeals.conclude if disputed else suite.canaries.conclude
        what = f"trial {trial.trial} is concluded"
        self.errands.run((trial.trial, "conclude"), state.head, what, partial(conclude, file), quiet=True)

    def _collect_trial(self, state: State, trial: Trial, bench: duty.Bench) -> None:
        for juror, seat, voter in bench.ours(self.voters):
            if juror not in trial.closed:
                juries = self.voters[voter].suite.juries
                self.errands.run(
                    (trial.trial, seat, "close"),
                    state.head,
                    f"trial {trial.trial} seat {seat} collects",
                    partial(juries.close_juror, trial.trial, juror),
                    quiet=True,
                )

    # ---- Housekeeping

    def _keep_house(self, state: State, now: int) -> None:
        """What anybody may do and somebody must: finalise refusals, resolve disputes and canaries whose time is up."""
        keeper = self._keeper.suite
        for file in duty.to_finalize(state, self.config.pool, now):
            key = ("finalize", file.sequence)
            if self._after_delay(key):
                what = f"submission {file.sequence} is finalised"
                self.errands.run(key, state.head, what, partial(keeper.pools.finalize, file), quiet=True)
        for (pool, sequence), dispute in state.disputes.items():
            over = dispute.verdict and not dispute.appellant and dispute.appeal_until <= now
            if pool == self.config.pool and not dispute.resolved and over and self._after_delay(("appeal", sequence)):
                file = state.submissions[pool, sequence]
                what = f"the dispute of submission {sequence} is resolved"
                self.errands.run(
                    ("appeal", sequence),
                    state.head,
                    what,
                    partial(keeper.appeals.conclude, file),
                    quiet=True,
                )
        for (pool, sequence), canary in state.canaries.items():
            over = not canary.contester and canary.contest_until <= now
            if pool == self.config.pool and not canary.concluded and over and self._after_delay(("canary", sequence)):
                file = state.submissions[pool, sequence]
                what = f"the canary {sequence} is concluded"
                self.errands.run(
                    ("canary", sequence),
                    state.head,
                    what,
                    partial(keeper.canaries.conclude, file),
                    quiet=True,
                )

    def _publish(self, digest: bytes, head: int) -> None:
        """Upload a revealed ballot's document: evidence for everybody, secret until now."""
        document = self.docket.document(digest)
        if document is None or digest in self._published:
            return

        def upload() -> int:
            self.service.upload_verdict(document)
            self._published.add(digest)
            return 0

        self.errands.run(("publish", digest), head, f"verdict {digest.hex()[:12]} is published", upload, quiet=True)

    def _weights(self, facts: Facts) -> Any:
        publisher = Publisher(facts.chain_id, facts.pools, facts.pool, self._owner)
        keep = self.config.keep_steps
        return fetch(facts.manifest, self.link.objects, self.config.cache, publisher, step=facts.step, keep=keep)

    def _patience(self) -> float:
        """How long a missing file is asked for: half a commit window, so that the vote is in time."""
        pool = self.link.pool()
        window = pool.terms.commitWindow if pool else 10
        return max(1.0, (window - self.config.deadline_margin) / 2)

    def _after_delay(self, key: object) -> bool:
        """True once a random moment has passed since the key came up: keepers seldom race."""
        due = self._due.setdefault(key, time.monotonic() + random.uniform(0, _KEEPER_DELAY))
        return time.monotonic() >= due

    def _once(self, key: object) -> bool:
        return self._due.setdefault(key, -1.0) == -1.0 and self._due.update({key: 0.0}) is None

    def _beat(self) -> dict[str, Any]:
        return {
            "role": "validator",
            "name": self.config.name,
            "engine": self.config.engine.name,
            "phase": (f"judging {self.bench.current}" if self.bench.current else "watching")[:64],
            "waits": [{"what": str(w["what"])[:200], "since": w["since"]} for w in WAITS.report()[:16]],
            "metrics": {"judged": float(self.bench.judged)},
        }


class _Vote:
    """How a seat votes in a round of a lane or in a trial."""

    current: Round | Trial

    def commitment(self, member: int) -> bytes | None:
        return self.current.commits.get(member)

    def revealed(self, member: int) -> bool:
        return member in self.current.reveals

    def audit_seed(self, bench: duty.Bench) -> bytes:
        """The seed of the audit sample."""
        raise NotImplementedError

    def codes(self, opinion: Opinion) -> int:
        raise NotImplementedError

    def hash(self, voter: str, codes: int, verdict_hash: bytes, salt: bytes) -> bytes:
        raise NotImplementedError

    def commit(self, seat: Seat, member: int, ballot: Ballot) -> Receipt:
        raise NotImplementedError

    def reveal(self, seat: Seat, member: int, ballot: Ballot) -> Receipt:
        raise NotImplementedError


class _LaneVote(_Vote):
    def __init__(self, validator: Validator, lane: Lane, current: Round) -> None:
        self._court = validator.link.suite.court
        self._place = (lane.pool, lane.lane, current.round)
        self.current = current

    def audit_seed(self, bench: duty.Bench) -> bytes:
        return bench.seed

    def codes(self, opinion: Opinion) -> int:
        return pack(opinion.codes)

    def hash(self, voter: str, codes: int, verdict_hash: bytes, salt: bytes) -> bytes:
        return self._court.ballot_hash(*self._place, voter, codes, verdict_hash, salt)

    def commit(self, seat: Seat, member: int, ballot: Ballot) -> Receipt:
        return seat.suite.court.commit_votes(*self._place, member, ballot.commitment)

    def reveal(self, seat: Seat, member: int, ballot: Ballot) -> Receipt:
        return seat.suite.court.reveal_votes(*self._place, member, ballot.codes, ballot.verdict_hash, ballot.salt)


class _TrialVote(_Vote):
    def __init__(self, validator: Validator, state: State, trial: Trial) -> None:
        self._juries = validator.link.suite.juries
        self._lane_seed = state.lane_of(state.submissions[trial.pool, trial.sequence]).round.seed
        self._trial = trial.trial
        self.current = trial

    def audit_seed(self, bench: duty.Bench) -> bytes:
        """Jurors look at the rollouts that the committee looked at."""
        return self._lane_seed

    def codes(self, opinion: Opinion) -> int:
        return int(opinion.codes[0] if opinion.codes else Code.UNSURE)

    def hash(self, voter: str, codes: int, verdict_hash: bytes, salt: bytes) -> bytes:
        return self._juries.ballot_hash(self._trial, voter, codes, verdict_hash, salt)

    def commit(self, seat: Seat, member: int, ballot: Ballot) -> Receipt:
        return seat.suite.juries.commit_vote(self._trial, member, ballot.commitment)

    def reveal(self, seat: Seat, member: int, ballot: Ballot) -> Receipt:
        return seat.suite.juries.reveal_vote(self._trial, member, ballot.codes, ballot.verdict_hash, ballot.salt)
