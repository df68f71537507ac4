"""The worker's process: makes files and hands them in, through kills, reorganisations and outages.

The main thread follows the chain, takes leases and starts a thread for each file, which waits for the engines and then
scores. One more thread hands finished files in. So the engines never wait for anything else than a lease.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import NamedTuple

from engines.torch_process import device_lost
from protocol.api.work import MOST_LEASES, HeartbeatRequest, NoLease, WorkLease
from protocol.errors import ConfigError, MusterError, unwritten
from protocol.identity import WorkId
from protocol.seeds import Work
from protocol.waits import WAITS
from runtime.engine_process import EngineLost
from runtime.entry import Exit
from runtime.home_status import keep_crash_message, stalled
from runtime.orchestrator_client import Heartbeats
from runtime.signed_client import ServiceError
from worker.config import WorkerConfig
from worker.decide import Decision, Do, Load, decide, has_room
from worker.journal import JournalEntry
from worker.submit import Submitter, WorkerCollaborators, WorkerProgress

log = logging.getLogger("muster.worker")
_TROUBLE_SECONDS = 2.0


class Worker:
    """One node of one pool. `run` returns the exit code: DONE when stopped or the pool closed, EJECTED when ejected."""

    def __init__(self, config: WorkerConfig, collaborators: WorkerCollaborators) -> None:
        self._config, self._collaborators, self._client = config, collaborators, collaborators.pool_client
        self._stopping, self._changed = threading.Event(), threading.Event()
        self._progress = WorkerProgress(self._stopping)
        self._submitter = Submitter(collaborators, self._progress, self._stopping)
        self._ahead = collaborators.ahead
        self._loaded, self._look_due = b"", 0.0
        self._threads, self._submitting = ThreadPoolExecutor(MOST_LEASES, "file"), ThreadPoolExecutor(1, "submitting")
        self._making: dict[int, Future[None]] = {}
        self._next: WorkLease | None = None  # of another policy step, which begins once nothing is made of this one
        self._handing: Future[None] | None = None

    def stop(self) -> None:
        """Ask `run` to finish: files under way go on next time from the rows that are finished."""
        self._stopping.set()
        self._changed.set()

    def run(self) -> int:
        collaborators, model = self._collaborators, self._collaborators.producer.config.model
        beats = Heartbeats(collaborators.orchestrator, self._heartbeat, self._config.heartbeat_seconds)
        beats.start()
        about = collaborators.node, self._config.pool, model.source, model.license
        log.info("node %s works for pool %d: model %s, licence %s", *about)
        try:
            return self._loop()
        finally:
            self._stopping.set()
            beats.stop()
            if collaborators.engines:
                collaborators.engines.close()
            for threads in (self._threads, self._submitting):
                threads.shutdown(cancel_futures=True)
            collaborators.close()

    def _loop(self) -> int:
        while not self._stopping.is_set():
            self._changed.clear()
            try:
                self._take_finished()
                idle = self._handing is None or self._handing.done()
                decision = self._look()
                if decision.do is Do.STOP:
                    log.log(logging.ERROR if decision.failed else logging.INFO, "stopping: %s", decision.reason)
                    return Exit.EJECTED if decision.failed else Exit.DONE
                if idle:
                    self._hand(decision)
                seconds, reason = self._make_more(decision)
                if seconds:
                    self._progress.pause(seconds, reason, "waiting", self._changed)
            except ConfigError:
                raise
            except MusterError as error:
                if isinstance(error, EngineLost) or device_lost(error):  # only another process can open it again
                    log.error("ending: %s", error)
                    keep_crash_message(self._config.home, str(error))
                    return Exit.STALLED
                # Chain, bucket or service may be down for a while: log it and go on.
                self._progress.pause(_TROUBLE_SECONDS, str(error), "trouble")
            except OSError as error:
                self._progress.pause(_TROUBLE_SECONDS, unwritten(error), "trouble")
        return Exit.DONE

    def _take_finished(self) -> None:
        """Forget the files whose threads ended. Raises what one of them raised: it is made again, from its rows."""
        for counter, thread in list(self._making.items()):
            if thread.done():
                del self._making[counter]
                self._progress.making = len(self._making)
                thread.result()

    def _look(self) -> Decision:
        """Decide by a state of the chain that is at most `poll_seconds` old: somebody who waits for a lease asks more
        often."""
        if time.monotonic() >= self._look_due:
            self._client.refresh()
            self._look_due = time.monotonic() + self._config.poll_seconds
        state, pool = self._client.state, self._client.pool()
        self._submitter.follow(state)
        seeds = self._client.seeds(pool.terms.maxLag) if pool else {}
        entries, making = self._collaborators.journal.all(), set(self._making)
        if self._next is not None:
            making.add(self._next.counter)
        handed_in, now = self._submitter.handed_in, self._client.chain.now
        return decide(state, self._config.pool, self._collaborators.node, entries, seeds, handed_in, now, making)

    def _hand(self, decision: Decision) -> None:
        """Let the other thread do what is due with the files that are finished."""
        if self._handing is not None:
            self._handing.result()
            self._handing = None
        does = {Do.HAND_IN: self._submitter.hand_in, Do.SUBMIT: self._submitter.submit, Do.WAIT: self._submitter.ask}
        entry = decision.entry
        if entry is not None and (decision.do is not Do.WAIT or self._submitter.may_ask(entry)):
            self._handing = self._submitting.submit(self._try, does[decision.do], entry)

    def _try(self, act: Callable[[JournalEntry], None], entry: JournalEntry) -> None:
        try:
            act(entry)
        except ConfigError:
            raise
        except MusterError as error:
            self._progress.pause(_TROUBLE_SECONDS, str(error), "trouble")
        except OSError as error:
            self._progress.pause(_TROUBLE_SECONDS, unwritten(error), "trouble")
        finally:
            self._changed.set()

    def _make_more(self, decision: Decision) -> tuple[float, str]:
        """Begin another file if there is work and room; else return after how many seconds to look again, and why."""
        poll = self._config.poll_seconds
        if self._next is None:
            if decision.counter is None:
                return poll, decision.reason
            if not has_room(self._load_now(), self._collaborators.producer.config.work.rows, self._longest):
                return poll, ""
            answer = self._request(decision.counter, decision.steps)
            if isinstance(answer, _Wait):
                return answer
            self._next = self._progress.leases[answer.counter] = answer
        return (poll, "") if not self._begin(self._next) else (0.0, "")

    @property
    def _longest(self) -> float:
        """Seconds after which the newest leases end whatever heartbeats say."""
        return min((lease.longest for lease in list(self._progress.leases.values())), default=0.0)

    def _load_now(self) -> Load:
        if (engines := self._collaborators.engines) is None:
            return Load(len(self._making), 0, 0)
        return Load(len(self._making), engines.slots, engines.waiting, engines.rate, engines.length)

    def _request(self, counter: int, steps: tuple[int, ...]) -> "WorkLease | _Wait":
        try:
            answer = self._collaborators.orchestrator.request_lease(counter, self._ready(steps))
        except ServiceError as error:
            return _Wait(2.0, f"no lease: {error.detail}")
        if isinstance(answer, NoLease):
            return _Wait(min(answer.wait, 5.0), f"no lease: {answer.reason}")
        if answer.step not in steps:
            return _Wait(self._config.poll_seconds, f"step {answer.step} is not confirmed here yet")
        return answer

    def _ready(self, steps: tuple[int, ...]) -> int | None:
        """Return the newest of these policy steps that the engine can change to without a download."""
        pool = self._client.pool()
        named = [(entry.step, entry.manifest) for entry in pool.steps if entry.step in steps] if pool else []
        here = [step for step, name in named if name == self._loaded or self._ahead.folder(name) is not None]
        return max(here, default=None)

    def _begin(self, lease: WorkLease) -> bool:
        """Start a file's thread, unless files of another policy step are under way: the engines have one step's weights
        at a time."""
        pool = self._client.pool()
        seed = self._client.seeds(pool.terms.maxLag).get(lease.step) if pool else None
        if pool is None or seed is None:
            self._next = None
            self._progress.leases.pop(lease.counter, None)
            return True
        work_id = WorkId(self._client.pool_id, self._collaborators.node, lease.step, lease.counter)
        work = Work(work_id, seed, pool.steps[lease.step].manifest)
        if self._making and work.manifest != self._loaded:
            return False
        self._next = None  # where these weights cannot be had, the service is asked again: it may have a newer step
        self._load(work)
        self._progress.step = lease.step
        self._making[lease.counter] = self._threads.submit(self._make, work)
        self._progress.making = len(self._making)
        return True

    def _make(self, work: Work) -> None:
        """Make and journal one file; the next poll of the chain hands it in."""
        started = time.monotonic()
        try:
            with self._ahead.clock.working():
                produced = self._collaborators.producer.make(work)
            self._collaborators.journal.add(work, produced)
            self._progress.finished()
            tokens, seconds = produced.commitment.units, time.monotonic() - started
            log.info("file %d of step %d: %d tokens in %.1f s", work.id.counter, work.id.step, tokens, seconds)
        finally:
            self._changed.set()

    def _load(self, work: Work) -> None:
        if self._loaded == work.manifest:
            return
        began, swap = time.monotonic(), bool(self._loaded)
        self._progress.phase = "loading weights"
        folder = self._ahead.wait(work.manifest) or self._client.weights(work)
        self._loaded, reloading = b"", time.monotonic()
        try:
            self._collaborators.producer.load(folder)
        except (MusterError, OSError) as error:
            # What was fetched ahead may have been removed or damaged since: fetching checks every byte again.
            log.info("step %d is fetched again: %s", work.id.step, error)
            folder, reloading = self._client.weights(work), time.monotonic()
            self._collaborators.producer.load(folder)
        reload = time.monotonic() - reloading
        self._loaded = work.manifest
        if swap:
            self._progress.swapped(time.monotonic() - began - reload, reload)

    def _heartbeat(self) -> HeartbeatRequest:
        self._progress.weights, self._progress.fetching = self._client.newest_weights, self._ahead.figures
        with WAITS.on(why) if (why := stalled(self._config.home)) else nullcontext():
            return self._progress.heartbeat(self._config.name, self._collaborators.producer.engine.info.name)


class _Wait(NamedTuple):
    """No lease for so many seconds, and why."""

    seconds: float
    reason: str
