"""Handing finished files in, presenting their receipts, and claiming what they earn."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Self

from chain.contracts import Submitted, WorkItem
from chain.errors import ContractError, TransactionError
from chain.indexer.records import Submission
from chain.indexer.state import State
from engines.base import Engine
from protocol.api.work import HeartbeatRequest, UploadReceipt, WorkLease
from protocol.config import PoolConfig
from protocol.encoding import show_tokens
from protocol.errors import ConfigError, MusterError
from protocol.evidence.figures import arithmetic_label
from protocol.waits import WAITS
from runtime.entry import essential
from runtime.orchestrator_client import OrchestratorClient, heartbeat
from runtime.pool_client import PoolClient
from runtime.relay import serve_as_peer
from runtime.weights_ahead import WeightsAhead
from worker.config import WorkerConfig
from worker.journal import Journal, JournalEntry
from worker.produce import Producer
from worker.signer import node_account

log = logging.getLogger("muster.worker")


class WorkerProgress:
    """`lease` is the one that heartbeats keep; `step` that of the file under way, −1 before the first; `weights` the
    newest step whose weights are here, `fetching` what that took; `swaps` counts changes of weights, with the longest
    pause so far besides the engine's own reload (`swap_pause`), and that reload, in seconds."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping, self._logged = stopping, ""
        self.phase, self.step = "starting", -1
        self.lease: WorkLease | None = None
        self.made = self.submitted = 0
        self.weights = -1
        self.fetching: Mapping[str, float] = {}
        self.swaps = {"swaps": 0.0, "swap_reload": 0.0, "swap_pause": 0.0}

    def pause(self, seconds: float, reason: str, phase: str) -> None:
        """Wait, and log the reason once."""
        self.phase = phase
        if reason != self._logged:
            log.info("%s", reason)
            self._logged = reason
        with WAITS.on(reason[:200]):
            self._stopping.wait(seconds)

    def finished(self) -> None:
        """Count a file; the next wait is logged even if its reason is the same."""
        self.made += 1
        self._logged = ""

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
            phase=self.phase,
            engine=engine,
            step=self.step if self.step >= 0 else None,
            lease=self.lease.lease if self.lease else None,
            weights=self.weights,
            metrics={"made": float(self.made), "submitted": float(self.submitted), **self.fetching, **self.swaps},
        )


MakeProducer = Callable[[PoolConfig, Engine], Producer]


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
    def connect(cls, config: WorkerConfig, make_producer: MakeProducer = Producer) -> Self:
        """Connect to what a configuration names. Raises ConfigError or UnreachableError."""
        account = node_account(config)
        client = PoolClient(config, account)
        serve_as_peer(client, account)
        pool_config, ahead = client.pool_config(), WeightsAhead(client, config.poll_seconds)
        # An engine takes seconds to a minute to start: a joining worker downloads meanwhile.
        ahead.start()
        producer = make_producer(pool_config, config.engine.make())
        info, evidence = producer.engine.info, pool_config.evidence
        if evidence and (why := evidence.refuses(arithmetic_label(info.name, info.dtype, info.device))):
            raise ConfigError(why, "choose one of these as `engine`, on a machine of that kind")
        producer.prepare()
        private = config.allow_private_sources
        orchestrator = OrchestratorClient(config.orchestrator, account, client.pool_id, allow_private=private)
        return cls(str(account.address), client, orchestrator, producer, Journal(client.home / "journal"), ahead)

    def close(self) -> None:
        self.ahead.stop()
        self.orchestrator.close()
        self.pool_client.close()


_FEW = 4  # files of a lane up to which all of their receipts cost less gas than the service's one attestation of them


