"""The worker's process: makes files and hands them in, through kills, reorganisations and outages."""

import logging
import threading
import time

from engines.torch_process import device_lost
from protocol.api.work import HeartbeatRequest, NoLease, WorkLease
from protocol.errors import ConfigError, MusterError, unwritten
from protocol.identity import WorkId
from protocol.seeds import Work
from runtime.entry import Exit
from runtime.home_status import keep_crash_message
from runtime.orchestrator_client import Heartbeats
from runtime.signed_client import ServiceError
from worker.config import WorkerConfig
from worker.decide import Decision, Do, decide
from worker.submit import Submitter, WorkerCollaborators, WorkerProgress

log = logging.getLogger("muster.worker")


class Worker:
    """One node of one pool. `run` returns the exit code: DONE when stopped or the pool closed, EJECTED when ejected."""

    def __init__(self, config: WorkerConfig, collaborators: WorkerCollaborators) -> None:
        self._config, self._collaborators, self._client = config, collaborators, collaborators.pool_client
        self._stopping = threading.Event()
        self._progress = WorkerProgress(self._stopping)
        self._submitter = Submitter(collaborators, self._progress, self._stopping)
        self._ahead = collaborators.ahead
        self._loaded = b""

    def stop(self) -> None:
        """Ask `run` to finish: the file under way is handed in next time."""
        self._stopping.set()

    def run(self) -> int:
        collaborators, model = self._collaborators, self._collaborators.producer.config.model
        beats = Heartbeats(collaborators.orchestrator, self._heartbeat, self._config.heartbeat_seconds)
        beats.start()
        about = collaborators.node, self._config.pool, model.source, model.license
        log.info("node %s works for pool %d: model %s, licence %s", *about)
        try:
            return self._loop()
        finally:
            beats.stop()
            collaborators.close()

    def _loop(self) -> int:
        while not self._stopping.is_set():
            try:
                decision = self._look()
                if decision.do is Do.STOP:
                    log.log(logging.ERROR if decision.failed else logging.INFO, "stopping: %s", decision.reason)
                    return Exit.EJECTED if decision.failed else Exit.DONE
                if decision.do is Do.WAIT:
                    if decision.entry is not None:
                        self._submitter.ask(decision.entry)
                    self._progress.pause(self._config.poll_seconds, decision.reason, "waiting")
                elif decision.do is Do.HAND_IN and decision.entry is not None:
                    self._submitter.hand_in(decision.entry)
                elif decision.do is Do.SUBMIT and decision.entry is not None:
                    self._submitter.submit(decision.entry)
                elif lease := self._lease(decision):
                    self._make(lease)
            except ConfigError:
                raise
            except MusterError as error:
                if device_lost(error):  # only another process can open it again
                    log.error("ending: %s", error)
                    keep_crash_message(self._config.home, str(error))
                    return Exit.STALLED
                # Chain, bucket or service may be down for a while: log it and go on.
                self._progress.pause(2.0, str(error), "trouble")
            except OSError as error:
                self._progress.pause(2.0, unwritten(error), "trouble")
        return Exit.DONE

    def _look(self) -> Decision:
        state, pool = self._client.refresh(), self._client.pool()
        self._submitter.follow(state)
        seeds = self._client.seeds(pool.terms.maxLag) if pool else {}
        entries = self._collaborators.journal.all()
        handed_in, now = self._submitter.handed_in, self._client.chain.now
        return decide(state, self._config.pool, self._collaborators.node, entries, seeds, handed_in, now)

    def _lease(self, decision: Decision) -> WorkLease | None:
        try:
            answer = self._collaborators.orchestrator.request_lease(decision.counter, self._ready(decision.steps))
        except ServiceError as error:
            self._progress.pause(2.0, f"no lease: {error.detail}", "waiting")
            return None
        if isinstance(answer, NoLease):
            seconds, why = min(answer.wait, 5.0), f"no lease: {answer.reason}"
        elif answer.step not in decision.steps:
            seconds, why = self._config.poll_seconds, f"step {answer.step} is not confirmed here yet"
        else:
            self._progress.lease = answer
            return answer
        self._progress.pause(seconds, why, "waiting")
        return None

    def _ready(self, steps: tuple[int, ...]) -> int | None:
        """Return the newest of these policy steps that the engine can change to without a download."""
        pool = self._client.pool()
        named = [(one.step, one.manifest) for one in pool.steps if one.step in steps] if pool else []
        here = [step for step, name in named if name == self._loaded or self._ahead.folder(name) is not None]
        return max(here, default=None)

    def _make(self, lease: WorkLease) -> None:
        """Make and journal one file; the next poll of the chain hands it in."""
        pool = self._client.pool()
        seed = self._client.seeds(pool.terms.maxLag).get(lease.step) if pool else None
        if pool is None or seed is None:
            return
        work_id = WorkId(self._client.pool_id, self._collaborators.node, lease.step, lease.counter)
        work = Work(work_id, seed, pool.steps[lease.step].manifest)
        self._load(work)
        self._progress.phase, self._progress.step = "generating", lease.step
        started = time.monotonic()
        with self._ahead.clock.working():
            produced = self._collaborators.producer.make(work)
        self._collaborators.journal.add(work, produced)
        self._progress.finished()
        tokens, seconds = produced.commitment.units, time.monotonic() - started
        log.info("file %d of step %d: %d tokens in %.1f s", lease.counter, lease.step, tokens, seconds)

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
        return self._progress.heartbeat(self._config.name, self._collaborators.producer.engine.info.name)
