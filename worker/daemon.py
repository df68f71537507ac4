"""The worker's process: makes files, hands them in, claims its pay; survives kills, reorganisations and outages."""

import logging
import threading
import time
from collections.abc import Callable

from chain.contracts.pools import WorkItem
from chain.errors import ContractError, TransactionError
from engines.base import Engine
from engines.factory import make_engine
from protocol.amounts import show_tokens
from protocol.api.work import HeartbeatRequest, NoSlot, WorkSlot
from protocol.config import PoolConfig
from protocol.errors import ConfigError, MusterError
from protocol.identity import WorkId
from protocol.seeds import Work
from protocol.waits import WAITS
from runtime.heartbeats import Heartbeats, heartbeat
from runtime.orchestrator_client import OrchestratorClient
from runtime.pool_client import PoolClient
from runtime.signed_client import ServiceError
from worker.config import WorkerConfig
from worker.decide import Decision, Do, decide
from worker.journal import Journal, JournalEntry
from worker.produce import Producer

log = logging.getLogger("muster.worker")
_KEPT_FILES = 64
_CATCH_UP = 30.0
EXIT_OK, EXIT_REFUSED = 0, 3

MakeProducer = Callable[[PoolConfig, Engine], Producer]


class Worker:
    """One node of one pool. `run` returns the exit code: 0 when stopped or the pool closed, 3 when ejected."""

    def __init__(self, config: WorkerConfig, make_producer: MakeProducer = Producer) -> None:
        self.config = config
        account = config.node.open()
        self.node = str(account.address)
        self.link = PoolClient(config, account)
        self.service = OrchestratorClient(
            config.orchestrator, account, self.link.pool_id, allow_private=config.allow_private_sources
        )
        self.pool_config = self.link.pool_config()
        engine = config.engine
        self.producer = make_producer(
            self.pool_config,
            make_engine(engine.name, engine.dtype, engine.device, engine.threads, engine.batch),
        )
        self.journal = Journal(self.link.home / "journal")
        self.stopping = threading.Event()
        self._loaded = b""
        self._slot: WorkSlot | None = None
        self._phase, self._step = "starting", -1
        self._next_claim = 0.0
        self._said = ""
        self.made = self.submitted = 0

    def stop(self) -> None:
        """Ask `run` to finish: the file under way is handed in next time."""
        self.stopping.set()

    def run(self) -> int:
        beats = Heartbeats(self.service, self._beat, self.config.heartbeat_seconds)
        beats.start()
        model = self.pool_config.model
        log.info(
            "node %s works for pool %d: model %s, licence %s", self.node, self.config.pool, model.source, model.license
        )
        try:
            code = self._loop()
            self._claim()
            return code
        finally:
            beats.stop()
            self.service.close()
            self.link.close()

    def _loop(self) -> int:
        while not self.stopping.is_set():
            try:
                decision = self._look()
                if decision.do is Do.STOP:
                    log.log(logging.ERROR if decision.failed else logging.INFO, "stopping: %s", decision.reason)
                    return EXIT_REFUSED if decision.failed else EXIT_OK
                self._act(decision)
            except ConfigError:
                raise
            except MusterError as error:
                # Chain, bucket or service may be down for a while: say so and go on.
                self._pause(2.0, str(error), "trouble")
        return EXIT_OK

    def _look(self) -> Decision:
        state = self.link.refresh()
        if time.monotonic() >= self._next_claim:
            self._claim()
        pool = self.link.pool()
        seeds = self.link.seeds(pool.terms.maxLag) if pool else {}
        return decide(state, self.config.pool, self.node, self.journal.all(), seeds)

    def _act(self, decision: Decision) -> None:
        if decision.do is Do.WAIT:
            self._pause(self.config.poll_seconds, decision.reason, "waiting")
        elif decision.do is Do.RESUME and isinstance(decision.entry, JournalEntry):
            self._hand_in(decision.entry)
        elif decision.do is Do.MAKE:
            slot = self._ask(decision)
            if slot is not None:
                self._make(slot)

    # ---- Making a file

    def _ask(self, decision: Decision) -> WorkSlot | None:
        """A slot for the due file, or None after a pause."""
        try:
            answer = self.service.slot(decision.counter)
        except ServiceError as error:
            self._pause(2.0, f"no work slot: {error.detail}", "waiting")
            return None
        if isinstance(answer, NoSlot):
            self._pause(min(answer.wait, 5.0), f"no work slot: {answer.reason}", "waiting")
            return None
        if answer.step not in decision.steps:
            self._pause(self.config.poll_seconds, f"step {answer.step} is not confirmed here yet", "waiting")
            return None
        self._slot = answer
        return answer

    def _make(self, slot: WorkSlot) -> None:
        """Make and journal one file; the next look at the chain hands it in."""
        pool = self.link.pool()
        seed = self.link.seeds(pool.terms.maxLag).get(slot.step) if pool else None
        if pool is None or seed is None:
            return
        work_id = WorkId(self.link.pool_id, self.node, slot.step, slot.counter)
        work = Work(work_id, seed, pool.steps[slot.step].manifest)
        self._load(work)
        self._phase, self._step = "generating", slot.step
        started = time.monotonic()
        produced = self.producer.make(work)
        self.journal.add(work, produced)
        self.made += 1
        self._said = ""
        tokens, seconds = produced.commitment.units, time.monotonic() - started
        log.info("file %d of step %d: %d tokens in %.1f s", slot.counter, slot.step, tokens, seconds)

    def _load(self, work: Work) -> None:
        if self._loaded == work.manifest:
            return
        self._phase = "loading weights"
        folder = self.link.weights(work)
        self._loaded = b""
        self.producer.load(folder)
        self._loaded = work.manifest

    # ---- Handing it in

    def _hand_in(self, entry: JournalEntry) -> None:
        """Upload if need be, then submit; whatever fails is tried again from the journal."""
        if not entry.uploaded:
            self._phase = "uploading"
            entry = self.journal.mark_uploaded(entry, self.service.upload_rollouts(self._bytes(entry)))
        self._phase = "submitting"
        done = entry.commitment
        item = WorkItem(done.root, done.sha256, done.units, done.rows)
        try:
            landed = self.link.suite.pools.submit(self.config.pool, entry.step, entry.counter, item).send()
        except ContractError as error:
            self._refused(entry, error)
            return
        except TransactionError as error:
            self._pause(1.0, f"the fate of file {entry.counter} is unknown: {error}", "submitting")
            return
        self._slot = None
        self.submitted += 1
        log.info("file %d is submission %d", entry.counter, landed.sequence)
        self.journal.prune(entry.counter - _KEPT_FILES)
        self._catch_up(landed.receipt.block)

    def _bytes(self, entry: JournalEntry) -> bytes:
        return self.journal.data(entry)

    def _refused(self, entry: JournalEntry, error: ContractError) -> None:
        """The chain's next look decides; until then do not hammer it."""
        if error.name == "OverLimit":
            self._claim()
        if error.name == "CounterMismatch":
            # Most often our own transaction of before a kill: the projection will show it.
            self._pause(1.0, f"file {entry.counter}: {error}", "submitting")
            return
        self._pause(3.0, f"file {entry.counter} is not taken: {error}", "waiting")

    def _catch_up(self, block: int) -> None:
        """Wait until the projection has seen our own transaction, or it would be sent again."""
        deadline = time.monotonic() + _CATCH_UP
        while self.link.refresh().head < block and time.monotonic() < deadline and not self.stopping.is_set():
            time.sleep(0.1)

    # ---- Pay

    def _claim(self) -> None:
        """Claim what has vested, for the operator. Failures are logged: the next claim covers them."""
        self._next_claim = time.monotonic() + self.config.claim_seconds
        try:
            hint = self.link.state.claim_hint(self.config.pool, self.node, self.link.client.now())
            if hint is not None:
                grains = self.link.suite.pools.claim(hint).send()
                log.info("claimed %s tokens", show_tokens(grains))
        except MusterError as error:
            log.info("nothing claimed: %s", error)

    # ---- Being watched

    def _pause(self, seconds: float, reason: str, phase: str) -> None:
        self._phase = phase
        if reason != self._said:
            log.info("%s", reason)
            self._said = reason
        with WAITS.on(reason[:200]):
            self.stopping.wait(seconds)

    def _beat(self) -> HeartbeatRequest:
        return heartbeat(
            "worker",
            self.config.name,
            phase=self._phase,
            engine=self.producer.engine.info.name,
            step=self._step if self._step >= 0 else None,
            slot=self._slot.slot if self._slot else None,
            metrics={"made": float(self.made), "submitted": float(self.submitted)},
        )
