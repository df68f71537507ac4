"""What our seats have to do in one pool: vote in lanes and trials, settle what is due, collect fees."""

import logging
import random
import time
from collections.abc import Callable, Hashable
from functools import cached_property, partial
from typing import Any

from chain.contracts import DRAW_REACH, Committee
from chain.indexer.records import Lane, Panel, Pool, Submission, Trial
from chain.indexer.state import State, needed, seats_in
from chain.suite import Suite
from protocol.api.work import HeartbeatRequest
from protocol.errors import MusterError, unwritten
from runtime.orchestrator_client import Heartbeats
from validator import decide
from validator.decide import settleable, turn
from validator.judging.queue import TaskKey
from validator.judging.verdicts import VerdictPublisher
from validator.pools import PoolCollaborators, ValidatorCollaborators
from validator.tasks import TransactionTasks
from validator.voting import ChallengeVote, Committees, LaneVote, TrialVote, Voting, drawn_committee, ours

log = logging.getLogger("muster.validator")
MakeVoting = Callable[[ValidatorCollaborators, PoolCollaborators, VerdictPublisher], Voting]
_FEE_RETRY_SECONDS = 60.0  # longest pause between two tries to collect a fee: it is in no hurry


class FeeCollection:
    """Collects the fees of our members and jurors, once nothing of what they judged can change."""

    def __init__(self, collaborators: ValidatorCollaborators, publisher: VerdictPublisher) -> None:
        self._voters, self._tasks, self._publisher = collaborators.voters, collaborators.tasks, publisher
        self.closed: set[tuple[int, int]] = set()
        """Lanes whose committees are paid, of those we sat in; a reorganisation may undo that."""

    def collect_lane(self, state: State, lane: Lane, files: list[Submission], now: int) -> None:
        if not lane.round.settled:
            return
        # A dispute may be over long before the window in which all else could be disputed.
        closable = lane.round.settled_time + state.pools[lane.pool].terms.challengeWindow
        final, missing = now >= closable and all(file.is_final(now) for file in files), 0
        for current in lane.rounds:
            where, committee = decide.round_name(lane, current.round), drawn_committee(state, current)
            self._publish(state, committee, current)
            mine = [voter for _, _, voter in ours(committee, self._voters)]
            if not final or not mine or current.closed:  # an outcome that can still change pays nobody
                continue
            missing += 1
            # One call pays all members. Who does not take its turn is only late: it is in no hurry.
            first = committee.voters[decide.turn(lane.lane, len(committee.voters))] in self._voters
            if first or now >= closable + _FEE_RETRY_SECONDS:
                close = self._voters[mine[0]].court.close_committee(lane.pool, lane.lane, current.round).send
                self._run(state, where, f"{where} is closed", close)
        if final and not missing:
            self.closed.add((lane.pool, lane.lane))

    def collect_trial(self, state: State, trial: Trial, jury: Committee) -> None:
        self._publish(state, jury, trial)
        for juror, seat, voter in ours(jury, self._voters):
            if juror not in trial.closed:
                where = decide.trial_name(trial)
                close = self._voters[voter].juries.close(trial.trial, juror).send
                self._run(state, f"{where} seat {seat}", f"{where} seat {seat} collects", close)

    def _publish(self, state: State, committee: Committee, current: Panel) -> None:
        """Publish documents of revealed votes that a kill, or a service that did not answer, kept back."""
        for member, _, _ in ours(committee, self._voters):
            if member in current.reveals:
                self._publisher.publish(current.reveals[member][1], state.head)

    def _run(self, state: State, key: str, what: str, close: Callable[[], object]) -> None:
        self._tasks.run((key, "close"), state.head, what, close, quiet=True, longest=_FEE_RETRY_SECONDS)


_MEMBERS_WAIT, _OTHERS_WAIT = 2.0, 4.0  # seconds
_STALE_SECONDS = 3600.0


