"""Handing finished files to the service, and submitting by receipt what it does not relay."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Self

from chain.contracts import SignedFile, refused_file
from chain.errors import ContractError, TransactionError
from chain.indexer.state import State
from engines.base import Engine
from protocol.api.work import HeartbeatRequest, UploadReceipt, WorkLease
from protocol.config import PoolConfig
from protocol.errors import ConfigError
from protocol.evidence.figures import arithmetic_label
from protocol.waits import WAITS
from runtime.engine_process import EngineProcesses
from runtime.orchestrator_client import OrchestratorClient, heartbeat
from runtime.pool_client import PoolClient
from runtime.relay import serve_as_peer
from runtime.signer import accounts_of
from runtime.weights_ahead import WeightsAhead
from worker.config import WorkerConfig
from worker.journal import Journal, JournalEntry
from worker.produce import Producer

log = logging.getLogger("muster.worker")


class WorkerProgress:
    """`leases`: by counter, those that heartbeats keep; `making`: files under way; `step`: that of the newest of them,
    −1 before the first; `weights`: the newest step whose weights are here, `fetching` what that took; `swaps` counts
    changes of weights, with the longest pause (`swap_pause`) besides the engine's own reload, in seconds."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping, self._logged = stopping, dict[int, str]()
        self.phase, self.step, self.making = "starting", -1, 0
        self.leases: dict[int, WorkLease] = {}
        self.made = self.submitted = 0
        self.weights = -1
        self.fetching: Mapping[str, float] = {}
        self.swaps = {"swaps": 0.0, "swap_reload": 0.0, "swap_pause": 0.0}

    def pause(self, seconds: float, reason: str, phase: str, until: threading.Event | None = None) -> None:
        """Wait, at most `until` something happens, and log the reason once."""
        self.phase, thread = phase, threading.get_ident()
        if reason and reason != self._logged.get(thread):
            log.info("%s", reason)
            self._logged[thread] = reason
        with WAITS.on(reason[:200]) if reason else nullcontext():
            (until or self._stopping).wait(seconds)

    def finished(self) -> None:
        """Count a file; the next wait is logged even if its reason is the same."""
        self.made += 1
        self._logged.clear()

    def swapped(self, pause: float, reload: float) -> None:
        """Record a change of weights that took the engine `reload` seconds, and making `pause` seconds besides."""
        if pause >= self.swaps["swap_pause"]:
            self.swaps |= {"swap_reload": reload, "swap_pause": pause}
        self.swaps["swaps"] += 1
        log.info("weights changed: %.2f s of the engine, %.3f s besides", reload, pause)

    def heartbeat(self, name: str, engine: str) -> HeartbeatRequest:
        return heartbeat(
            "worker",
            name,
            phase="generating" if self.making else self.phase,
            engine=engine,
            step=self.step if self.step >= 0 else None,
            leases=[lease.lease for lease in list(self.leases.values())],
            weights=self.weights,
            metrics={"made": float(self.made), "submitted": float(self.submitted), **self.fetching, **self.swaps},
        )


MakeProducer = Callable[[PoolConfig, Engine], Producer]  # of a cheat, whose engine is in this process


@dataclass(frozen=True)
class WorkerCollaborators:
    """`node` is the address as which `pool_client` sends. `ahead` fetches weights once it is started."""

    node: str
    pool_client: PoolClient
    orchestrator: OrchestratorClient
    producer: Producer
    journal: Journal
    ahead: WeightsAhead

    @classmethod
    def connect(cls, config: WorkerConfig, make_producer: MakeProducer | None = None) -> Self:
        """Connect to what a configuration names. Raises ConfigError or UnreachableError."""
        (account,) = accounts_of(config)
        client = PoolClient(config, account)
        serve_as_peer(client, account)
        pool_config, ahead = client.pool_config(), WeightsAhead(client, config.poll_seconds)
        # An engine takes seconds to a minute to start: a joining worker downloads meanwhile.
        ahead.start()
        journal = Journal(client.home / "journal")
        if make_producer is None:
            producer = Producer(pool_config, EngineProcesses(config.engine, config.home), journal.rows)
        else:
            producer = make_producer(pool_config, config.engine.make())
        info, evidence = producer.engine.info, pool_config.evidence
        if evidence and (why := evidence.refuses(arithmetic_label(info.name, info.dtype, info.device))):
            raise ConfigError(why, "choose one of these as `engine`, on a machine of that kind")
        producer.prepare()
        private = config.allow_private_sources
        orchestrator = OrchestratorClient(config.orchestrator, account, client.pool_id, allow_private=private)
        return cls(str(account.address), client, orchestrator, producer, journal, ahead)

    @property
    def engines(self) -> EngineProcesses | None:
        """The engines that compute rows of several files at once; None for one in this process, which cannot."""
        return self.producer.engine if isinstance(self.producer.engine, EngineProcesses) else None

    def close(self) -> None:
        self.ahead.stop()
        self.orchestrator.close()
        self.pool_client.close()


_KEPT_FILES = 64
_CATCH_UP = 30.0
_ASK_SECONDS = 5.0
# Seconds by which a service's clock may be ahead of the chain's: its receipt counts once the chain is there
_AHEAD = 15
# Refusals after which a receipt is worth nothing any more
_OVERDUE = frozenset({"ReceiptOutOfTime", "WrongStatus", "StepOutOfRange", "NotMember"})


