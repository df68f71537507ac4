"""What the orchestrator does for each request, without HTTP."""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from orchestrator.auth import HttpError
from orchestrator.background import BackgroundTask
from orchestrator.chain import ChainWatcher, PoolView
from orchestrator.dashboard.solve_rates import SolveRates
from orchestrator.db import Database, StepReportRow
from orchestrator.heartbeats import Heartbeat, HeartbeatStore
from orchestrator.scheduling.aggregates import ConsumedFiles, load_consumed, store_consumed
from orchestrator.scheduling.leases import Leases
from orchestrator.scheduling.scheduler import Keep, Refuse, Rule, Wait
from orchestrator.sources import AnnouncedSources
from orchestrator.uploads import ObjectStore, Uploads
from protocol import VERSION
from protocol.api import work
from protocol.api.run import PoolAccess, ReportEntry
from protocol.api.work import SignedEvaluation
from protocol.config import PoolConfig
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from storage.keys import parse_key

log = logging.getLogger("muster.orchestrator")
DOWNLOAD_SECONDS = 300


@dataclass
class Service:
    """Everything behind the routes. Thread-safe; `address` is a verified signer.

    Limits are in seconds. Without `chain_watcher` nothing is compared with the chain. `access`: what newcomers are
    told; `allow_private_sources`: announced sources of weights may be in private networks; `workers`: processes that
    share the port; `tasks`: the threads of this replica.
    """

    db: Database
    view: PoolView
    store: ObjectStore
    config: PoolConfig
    uploads: Uploads
    clock: Callable[[], float] = time.time
    chain_watcher: ChainWatcher | None = None
    heartbeat_seconds: float = work.HEARTBEAT_SECONDS
    lease_seconds: float = 3 * work.HEARTBEAT_SECONDS
    lease_limit: float = 600.0
    stall_seconds: float = 60.0
    access: PoolAccess | None = None
    allow_private_sources: bool = False
    workers: int = 1
    tasks: Sequence[BackgroundTask] = ()

    def __post_init__(self) -> None:
        self.started = self.clock()
        shape, pool = self.config.work, self.uploads.pool
        rule = Rule.of(self.config, self.lease_seconds, self.lease_limit, self.stall_seconds)
        self.leases = Leases(self.db, self.view, rule, shape.rows * shape.max_new_tokens, self.clock)
        self.rates = SolveRates(self.db, self.view, self.config, pool, self.store.get)
        self.sources = AnnouncedSources(pool, self.allow_private_sources, self.clock, self.workers)
        self._heartbeats = HeartbeatStore(self.db, self.heartbeat_seconds)

    def request_lease(self, address: str, body: work.LeaseRequest) -> work.LeaseResponse:
        """Grant a lease, or say when to ask again. Raises HttpError 403 for a node that may not work."""
        decision, lease_id = self.leases.request(address, body.counter, body.ready)
        if isinstance(decision, Refuse):
            raise HttpError(403, decision.reason, "see `muster node status`")
        if isinstance(decision, Wait):
            return work.NoLease(wait=decision.seconds, reason=decision.reason)
        assert lease_id is not None
        held = decision.lease if isinstance(decision, Keep) else decision
        return work.WorkLease(lease=lease_id, step=held.step, counter=held.counter, expires=decision.expires)

    def heartbeat(self, address: str, body: work.HeartbeatRequest) -> work.HeartbeatResponse:
        self._heartbeats.store(address, body, self.clock())
        expires = self.leases.renew(address, body.lease) if body.lease else None
        step = self.view.usable_step(self.view.state)
        return work.HeartbeatResponse(next=self.heartbeat_seconds, step=step, lease_expires=expires, version=VERSION)

    def report_step(self, address: str, body: work.StepRequest) -> work.StepResponse:
        """Store the trainer's report. Raises HttpError 403 for anybody but the owner, 400 for an evaluation that is not
        the owner's."""
        state = self.view.state
        pool = self.view.pool(state)
        if pool is None or pool.owner != address:
            raise HttpError(403, f"{address} is not the owner of pool {self.view.pool_id}", "sign as the owner")
        if body.evaluation is not None:
            self._check(body.evaluation, body.step, pool.owner)
        submissions = ((sequence, state.submissions.get((pool.pool, sequence))) for sequence in body.consumed)
        known = {sequence: sub.sha256.hex() for sequence, sub in submissions if sub is not None}
        with self.db.session() as session:
            store_consumed(session, body.step, body.consumed, known)
            document = canonical_json(body.model_dump()).decode()
            session.merge(StepReportRow(step=body.step, reported=self.clock(), body=document))
        log.info("step %d: reward %s", body.step, body.metrics.get("reward"))
        return work.StepResponse(step=body.step)

    def _check(self, signed: SignedEvaluation, step: int, owner: str) -> None:
        """Raise HttpError 400 unless the owner signed this evaluation of that step of this pool."""
        try:
            signed.check(self.uploads.pool, owner)
        except IntegrityError as error:
            raise HttpError(400, error.what, error.hint) from None
        if signed.evaluation.step != step or signed.evaluation.config_hash != self.config.digest.hex():
            raise HttpError(400, "the evaluation is of another step or pool configuration", "report it with its own")

    def location(self, key: str) -> str:
        """Return a pre-signed URL of an object. Raises ConfigError for anything but a content address."""
        return self.store.presign_get(str(parse_key(key)), DOWNLOAD_SECONDS)

    def open_object(self, key: str, limit: int) -> bytes:
        """Return an object of the pool's bucket, checked against its key. Raises what the bucket raises."""
        return self.store.get(key, limit)

    def heartbeats(self) -> dict[str, Heartbeat]:
        """Return the newest heartbeat of every address."""
        return self._heartbeats.newest()

    def reports(self) -> list[ReportEntry]:
        """Return the trainer's reports by step."""
        with self.db.reading() as session:
            rows = session.scalars(select(StepReportRow).order_by(StepReportRow.step))
            return [ReportEntry(**json.loads(row.body), reported=row.reported) for row in rows]

    def consumed(self) -> ConsumedFiles:
        """Return which files were trained on."""
        with self.db.reading() as session:
            return load_consumed(session)

    def problems(self) -> list[str]:
        """Return what is wrong with this replica: chain, attestations, background tasks."""
        found = [task.problem for task in self.tasks if task.problem]
        if self.view.error and not any(problem.endswith(self.view.error) for problem in found):
            found.insert(0, self.view.error)
        return found