class Keeper:
    """Sends for one pool what anybody may send and somebody must: settle, finalise, conclude. To save gas keepers take
    turns: one process sends a transaction at once, the others only if it did not within a few seconds."""

    def __init__(self, suite: Suite, pool: int, tasks: TransactionTasks) -> None:
        self._suite, self._pool, self._tasks = suite, pool, tasks
        self._due: dict[Hashable, float] = {}

    def settle(self, state: State, lane: Lane, files: list[Submission], seats: set[int], now: int) -> None:
        """Tally the newest round of a lane when that is possible; `seats` are ours."""
        current = lane.round
        if current.settled or not (decide.will_never_be_drawn(state, lane) or settleable(current, now)):
            return
        where = decide.round_name(lane, current.round)
        settle = self._suite.court.settle((lane.pool, lane.lane, current.round), files).send
        self._do((where, "settle"), state, f"{where} settles", settle, self._wait(current, lane.lane, seats))

    def conclude(self, state: State, trial: Trial, file: Submission, seats: set[int]) -> None:
        """Have the contract that summoned a jury take its case on, or end it. `file`: the one it judges, or the first
        that a challenge names."""
        challenge = state.challenge_of(trial.trial)
        canary = state.canaries.get((file.pool, file.sequence))
        if challenge is not None:
            call = self._suite.node_challenges.conclude(challenge.challenge)
        elif canary is not None and not canary.concluded:  # its opening ends a dispute of its file
            call = self._suite.canaries.conclude(file)
        else:
            call = self._suite.appeals.conclude(file)
        key, wait = (decide.trial_name(trial), "conclude", trial.appeal_until), self._wait(trial, trial.trial, seats)
        self._do(key, state, f"the case of trial {trial.trial} goes on", call.send, wait)

    def draw_or_dismiss(self, state: State, trial: Trial, file: Submission, seats: set[int]) -> None:
        """Draw a jury that its jurors leave undrawn before its one seed lapses, or have its case go on without it."""
        epochs = state.head // self._epoch_blocks - trial.seed_block // self._epoch_blocks
        if epochs > DRAW_REACH and not trial.next:
            self.conclude(state, trial, file, seats)
        elif epochs in (DRAW_REACH - 1, DRAW_REACH):
            what = f"trial {trial.trial} is drawn"
            self._do((decide.trial_name(trial), "draw"), state, what, self._suite.juries.draw(trial.trial).send)

    @cached_property
    def _epoch_blocks(self) -> int:
        return self._suite.seats.epoch_blocks()

    def finish_overdue(self, state: State, now: int) -> None:
        """Finalise refusals, conclude canaries that accuse nobody, open the pool once it has its seats."""
        suite, pool = self._suite, state.pools[self._pool]
        if pool.status == "understaffed" and len(seats_in(state, pool)) >= needed(pool.terms):
            self._do(("review", self._pool), state, "the pool's seats are counted", self._review)
        finalize, conclude = suite.pools.finalize, suite.canaries.conclude
        for file in decide.to_finalize(state, self._pool, now):
            self._finish("submission {} is finalised", state, file, finalize)
        for file_id, canary in state.canaries.items():
            if not canary.concluded and not canary.trial:
                self._finish("the canary {} is concluded", state, state.submissions[file_id], conclude)

    def _finish(self, what: str, state: State, file: Submission, call: Callable[[Submission], Any]) -> None:
        if file.pool == self._pool:
            self._do((what, file.sequence), state, what.format(file.sequence), call(file).send)

    def _review(self) -> object:
        return self._suite.pools.review_seats(self._pool).send() if self._suite.court.staffed(self._pool) else None

    def _wait(self, current: Panel, number: int, seats: set[int]) -> float:
        """Return the seconds before we step in: none for the seat whose turn it is."""
        if current.seats and current.seats[turn(number, len(current.seats))] in seats:
            return 0.0
        return _MEMBERS_WAIT if seats & set(current.seats) else _OTHERS_WAIT

    def _do(self, key: Hashable, state: State, what: str, task: Callable[[], Any], wait: float | None = None) -> None:
        delay = random.uniform(0, _MEMBERS_WAIT) if wait is None else wait + random.uniform(0, 0.3) * (wait > 0)
        now = time.monotonic()
        if key not in self._due:
            # What was due an hour ago was done, or starts again.
            self._due = {other: due for other, due in self._due.items() if now < due + _STALE_SECONDS}
            self._due[key] = now + delay
        if now >= self._due[key]:
            self._tasks.run(key, state.head, what, task, quiet=True)