class Submitter:
    """Hands finished files to the service, which relays them, and submits by receipt what it does not relay. What fails
    is tried again: the journal's entry stays until the chain shows the file. `handed_in`: what the service has."""

    def __init__(self, collaborators: WorkerCollaborators, progress: WorkerProgress, stopping: threading.Event) -> None:
        self._collaborators, self._client = collaborators, collaborators.pool_client
        self._progress, self._stopping = progress, stopping
        self.handed_in: set[str] = set()
        self._landed, self._asked = -1, 0.0

    def follow(self, state: State) -> None:
        """Note which files are on chain. What a reorganisation removed has to be handed in again."""
        account = state.accounts.get((self._client.config.pool, self._collaborators.node))
        if account is None or account.counter == self._landed:
            return
        if 0 <= self._landed < account.counter:
            self._progress.submitted += account.counter - self._landed
            for counter in range(self._landed, account.counter):
                log.info("file %d is submission %d", counter, account.sequences[counter])
        self._landed = account.counter
        for counter in [leased for leased in list(self._progress.leases) if leased < account.counter]:
            self._progress.leases.pop(counter, None)
        journal = self._collaborators.journal
        self.handed_in = {work.stem for work in journal.all() if work.counter >= account.counter} & self.handed_in
        journal.prune(account.counter - _KEPT_FILES)

    def hand_in(self, entry: JournalEntry) -> None:
        """Upload a file and give the service what it needs to relay it."""
        progress, journal = self._progress, self._collaborators.journal
        progress.phase = "uploading"
        data = journal.data(entry)
        self._collaborators.orchestrator.upload_rollouts(data)
        if self._ask(entry, len(data)):
            self.handed_in.add(entry.stem)
            progress.leases.pop(entry.counter, None)

    def may_ask(self, entry: JournalEntry) -> bool:
        """Return whether `ask` would ask now."""
        return entry.receipt is not None and time.monotonic() >= self._asked + _ASK_SECONDS

    def ask(self, entry: JournalEntry) -> None:
        """Ask the service, from time to time, what became of a file that it has."""
        if entry.receipt is not None and self.may_ask(entry):
            self._ask(entry, entry.receipt.size)

    def _ask(self, entry: JournalEntry, size: int) -> bool:
        """Return whether the service gave a receipt that counts on chain. Without one, it could leave the file out for
        good."""
        self._asked = time.monotonic()
        answer = self._collaborators.orchestrator.hand_in(self._signed(entry, size).file)
        if (problem := self._worthless(answer.receipt)) is not None:
            self._progress.pause(5.0, f"nothing is handed in: {problem}", "waiting")
            return False
        if answer.receipt != entry.receipt:
            self._collaborators.journal.change(entry, receipt=answer.receipt, overdue=False)
        if answer.state == "refused":
            self._progress.pause(3.0, f"file {entry.counter} is not taken: {answer.reason}", "waiting")
        return True

    def _signed(self, entry: JournalEntry, size: int) -> SignedFile:
        client, file = self._client, entry.submission(size)
        account = client.client.account
        assert account is not None
        return SignedFile(str(account.address), file.signed(account, client.pool_id))

    def _worthless(self, receipt: UploadReceipt) -> str | None:
        """Return why the chain would not take a receipt; None if it would."""
        pool, now = self._client.pool(), self._client.client.now()
        oldest = now - pool.terms.receiptWindow if pool else now
        if pool and pool.is_service(receipt.signer, now) and oldest <= receipt.time <= now + _AHEAD:
            return None
        named = pool.service if pool and pool.service else "no key"
        signer = f"{receipt.signer} signs the service's receipts, of time {receipt.time}"
        return f"{signer}; the pool's owner named {named}"

    def submit(self, entry: JournalEntry) -> None:
        """Submit a file by its receipt, which costs the node gas, because the service does not relay it."""
        assert entry.receipt is not None
        pools, signed = self._client.suite.pools, self._signed(entry, entry.receipt.size)
        unrelayed = f"the service does not relay file {entry.counter}"
        self._progress.phase = "submitting"
        try:
            landed = pools.submit_lane(self._client.config.pool, [signed], [entry.receipt]).send()
        except ContractError as error:
            self._refused(entry, error)
        except TransactionError as error:
            todo = "its fate is unknown" if error.tx_hash else f"send ether to {signed.node}, or tell the pool's owner"
            self.ask(entry)  # the service may have lost it
            self._progress.pause(5.0, f"{unrelayed}: {todo} ({error})", "submitting")
        else:
            log.warning("%s: the node submitted it by its receipt", unrelayed)
            self._catch_up(landed.block)

    def _refused(self, entry: JournalEntry, error: ContractError) -> None:
        """React to a refusal: the next poll of the chain decides, and until then the worker waits."""
        refused = refused_file(error)
        reason = refused.reason if refused else error
        if reason.name in _OVERDUE:
            self._collaborators.journal.change(entry, overdue=True)
            self.handed_in.discard(entry.stem)  # for a new receipt, or no later file would ever count
        # A mismatch is most often the relayed file, which the next state shows.
        seconds = 1.0 if reason.name == "CounterMismatch" else 3.0
        self._progress.pause(seconds, f"file {entry.counter} is not taken: {reason}", "waiting")

    def _catch_up(self, block: int) -> None:
        """Wait until the state has reached our own transaction, or it would be sent again."""
        deadline = time.monotonic() + _CATCH_UP
        while self._client.refresh().head < block and time.monotonic() < deadline and not self._stopping.is_set():
            time.sleep(0.1)
