"""What the orchestrator does for each request, without HTTP."""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import select

from orchestrator.auth import HttpError
from orchestrator.background import BackgroundTask
from orchestrator.chain import ChainWatcher, PoolView
from orchestrator.dashboard.evidence import Evidence
from orchestrator.db import Database, StepReportRow
from orchestrator.heartbeats import KEY_SHARED, HeartbeatStore
from orchestrator.relay import Relay
from orchestrator.scheduling.aggregates import ConsumedFiles, load_consumed, store_consumed
from orchestrator.scheduling.leases import Leases
from orchestrator.scheduling.scheduler import Refuse, Rule, Wait
from orchestrator.sources import AnnouncedSources
from orchestrator.sponsor import Sponsor
from orchestrator.uploads import ObjectStore, Uploads
from protocol import VERSION
from protocol.api import endpoints, work
from protocol.api.base import parse_response
from protocol.api.releases import Releases
from protocol.api.run import PoolAccess, ReportEntry
from protocol.config import PoolConfig
from protocol.encoding import canonical_json
from protocol.errors import MusterError
from protocol.files import read_bounded

log = logging.getLogger("muster.orchestrator")
_UPGRADE_SECONDS, _RELEASES_BYTES = 60.0, 64 << 10


@dataclass
class Service:
    """Everything behind the routes. Thread-safe; `address` is a verified signer, limits are in seconds. `access`: what
    newcomers are told; `workers`: processes that share the port; `tasks`: the threads of this replica;
    `releases_file`: where `muster upgrade --accept` wrote which versions the pool accepts."""

    db: Database
    view: PoolView
    store: ObjectStore
    config: PoolConfig
    uploads: Uploads
    relay: Relay
    sponsor: Sponsor
    clock: Callable[[], float] = time.time
    chain_watcher: ChainWatcher | None = None
    heartbeat_seconds: float = work.HEARTBEAT_SECONDS
    lease_seconds: float = 0.0
    access: PoolAccess | None = None
    allow_private_sources: bool = False
    workers: int = 1
    tasks: Sequence[BackgroundTask] = ()
    releases_file: Path | None = None

    def __post_init__(self) -> None:
        self.started = self.clock()
        # The releases file as it was last read, the last valid one, and what is wrong with it.
        self._releases: tuple[bytes, Releases | None, str] = b"", None, ""
        shape = self.config.work
        self.evidence = Evidence(self.uploads.pool, shape, self.store.get)
        rule = Rule.of(self.config, self.lease_seconds or 3 * self.heartbeat_seconds)
        self.leases = Leases(self.db, self.view, rule, shape.units, self.relay.handed_in, self.clock)
        self.sources = AnnouncedSources(self.uploads.pool, self.allow_private_sources, self.clock, self.workers)
        self.heartbeats = HeartbeatStore(self.db, self.heartbeat_seconds)

    def request_lease(self, address: str, body: work.LeaseRequest) -> work.LeaseResponse:
        """Grant a lease, or say when to ask again. Raises HttpError 403 for a node that may not work."""
        releases = self.releases()
        if releases and body.version and (why := releases.refusal(body.version, self._step() or 0)):
            return work.NoLease(wait=_UPGRADE_SECONDS, reason=why)
        decision = self.leases.request(address, body.counter, body.ready)
        if isinstance(decision, Refuse):
            raise HttpError(403, decision.reason, "see `muster node status`")
        if isinstance(decision, Wait):
            return work.NoLease(wait=decision.seconds, reason=decision.reason)
        lease, longest = decision.lease, decision.lease.limit - decision.lease.granted
        work_of_lease = {"step": lease.step, "counter": lease.counter}
        return work.WorkLease(lease=lease.id, expires=lease.expires, longest=longest, **work_of_lease)

    def heartbeat(self, address: str, body: work.HeartbeatRequest) -> work.HeartbeatResponse:
        now = self.clock()
        shared = self.heartbeats.store(address, body, now).is_shared(now)
        expires = self.leases.renew(address, body.leases) if body.leases else None
        step, releases = self._step(), self.releases()
        notice = releases.notice(body.version, step or 0) if releases and body.version else ""
        notice = KEY_SHARED if shared else notice
        return work.HeartbeatResponse(
            next=self.heartbeat_seconds, step=step, lease_expires=expires, version=VERSION, notice=notice
        )

    def _step(self) -> int | None:
        return self.view.usable_step(self.view.state)

    def releases(self) -> Releases | None:
        """Return which versions the pool accepts, by the last valid file that is still there; None if its owner has
        signed nothing about it."""
        seen, valid, problem = self._releases
        pool = self.view.pool(self.view.state)
        if self.releases_file is None or pool is None:
            return valid
        try:
            data = read_bounded(self.releases_file, _RELEASES_BYTES, "releases ")
        except MusterError as error:
            is_missing = isinstance(error.__context__, FileNotFoundError)
            self._releases = (b"", None, "") if is_missing else (b"", valid, error.what)
            return self._releases[1]
        if data != seen:
            try:
                releases = parse_response(endpoints.RELEASES.answer, data, str(self.releases_file))
                releases.check(self.uploads.pool, pool.owner)
                valid, problem = releases, ""
            except MusterError as error:
                problem = error.what
            self._releases = data, valid, problem
        return valid

    def report_step(self, address: str, body: work.StepRequest) -> work.StepResponse:
        """Store the trainer's report. Raises HttpError 403 unless it is the owner's, 400 if its evaluation is not."""
        state = self.view.state
        pool = self.view.pool(state)
        if pool is None or pool.owner != address:
            raise HttpError(403, f"{address} is not the owner of pool {self.view.pool_id}", "sign as the owner")
        if (signed := body.evaluation) is not None:
            signed.check(self.uploads.pool, pool.owner)
            if (signed.evaluation.step, signed.evaluation.config_hash) != (body.step, self.config.digest.hex()):
                what = "the evaluation is for another step or pool configuration"
                raise HttpError(400, what, "report it with its own")
        submissions = ((sequence, state.submissions.get((pool.pool, sequence))) for sequence in body.consumed)
        known = {sequence: sub.sha256.hex() for sequence, sub in submissions if sub is not None}
        with self.db.session() as session:
            store_consumed(session, body.step, body.consumed, known)
            document = canonical_json(body.model_dump()).decode()
            session.merge(StepReportRow(step=body.step, reported=self.clock(), body=document))
        log.info("step %d: reward %s", body.step, body.metrics.get("reward"))
        return work.StepResponse(step=body.step)

    def reports(self) -> list[ReportEntry]:
        """Return the trainer's reports by step, without those of a version with other fields."""
        reports = list[ReportEntry]()
        with self.db.reading() as session:
            for row in session.scalars(select(StepReportRow).order_by(StepReportRow.step)):
                try:
                    reports.append(ReportEntry(**json.loads(row.body), reported=row.reported))
                except ValidationError:
                    log.debug("the report of step %d is of another version of muster", row.step)
        return reports

    def consumed(self) -> ConsumedFiles:
        """Return which files were trained on."""
        with self.db.reading() as session:
            return load_consumed(session)

    def problems(self) -> list[str]:
        """Return what is wrong with this replica: chain, background tasks."""
        problems = [task.problem for task in self.tasks if task.problem]
        if self.view.error and not any(problem.endswith(self.view.error) for problem in problems):
            problems.insert(0, self.view.error)
        self.releases()
        return [*problems, *filter(None, [self._releases[2]])]