class PoolDuties:
    """Everything that our seats have to do in one pool. Without an open `pool` (`problem`: why it is not open) votes
    are still revealed, fallback votes cast, lanes settled, fees collected."""

    def __init__(
        self,
        shared: ValidatorCollaborators,
        number: int,
        pool: PoolCollaborators | None,
        make_voting: MakeVoting = Voting,
        problem: Callable[[], str] = str,
    ) -> None:
        self._number, self._pool, suite = number, pool, shared.chain.suite
        self._publisher = VerdictPublisher(pool.orchestrator if pool else None, shared.verdicts)
        self.voting = (
            make_voting(shared, pool, self._publisher) if pool else Voting(shared, None, self._publisher, problem)
        )
        self._fees = FeeCollection(shared, self._publisher)
        self._keeper = Keeper(next(iter(shared.voters.values())), number, shared.tasks)
        self._committees, self._juries = Committees(suite.court), Committees(suite.juries)
        self._beats: Heartbeats | None = None

    def start(self, beat: Callable[[], HeartbeatRequest], seconds: float) -> None:
        """Begin to send the heartbeats that `beat` makes to the pool's service."""
        if self._pool is not None:
            self._beats = Heartbeats(self._pool.orchestrator, beat, seconds)
            self._beats.start()

    def advance(self, state: State, now: int) -> set[TaskKey] | None:
        """Start whatever is due, oldest first. Returns the tasks that are to be judged; None if a lane or trial failed,
        which is logged and tried again next turn."""
        pool, seats, failed = state.pools.get(self._number), decide.seats_of(state, self.voting.voters), False
        if pool is None:
            return None  # a reorganisation has undone it, perhaps for a moment
        due = list[tuple[str, Callable[[], None]]]()
        for (of, number), lane in sorted(state.lanes.items()):
            if of == self._number:
                due.append((f"lane {number}", partial(self._advance_lane, state, pool, lane, seats, now)))
        for trial in state.trials.values():
            if trial.pool == self._number:
                due.append((decide.trial_name(trial), partial(self._advance_trial, state, pool, trial, seats, now)))
        for what, advance in due:
            try:
                advance()
            except (MusterError, OSError) as error:
                # On a full disk no ballot can be kept, but those that are kept must be revealed.
                why = unwritten(error) if isinstance(error, OSError) else error
                log.error("%s of pool %d: %s", what, pool.pool, why)
                failed = True
        self._keeper.finish_overdue(state, now)
        wanted = self.voting.end_turn()
        return None if failed else wanted

    def _advance_lane(self, state: State, pool: Pool, lane: Lane, seats: set[int], now: int) -> None:
        """Vote where our seats are drawn, settle, collect, until the last fee is paid."""
        if (lane.pool, lane.lane) in self._fees.closed:
            return
        files, current = state.files_of(lane), lane.round
        if not current.settled:
            committee = self._committees.of(state, current, (lane.pool, lane.lane, current.round))
            if committee is not None:
                self.voting.advance(state, pool, LaneVote(lane, committee, files), now)
        self._keeper.settle(state, lane, files, seats, now)
        self._fees.collect_lane(state, lane, files, now)

    def _advance_trial(self, state: State, pool: Pool, trial: Trial, seats: set[int], now: int) -> None:
        """Vote where our seats are jurors, on a file or on those of a node challenge; conclude; collect."""
        if trial.settled and not trial.drawn:
            return  # nobody's duty
        challenge = state.challenge_of(trial.trial)
        sequences = challenge.sequences if challenge is not None else (trial.sequence,)
        files = [state.submissions[trial.pool, sequence] for sequence in sequences]
        jury = self._juries.of(state, trial, (trial.trial,))
        if not trial.drawn and not trial.settled:
            self._keeper.draw_or_dismiss(state, trial, files[0], seats)
        if jury is None:
            return
        if trial.settled:
            self._fees.collect_trial(state, trial, jury)
            return
        # Jurors look at the rollouts that the committee looked at; without one, and in a node challenge, at those that
        # their own draw names, which nobody knew when the file was submitted or the challenge opened.
        if challenge is None:
            vote = TrialVote(trial, jury, files, decide.committee_seed(state, files[0]))
        else:
            vote = ChallengeVote(trial, jury, files, challenge, state, self._pool.config if self._pool else None)
        self.voting.advance(state, pool, vote, now)
        if trial.proceeds(now):
            self._keeper.conclude(state, trial, files[0], seats)

    def forget(self) -> None:
        self._fees.closed.clear()

    def close(self) -> None:
        self._publisher.close()
        if self._beats is not None:
            self._beats.stop()
        if self._pool is not None:
            self._pool.close()
