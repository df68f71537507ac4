"""The run's coordinator: reads workers' messages, fetches and judges what they publish, and writes the log.

All that it knows follows from the log, the bucket and the run's first state: a kill costs the time since."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

from diloco import messages
from diloco.chain import StepRecorder
from diloco.codec import MalformedContribution
from diloco.config import Timeouts
from diloco.log import Log, LogWriter, begin_log, catch_up, expected_at
from diloco.outer import Admitted, OuterState, OuterStepError, Payloads, settle, update_norm
from diloco.state_machine import Phase, Schedule
from diloco.store import step_status
from diloco.transport import AttemptCache, BackgroundJob, PollBackoff, Transport
from protocol.accounts import LocalAccount
from protocol.errors import MusterError, UnreachableError, printable

log = logging.getLogger("muster.diloco")


class Coordinator:
    """Of one run. `start` brings it to the log's end, `turn` does whatever can be done now. `state` is the newest outer
    state; `excluded` says why contributions to the newest step did not count; `update_norm` is the length of the newest
    outer update, 0 where this process did not make it. `recorder` records outer steps on chain."""

    def __init__(
        self,
        transport: Transport,
        account: LocalAccount,
        first: OuterState,
        home: Path,
        recorder: StepRecorder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.transport, self.run, self.state = transport, transport.run, first
        self.timeouts = Timeouts.of(self.run)
        self.excluded: dict[str, str] = {}
        self.update_norm = 0.0
        self._account, self._first, self._recorder, self._clock = account, first, recorder, clock
        # No step waits for a state to be published: a newcomer that finds no recent one makes the steps since again.
        self._publication = BackgroundJob("state-sender")
        self._all_backoff = PollBackoff(factor=50.0)  # of messages of workers that the step does not wait for
        self._gathered = AttemptCache(transport, home / "payloads")
        self._writer: LogWriter | None = None
        self._phase: tuple[object, float] = None, 0.0
        self._undecodable: set[tuple[str, str]] = set()
        self._outcome: tuple[OuterState | None, Admitted] | None = None
        self._refused: dict[str, str] = {}

    @property
    def log(self) -> Log:
        """The log as far as it is written."""
        return self._log_writer.written

    @property
    def _log_writer(self) -> LogWriter:
        assert self._writer is not None, "call `start` first"
        return self._writer

    @property
    def _draft(self) -> Log:
        return self._log_writer.draft

    @property
    def _schedule(self) -> Schedule:
        return self._draft.schedule

    def start(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Follow the log to its end, or begin it. Raises IntegrityError if it is another run's, UnreachableError."""
        newest = Log.newest(self.transport)
        if newest is None:
            begin_log(self.transport, self._account, self._first)
            newest = Log.newest(self.transport)
            assert newest is not None, "it was written just now"
        while newest.advance() is not None:  # also past a commit record that strangers' places hid
            pass
        for state in catch_up(self.transport, self.state, newest):
            self.state = state
        name = newest.commit.state
        if name is not None and not self.transport.has_state(name) and self.transport.state_name(self.state) == name:
            self._publish(self.state)  # a kill came before it was there
        self._writer = LogWriter(newest, self._account)
        if self._recorder is not None:
            self._recorder.start()
        log.info("coordinating %s: outer step %d, entry %d", self.run.name, self.state.step, newest.number)

    def advance(self) -> str:
        """`turn`, for a process; return what is waited for."""
        self.turn()
        return self.waiting_for()  # also after an entry: no worker has read it yet

    def assign(self, items: Sequence[str]) -> None:
        """Say which files (SHA-256) the outer step under way trains on, unless that was said. Raises as `turn`."""
        self._finish_write()
        if self._schedule.items is None:
            self._tell(messages.FilesAssigned(step=self.state.step, items=list(items)))

    def turn(self) -> bool:
        """Do what can be done now, and write it into the log as one entry; return whether anything was written. Raises
        IntegrityError if another process writes the log, UnreachableError."""
        number = self.log.number
        self._publication.tend()
        self._finish_write()
        self._read_messages()
        self._begin_attempt()
        if self._schedule.phase == Phase.OPEN:
            self._open()
        if self._schedule.phase == Phase.SETTLE:
            self._settle()
        # Whatever else there is to tell: a worker with something new to say every second must not stop the clock.
        self._check_timeout()
        self._log_writer.write()
        return self.log.number > number

    def finish(self) -> None:
        """Return once the newest state is published and recorded, or cannot be."""
        self._publication.finish()
        if self._recorder is not None:
            self._recorder.finish()

    def waiting_for(self) -> str:
        """Return what holds the step under way up, for a person."""
        schedule = self._schedule
        if schedule.awaits_files:
            return f"the files of outer step {schedule.step}"
        if not schedule.members:
            return f"workers: {len(schedule.waiting)} have joined, {schedule.quorum} are needed"
        documents, collecting = schedule.documents, schedule.phase == Phase.COLLECT
        missing = schedule.members - documents.keys() if collecting else documents.keys() - schedule.opened
        what = {Phase.COLLECT: "contributions", Phase.OPEN: "payloads", Phase.SETTLE: "enough admitted contributions"}
        unusable = "".join(f"; a worker cannot use file {item[:16]}…" for item in sorted(schedule.unusable)[:3])
        who = ", ".join(sorted(missing)) or "others"
        return f"{what[schedule.phase]} to outer step {schedule.step} from {who}{unusable}"

    def status(self) -> dict[str, Any]:
        """Return what people may be shown, also before `start`."""
        schedule = None if self._writer is None else self.log.schedule
        return {
            "coordinator": self.run.coordinator,
            "run": self.run.name,
            **step_status(self.state, schedule),
            "excluded": self.excluded,
            "items": None if schedule is None or schedule.items is None else len(schedule.items),
            "unusable": [] if schedule is None else sorted(schedule.unusable | schedule.skipped),
        }

    def _finish_write(self) -> None:
        """Write an entry again that may not have arrived; if it committed an outer step, take that over."""
        self._log_writer.retry()
        if self.log.commit.step > self.state.step:
            for state in catch_up(self.transport, self.state, self.log):
                self._adopt(state)

    def _adopt(self, state: OuterState) -> None:
        self.update_norm = update_norm(self.state, state)
        self.state = state

    def _publish(self, state: OuterState) -> None:
        self._publication.begin(f"outer state {state.step}", lambda: self.transport.publish_state(state))

    def _tell(self, event: messages.LogEvent) -> None:
        """Write an event at once, with those before it."""
        self._log_writer.add(event)
        self._log_writer.write()

    def _add(self, event: messages.LogEvent) -> None:
        if self._log_writer.takes(event):
            self._log_writer.add(event)

    def _read_messages(self, every: bool = False) -> None:
        schedule = self._schedule
        awaited = frozenset[str]()
        if schedule.phase == Phase.COLLECT:
            awaited = schedule.members - schedule.barred - schedule.documents.keys()
        every = every or self._all_backoff.due()
        with self._all_backoff.taking() if every else nullcontext():
            for worker in [worker for worker in self.run.workers if every or worker in awaited]:
                for message in self.transport.new_messages(worker, self._draft.messages):
                    self._handle(message)

    def _handle(self, message: messages.WorkerMessage) -> None:
        """Add a message to the log, if it says something that counts now."""
        schedule, worker, number = self._schedule, message.worker, message.number
        if message.kind == "leave":
            self._add(messages.Left(worker=worker, message=number))
        elif message.kind == "join" and message.digest is not None:
            self._add(messages.Joined(worker=worker, message=number, digest=message.digest))
        elif (message.step, message.attempt) != (schedule.step, schedule.attempt):
            return
        elif message.kind == "unusable":
            self._add(messages.FilesUnusable(worker=worker, message=number, items=message.items))
        elif message.digest is not None:
            self._handle_signature(worker, number, message.digest)

    def _handle_signature(self, worker: str, number: int, document: str) -> None:
        """Check a signed contribution before the log takes it; one that cannot be had is waited for until timeout."""
        signed = messages.ContributionSigned(worker=worker, message=number, document=document)
        if not self._log_writer.takes(signed):
            return
        self._begin_attempt()
        try:
            self._gathered.contribution(worker, document, expected_at(self._draft, self.state))
        except UnreachableError:
            raise
        except MalformedContribution as error:
            why = self._refused[worker] = printable(error.what, messages.MAX_REASON - 1)
            log.warning("the contribution of %s is refused: %s", worker, why)
            self._add(messages.ContributionRefused(worker=worker, message=number, document=document, why=why))
        except MusterError as error:
            log.warning("the contribution of %s cannot be had: %s", worker, error)
        else:
            self._log_writer.add(signed)

    def _begin_attempt(self) -> None:
        """Forget what was fetched for an attempt that is over."""
        if self._gathered.begin(self._schedule):
            self._undecodable, self._outcome = set(), None

    def _payloads(self, contributors: Mapping[str, str]) -> Payloads:
        expected = expected_at(self._draft, self.state)
        contributions = {
            worker: self._gathered.contribution(worker, document, expected) for worker, document in contributors.items()
        }
        return Payloads(self.state, expected, contributions, self._gathered.read)

    def _open(self) -> None:
        """Tell of payloads that are published whole and decode; one that does not decode is not looked at again."""
        expected = expected_at(self._draft, self.state)
        for worker, document in sorted(self._schedule.documents.items()):
            if worker in self._schedule.opened or (worker, document) in self._undecodable:
                continue
            try:
                if not self._gathered.fetch(worker, document, expected):
                    continue
                payloads = self._payloads({worker: document})
                for number in range(self.run.settings.shards):
                    payloads.shard(worker, number)
            except UnreachableError as error:
                log.info("the payload of %s: %s", worker, error)
            except MusterError as error:
                log.warning("the payload of %s is refused: %s", worker, error)
                self._undecodable.add((worker, document))
            else:
                self._add(messages.PayloadOpened(worker=worker, document=document))

    def _settle(self) -> None:
        schedule = self._schedule
        if not schedule.contributors:
            self._commit(self.state.skipped(), {})
            return
        if self._outcome is None:
            try:
                self._outcome = settle(self._payloads(schedule.contributors))
            except OuterStepError as error:
                log.error("outer step %d cannot be made: %s", self.state.step, error)
                self._outcome = None, Admitted({}, {})
            except UnreachableError:
                raise
            except MusterError as error:
                log.warning("outer step %d begins again, an opened payload is gone: %s", self.state.step, error)
                self._fail(schedule)
                return
            excluded = self._outcome[1].excluded
            for worker, why in excluded.items():
                log.warning("the contribution of %s to outer step %d does not count: %s", worker, self.state.step, why)
            self.excluded, self._refused = self._refused | dict(excluded), {}
        after, admitted = self._outcome
        if after is not None:
            self._commit(after, admitted.weights)
        elif schedule.entering or self._waited() > self.timeouts.window:
            self._fail(schedule)

    def _commit(self, after: OuterState, weights: Mapping[str, Fraction]) -> None:
        name = None
        if after.step % self.run.settings.state_every == 0 and not self._publication.busy:
            name = self.transport.state_name(after)
            self._publish(after)
        draft = self._draft
        commit = draft.schedule.commit(after.digest.hex(), weights.keys(), draft.epoch, draft.messages, name)
        self._tell(commit)
        self._adopt(after)
        if self._recorder is not None:
            self._recorder.committed(commit, weights)

    def _waited(self) -> float:
        """Return the seconds since this process first saw the phase under way, by a clock that nobody sets."""
        phase, now = (*self._schedule.position, self._schedule.awaits_files), self._clock()
        if phase != self._phase[0]:
            self._phase = phase, now
        return now - self._phase[1]

    def _check_timeout(self) -> None:
        schedule, waited = self._schedule, self._waited()
        if not schedule.members or schedule.phase == Phase.SETTLE or schedule.awaits_files:
            return
        if waited <= (self.timeouts.collect if schedule.phase == Phase.COLLECT else self.timeouts.window):
            return
        self._read_messages(every=True)  # time is up only for those of whom there is nothing yet
        if self._schedule.position == schedule.position and schedule.phase == Phase.OPEN:
            self._open()
        if self._schedule.position == schedule.position:
            log.warning("time is up for %s", self.waiting_for())
            self._fail(schedule)

    def _fail(self, schedule: Schedule) -> None:
        self._log_writer.add(messages.PhaseFailed(attempt=schedule.attempt, phase=schedule.phase.value))
