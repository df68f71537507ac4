"""A worker: inner steps, a contribution, the outer step, again.

What a kill interrupts is done exactly once, because all that matters is on disk before anybody hears of it. A worker
makes every outer step itself from what is published, and stops where the log is wrong."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diloco.config import DilocoRun, Timeouts
from diloco.inner import POSITION, DataShare, FilesUnusableError, InnerTask
from diloco.log import Log, catch_up, expected_at, make_step, published_state, read_step
from diloco.messages import CommitRecord, Contribution, ShardEntry, reportable, seal
from diloco.outer import OuterState, encode_payload
from diloco.state_machine import Phase, Schedule
from diloco.store import OwnContribution, WorkerStore, step_status
from diloco.transport import AttemptCache, PollBackoff, Sender, Transport
from protocol.accounts import LocalAccount
from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.waits import WAITS, wait_for
from storage.keys import MissingObjectError

log = logging.getLogger("muster.diloco")


@dataclass
class InnerProgress:
    """Inner steps made since the outer state, their tokens, and the share of the data they were made on."""

    made: int = 0
    tokens: int = 0
    share: tuple[str, ...] = ()


class Worker:
    """One worker of a run. `start` brings it to the newest state, `turn` does the next thing that can be done."""

    def __init__(
        self,
        transport: Transport,
        account: LocalAccount,
        task: InnerTask,
        home: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.transport, self.run, self.task = transport, transport.run, task
        self.address = str(account.address)
        self.timeouts = Timeouts.of(self.run)
        self.state = OuterState.start(task.weights())
        self.steps = 0
        self._account, self._sender, self._clock = account, Sender(transport, account), clock
        self._store = WorkerStore(home, self.state.layout, self.run.settings.shards, task)
        self._gathered = AttemptCache(transport, home / "payloads")
        self._progress, self._error_feedback = InnerProgress(), self._store.error
        self._own_contribution: OwnContribution | None = None
        self._log: Log | None = None
        self._positions: tuple[int, tuple[int, ...]] = -1, ()
        self._unusable_since: tuple[object, float] = None, 0.0
        self._at_end, self._log_backoff = False, PollBackoff(factor=20.0)
        self._stall = StallTimer(self.run)

    @property
    def log(self) -> Log:
        assert self._log is not None, "call `start` first"
        return self._log

    def start(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Load what is on disk, and follow the log to its newest commit record. `stopped` is asked while the log is
        waited for and after each outer step that was missing. Raises MusterError where it was, where there is no log
        within the run's time for joining, or where it does not fit the disk."""
        stored = self._store.newest()
        self._error_feedback = self._store.error
        own = None if stored is None else self._store.pending(stored)
        newest = stored or self.state
        what = f"the log of {self.run.name} to begin"
        self._log = wait_for(what, self._newest_log, self.timeouts.join, 0.5, "start its coordinator", stopped)
        with WAITS.on(f"outer step {self.log.commit.step}, to which this worker catches up"):
            for state in catch_up(self.transport, newest, self.log):
                newest = state
                if stopped():
                    raise MusterError(f"stopped while catching up, at outer step {newest.step}")
        if newest is not stored:
            counted = None
            if stored is not None and own is not None:
                ended = (commit for _, commit in self.log.commits_back() if commit.step == stored.step + 1)
                counted = self._counted(own, next(ended, None))
                if counted is None and self.run.assigned:
                    self._undo()
            self._adopt(newest, counted)
            own = None
        self.state, self._own_contribution = newest, own
        self._sender.next = self.log.messages.get(self.address, 0)
        log.info("%s is at outer step %d", self.address, newest.step)

    def turn(self) -> str:
        """Do the next thing; return what is waited for, empty if something was done. Raises IntegrityError where the
        log or an outer step is wrong; UnreachableError."""
        self._store.tend()
        if self.log.commit.step > self.state.step:
            return self._take_step(self.log.commit)
        if self._read_log():
            return ""
        schedule = self.log.schedule
        if self.address not in schedule.members:
            return self._ask_to_join(schedule)
        if schedule.awaits_files:
            return f"the files of outer step {schedule.step}"
        if self._own_contribution is not None and self._own_contribution.attempt != schedule.attempt:
            self._offer_again(self._own_contribution, schedule)
        if self._own_contribution is None:
            return self._train(schedule)
        return self._offer(self._own_contribution, schedule)

    def advance(self) -> str:
        """`turn`, for a process. Raises MusterError where the run stalls."""
        why = self.turn()
        self._stall.check(self, why)
        return why

    def finish(self) -> None:
        """Leave, and return once everything is on disk."""
        self.leave()
        self._store.finish()

    def leave(self) -> None:
        """Tell the coordinator, who need not wait for this worker; where it cannot be told, silence tells it."""
        schedule = self.log.schedule
        if self.address in schedule.members | schedule.waiting:
            try:
                self._sender.post("leave", schedule)
            except UnreachableError as error:
                log.warning("leaving without a message: %s", error)

    def status(self) -> dict[str, Any]:
        """Return what people may be shown, also before `start`."""
        return {
            "worker": self.address,
            "run": self.run.name,
            **step_status(self.state, None if self._log is None else self._log.schedule),
            "inner_steps": self._progress.made,
            "outer_steps_made": self.steps,
        }

    def _read_log(self) -> bool:
        """Take the log's next entry, if it is there. While there is work to do, it is looked for rarely."""
        schedule = self.log.schedule
        training = self._own_contribution is None and self.address in schedule.members and not schedule.awaits_files
        if self._at_end and training and not self._log_backoff.due():
            return False
        with self._log_backoff.taking():
            self._at_end = self.log.advance() is None
        return not self._at_end

    def _newest_log(self) -> Log | None:
        try:
            return Log.newest(self.transport)
        except UnreachableError as error:
            log.warning("%s", error)
            return None

    def _counted(self, own: OwnContribution | None, commit: CommitRecord | None) -> OwnContribution | None:
        """Return this worker's contribution if it was admitted to the outer step that `commit` committed."""
        if own is None or commit is None or self.address not in commit.counted:
            return None
        return own if commit.made_of.get(self.address) == own.digest else None

    def _adopt(self, state: OuterState, counted: OwnContribution | None) -> None:
        """Continue from a new state, of which this worker's contribution is a part if it `counted`. The state is
        written to disk meanwhile."""
        self.task.load(state.weights)
        self._error_feedback = self._error_feedback if counted is None else counted.error
        self._progress, self._own_contribution = InnerProgress(), None
        self._store.begin_state(state, self._error_feedback)
        self.state = state

    def _take_step(self, commit: CommitRecord) -> str:
        """Make the outer step that the log committed, or take it as it was published where payloads are gone."""
        own = self._own_contribution
        own_shards = {} if own is None else {sha256_hex(shard): shard for shard in own.payload}

        def read(entry: ShardEntry) -> bytes:
            return own_shards.get(entry.sha256) or self._gathered.read(entry)

        try:
            after, admitted = make_step(self.transport, self.state, commit, self.log.ended, read)
            if (why := admitted.excluded.get(self.address)) is not None:
                log.warning("our contribution to outer step %d does not count: %s", self.state.step, why)
        except UnreachableError as error:
            return f"the payloads of outer step {self.state.step}: {error.what}"
        except MissingObjectError as error:
            published = published_state(self.transport, commit, self.state)
            if published is None:
                return f"the payloads of outer step {self.state.step}: {error.what}"
            log.warning("outer step %d is taken as it was published: %s", self.state.step, error)
            after = published
        counted = self._counted(own, commit)
        if self.run.assigned and counted is None:
            self._undo()  # what does not count leaves no trace here
        self._adopt(after, counted)
        self.steps += 1
        log.info("outer step %d: %d of %d contributions count", after.step, len(commit.counted), len(commit.made_of))
        return ""

    def _ask_to_join(self, schedule: Schedule) -> str:
        if self.address not in schedule.waiting:
            self._sender.post("join", schedule, schedule.digest)
        if not schedule.members:
            return f"other workers: {len(schedule.waiting)} have joined, {schedule.quorum} are needed"
        strikes = schedule.strikes.get(self.address)
        if strikes is not None and strikes.until > schedule.step + 1:
            return f"outer step {strikes.until} to begin: this worker held up others, and is excluded until then"
        return f"outer step {schedule.step} to end, to take part in the next"

    def _train(self, schedule: Schedule) -> str:
        """Take one inner step, or make the contribution that they led to."""
        share = schedule.share_of(self.address)
        if self.run.assigned and self._progress.made and self._progress.share != share:
            self._undo()
        progress, wanted, tokens = self._progress, self.run.settings.inner_steps, 0
        try:
            if progress.made < wanted:
                tokens = self.task.train(self._data_share(schedule), progress.made)
        except FilesUnusableError as error:
            return self._cannot_use(error, schedule)
        if tokens:
            progress.made, progress.tokens, progress.share = progress.made + 1, progress.tokens + tokens, share
            if progress.made < wanted:
                return ""
        if not progress.made:  # nobody need wait for a worker without data; it takes part in the next step
            self._sender.post("leave", schedule)
            return f"outer step {schedule.step} to end: none of its data is this worker's"
        own = self._contribute(schedule, share)
        self._store.keep_contribution(schedule.step, own)
        self._own_contribution = own
        return ""

    def _contribute(self, schedule: Schedule, share: tuple[str, ...]) -> OwnContribution:
        step, progress, metrics = schedule.step, self._progress, self.task.metrics()
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.6g}" for name, value in metrics.items())
        log.info("to outer step %d: %d inner steps, %d tokens; %s", step, progress.made, progress.tokens, shown)
        expected = expected_at(self.log, self.state)
        inner = self.task.weights()
        gradient = {name: value - inner[name] for name, value in self.state.weights.items()}
        payload, error = encode_payload(self.state, gradient, expected, self.address, self._error_feedback)
        contribution = Contribution(
            run=self.run.digest, worker=self.address, step=step, base=expected.base, inner_steps=progress.made,
            tokens=max(1, progress.tokens), items=list(expected.items(self.address)), mode=self.run.settings.mode,
            shards=[ShardEntry(sha256=sha256_hex(shard), size=len(shard)) for shard in payload],
            metrics=reportable(metrics),
        )  # fmt: skip
        document = seal(contribution, self.run, self._account)
        return OwnContribution(document, payload, expected.base, schedule.attempt, share, error)

    def _data_share(self, schedule: Schedule) -> DataShare:
        files = () if schedule.partition is None else schedule.partition.split.get(self.address, ())
        if self._positions[0] != self.log.epoch:
            self._positions = self.log.epoch, self._read_positions()
        members, positions = schedule.partition_members, self._positions[1]
        return DataShare(self.run.seed, self.address, members, files, schedule.step, positions)

    def _read_positions(self) -> tuple[int, ...]:
        """Return how many documents each worker had passed that counted in the newest outer step, ascending; none where
        this worker is one of its makers, or no worker says so."""
        commit = self.log.commit
        if commit.previous is None or self.address in commit.made_of or self.run.assigned:
            return ()
        try:
            outer_step = read_step(self.transport, self.log, self.state, commit.step - 1)
        except (MissingObjectError, IntegrityError) as error:
            log.warning("the others' positions in the data are not known: %s", error)
            return ()
        reports = (contribution.metrics for contribution in outer_step.counted.values())
        return tuple(sorted(int(report[POSITION]) for report in reports if POSITION in report))

    def _cannot_use(self, error: FilesUnusableError, schedule: Schedule) -> str:
        """Wait as long as a payload may take, unless another worker has already; then report the files, and the step
        continues without this worker or without them."""
        if self._unusable_since[0] != (schedule.step, schedule.attempt):
            self._unusable_since = (schedule.step, schedule.attempt), self._clock()
        waited, limit = self._clock() - self._unusable_since[1], self.timeouts.window
        reported = {item.hex() for item in error.items} <= schedule.unusable
        if not (error.for_good or reported) and waited < limit:
            return f"{error.what} (at most {limit:.0f} s, then it is reported)"
        log.warning("%s", error)
        self._sender.post("unusable", schedule, None, [item.hex() for item in error.items])
        return f"outer step {schedule.step} to continue without this worker: {error.what}"

    def _offer(self, own: OwnContribution, schedule: Schedule) -> str:
        """Sign the contribution's hash, publish its payload once all have signed, and wait for the outer step."""
        signed = schedule.documents.get(self.address)
        if schedule.phase == Phase.COLLECT:
            if signed is None:
                self.transport.publish(own.document)
                self._sender.post("sign", schedule, own.digest)
            late = sorted(schedule.members - schedule.documents.keys())
            return f"contributions to outer step {schedule.step} from {', '.join(late)}"
        if schedule.phase == Phase.OPEN and signed == own.digest:
            self._sender.upload(own.digest, own.attempt, own.payload)
        # All-gather: the others' payloads are fetched to disk, each as soon as it is there.
        self._gathered.begin(schedule)
        expected = expected_at(self.log, self.state)
        for worker, document in schedule.documents.items():
            if worker != self.address:
                try:
                    self._gathered.fetch(worker, document, expected)
                except (MissingObjectError, IntegrityError) as error:
                    log.info("the payload of %s: %s", worker, error)
        return f"outer step {schedule.step} to be settled"

    def _offer_again(self, own: OwnContribution, schedule: Schedule) -> None:
        """Offer the contribution to another attempt, if its data is still this worker's and nobody else's. Otherwise
        make another from where the outer step began."""
        share = schedule.share_of(self.address)
        if own.share == share or (not self.run.assigned and set(share) <= set(own.share)):
            self._own_contribution = replace(own, attempt=schedule.attempt)
            return
        log.info("outer step %d begins again among other workers", schedule.step)
        self._store.drop_contribution()
        self._undo()
        self._own_contribution = None

    def _undo(self) -> None:
        """Go back to the inner task as it was when the outer step began."""
        self._store.undo()
        self._progress, self._error_feedback = InnerProgress(), self._store.error


class StallTimer:
    """Decides when a worker gives up: after the stall timeout without any progress in the log, or after as many
    attempts at one outer step as there are workers to hold it up, each of which is excluded after it has."""

    def __init__(self, run: DilocoRun, clock: Callable[[], float] = time.monotonic) -> None:
        timeouts = Timeouts.of(run)
        self._idle, self._step = timeouts.stall, max(timeouts.stall, (len(run.workers) + 1) * timeouts.step)
        self._clock = clock
        self._position: object = None
        self._number, self._moved, self._began = -1, 0.0, 0.0

    def check(self, worker: "Worker", why: str) -> None:
        """Raise MusterError if the worker has waited too long; `why`: for what."""
        now, position = self._clock(), worker.log.schedule.position
        if worker.state.step != self._number or worker.log.schedule.awaits_files:
            self._number, self._began, self._moved = worker.state.step, now, now
        if position != self._position:
            self._position, self._moved = position, now
        limits = (
            (self._idle, self._moved, f"no progress in {self._idle:.0f} s"),
            (self._step, self._began, f"no outer step in {self._step:.0f} s"),
        )
        for limit, since, what in limits:
            if now - since > limit:
                raise MusterError(f"{what}, waiting for {why}", "look at the run's coordinator")