class ReceiptKeeper:
    """Presents receipts of files that the service left out, before they count as late; in a thread of its own, because
    making a file takes longer than a lane waits."""

    def __init__(self, collaborators: WorkerCollaborators, poll_seconds: float) -> None:
        self._collaborators, self._poll = collaborators, poll_seconds
        self._stopping = threading.Event()
        self._thread = essential("receipts", self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopping.wait(self._poll):
            try:
                self.once()
            except MusterError as error:
                log.info("no receipt is presented: %s", error)
            except Exception:
                # A bug here must not end the thread: files that the service leaves out would be late.
                log.exception("no receipt is presented")

    def once(self) -> None:
        client, journal = self._collaborators.pool_client, self._collaborators.journal
        client.refresh()
        for file in running_out(client.state, client.config.pool, self._collaborators.node):
            receipt = journal.receipt(file.sha256)
            if receipt is not None and not self._stopping.is_set():
                log.warning("the service did not attest submission %d: presenting its receipt", file.sequence)
                try:
                    client.suite.court.attest_by_receipt(file, receipt).send()
                except ContractError as error:
                    log.warning("the receipt of submission %d is not taken: %s", file.sequence, error)


def worth_presenting(state: State, pool_id: int) -> bool:
    """Whether the node's next file should be submitted with its receipt: the pool's lanes hold few files, and those of
    the open lane brought theirs, so that its committee is drawn without waiting for the service."""
    newest = list(islice(state.recent_lanes(pool_id, since=-1), 2))
    if newest and not newest[0].ended(state.head):
        if newest[0].missing or len(newest[0].sequences) >= _FEW:
            return False
        newest = newest[1:]
    return all(len(lane.sequences) <= _FEW for lane in newest[:1])


def running_out(state: State, pool_id: int, node: str) -> Iterator[Submission]:
    """Yield the node's files that the service did not attest in the first half of its time, and still can."""
    for file in state.unattested(pool_id, node):
        lane = state.lane_of(file)
        if lane.ended(state.head) and state.head >= lane.last_block + state.pools[pool_id].terms.attestBlocks // 2:
            yield file


# --- Submission


_KEPT_FILES = 64
_CATCH_UP = 30.0
# Seconds by which a service's clock may be ahead of the chain's: its receipt counts once the chain is there
_AHEAD = 15
_UNUSABLE = frozenset({"BadReceipt", "ReceiptOutOfTime"})  # refusals of a receipt that say nothing against the file
# Refusals that the receipt of an earlier upload overrides
_PROMISED = frozenset({"WrongStatus", "StepOutOfRange", "NotMember"})


class Submitter:
    """Hands finished files in, and claims vested pay every `claim_seconds`. Whatever fails is tried again."""

    def __init__(
        self,
        collaborators: WorkerCollaborators,
        progress: WorkerProgress,
        stopping: threading.Event,
        claim_seconds: float,
    ) -> None:
        self._collaborators, self._client = collaborators, collaborators.pool_client
        self._progress, self._stopping = progress, stopping
        self._claim_seconds, self._next_claim = claim_seconds, 0.0

    def submit(self, entry: JournalEntry) -> None:
        journal, progress = self._collaborators.journal, self._progress
        if not self._counts(entry.receipt):
            progress.phase = "uploading"
            receipt = self._collaborators.orchestrator.upload_rollouts(journal.data(entry))
            if not self._counts(receipt):
                self._wait_for_service(receipt)
                return
            entry = journal.change(entry, receipt=receipt)
        progress.phase = "submitting"
        try:
            landed = self._send(entry)
        except ContractError as error:
            self._refused(entry, error)
            return
        except TransactionError as error:
            unknown = f"whether file {entry.counter} was submitted is unknown"
            known = unknown if error.tx_hash else f"file {entry.counter} is not submitted yet"
            progress.pause(1.0, f"{known}: {error}", "submitting")
            return
        progress.lease = None
        progress.submitted += 1
        log.info("file %d is submission %d", entry.counter, landed.sequence)
        journal.prune(entry.counter - _KEPT_FILES)
        self._catch_up(landed.receipt.block)

    def _counts(self, receipt: UploadReceipt | None) -> bool:
        """Whether the chain would take the receipt: without one, a file that the service leaves out is late and
        fined."""
        pool, now = self._client.pool(), self._client.client.now()
        if pool is None or receipt is None or not pool.is_service(receipt.signer, now):
            return False
        return now - pool.terms.receiptWindow <= receipt.time <= now + _AHEAD

    def _wait_for_service(self, receipt: UploadReceipt | None) -> None:
        pool, signer = self._client.pool(), receipt.signer if receipt else "nobody"
        named = pool.service if pool and pool.service else "no key"
        when = f", of time {receipt.time}" if receipt else ""
        reason = f"nothing is submitted: {signer} signs the service's receipts{when}; the pool's owner named {named}"
        self._progress.pause(5.0, reason, "waiting")

    def _send(self, entry: JournalEntry) -> Submitted:
        pools, pool = self._client.suite.pools, self._client.config.pool
        item = WorkItem(entry.root, entry.sha256, entry.units, entry.rows)
        if entry.receipt and not entry.overdue and worth_presenting(self._client.state, pool):
            try:
                return pools.submit(pool, entry.step, entry.counter, item, entry.receipt).send()
            except ContractError as error:
                if error.name not in _UNUSABLE:
                    raise
                log.info("file %d is submitted without its receipt: %s", entry.counter, error)
        try:
            return pools.submit(pool, entry.step, entry.counter, item).send()
        except ContractError as error:
            if error.name not in _PROMISED or entry.receipt is None or entry.overdue:
                raise
            return pools.submit(pool, entry.step, entry.counter, item, entry.receipt).send()

    def claim_if_due(self) -> None:
        if time.monotonic() >= self._next_claim:
            self.claim()

    def claim(self) -> None:
        """Claim what has vested, for the operator. Failures are logged: the next claim covers them."""
        self._next_claim = time.monotonic() + self._claim_seconds
        client = self._client
        try:
            hint = client.state.claim_hint(client.config.pool, self._collaborators.node, client.client.now())
            if hint is not None:
                log.info("claimed %s tokens", show_tokens(client.suite.pools.claim(hint).send()))
        except MusterError as error:
            log.info("nothing claimed: %s", error)

    def _refused(self, entry: JournalEntry, error: ContractError) -> None:
        """React to a refusal: the next poll of the chain decides, and until then the worker waits."""
        if error.call == "Pools.submitWithReceipt" and error.name in {"ReceiptOutOfTime", *_PROMISED}:
            self._collaborators.journal.change(entry, overdue=True)
        if error.name == "OverLimit":
            self.claim()
        if error.name == "CounterMismatch":
            # Most often our own transaction before a kill: the next state shows it.
            self._progress.pause(1.0, f"file {entry.counter}: {error}", "submitting")
            return
        self._progress.pause(3.0, f"file {entry.counter} is not taken: {error}", "waiting")

    def _catch_up(self, block: int) -> None:
        """Wait until the state has reached our own transaction, or it would be sent again."""
        deadline = time.monotonic() + _CATCH_UP
        while self._client.refresh().head < block and time.monotonic() < deadline and not self._stopping.is_set():
            time.sleep(0.1)
