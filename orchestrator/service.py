"""What the orchestrator does for each request, without HTTP."""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from orchestrator import trained
from orchestrator.db import Database
from orchestrator.deciding import Ask, Told
from orchestrator.heartbeats import NewestHeartbeats
from orchestrator.http_errors import HttpError
from orchestrator.indexer import Indexer
from orchestrator.leases import Leases
from orchestrator.liveness import HEARTBEAT_SECONDS, Beat
from orchestrator.scheduler import Keep, Refuse, Wait
from orchestrator.solve_rates import SolveRates
from orchestrator.sources import AnnouncedSources
from orchestrator.supply import Rule
from orchestrator.tables import StepReportRow
from orchestrator.together import Together
from orchestrator.uploads import ObjectStore, Uploads
from orchestrator.watch import Watch
from protocol.api import work
from protocol.api.evaluation import SignedEvaluation
from protocol.api.run import PoolAccess, ReportEntry
from protocol.config import PoolConfig
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.version import VERSION
from storage.keys import parse_key

log = logging.getLogger("muster.orchestrator")
DOWNLOAD_SECONDS = 300


@dataclass(frozen=True)
class ServiceParts:
    """What a service works with, and its limits in seconds. Without `indexer` nothing is compared with the chain; with
    `batched`, a `Housekeeper` writes heartbeats and renewals, otherwise every request does. `access`: what newcomers
    are told; `allow_private_sources`: announced sources of weights may be in private networks."""

    db: Database
    watch: Watch
    store: ObjectStore
    config: PoolConfig
    uploads: Uploads
    clock: Callable[[], float] = time.time
    indexer: Indexer | None = None
    lease_seconds: float = 30.0
    lease_limit: float = 600.0
    stall_seconds: float = 60.0
    batched: bool = False
    access: PoolAccess | None = None
    allow_private_sources: bool = False
    processes: int = 1


class Service:
    """Everything behind the routes. Methods may be called from any thread, those that are awaited from the event
    loop's; `address` is a verified signer."""

    def __init__(self, parts: ServiceParts) -> None:
        self.db, self.watch, self.config, self.clock = parts.db, parts.watch, parts.config, parts.clock
        self.indexer, self.access = parts.indexer, parts.access
        self.started = self.clock()
        self._store = parts.store
        shape = parts.config.work
        rule = Rule.of(parts.config, parts.lease_seconds, parts.lease_limit, parts.stall_seconds)
        self.leases = Leases(parts.db, parts.watch, rule, shape.rows * shape.max_new_tokens, parts.clock)
        self.uploads = parts.uploads
        self.rates = SolveRates(parts.db, parts.watch, parts.config, parts.uploads.pool, parts.store.get)
        self.sources = AnnouncedSources(parts.uploads.pool, parts.allow_private_sources, self.clock, parts.processes)
        self.heartbeats = NewestHeartbeats(parts.db)
        self._batched = parts.batched
        self._slots = Together("slots", self._told)

    async def slot(self, address: str, body: work.SlotRequest) -> work.SlotResponse:
        """Leave to make a file, or when to ask again. Raises HttpError 403 for a node that may not work."""
        decision, slot = await self._slots.ask(Ask(address, body.counter, body.ready))
        if isinstance(decision, Refuse):
            raise HttpError(403, decision.reason, "see `muster node status`")
        if isinstance(decision, Wait):
            return work.NoSlot(wait=decision.seconds, reason=decision.reason)
        assert slot is not None
        place = decision.lease if isinstance(decision, Keep) else decision
        return work.WorkSlot(slot=slot, step=place.step, counter=place.counter, expires=decision.expires)

    def _told(self, asks: Sequence[Ask]) -> list[Told | Exception]:
        told = self.leases.ask_together(asks)
        self._written()
        return told

    def heartbeat(self, address: str, body: work.HeartbeatRequest) -> work.HeartbeatResponse:
        return self._beaten(address, body, self.leases.renew(address, body.slot) if body.slot else None)

    def quick_heartbeat(self, address: str, body: work.HeartbeatRequest) -> work.HeartbeatResponse | None:
        """As `heartbeat`, if it needs nothing but memory; None if it does."""
        if not self._batched:
            return None
        expires = self.leases.renew_known(address, body.slot) if body.slot else None
        if body.slot and expires is None and not self.leases.has_ended(body.slot):
            return None
        return self._beaten(address, body, expires)

    def _beaten(self, address: str, body: work.HeartbeatRequest, expires: float | None) -> work.HeartbeatResponse:
        self.heartbeats.take(address, body, self.clock())
        self._written()
        step = self.watch.usable_step(self.watch.state)
        return work.HeartbeatResponse(next=HEARTBEAT_SECONDS, step=step, slot_expires=expires, version=VERSION)

    def _written(self) -> None:
        """Make what was kept in memory last, unless a housekeeper does."""
        if not self._batched:
            self.heartbeats.write()
            self.leases.write()

    def step(self, address: str, body: work.StepRequest) -> work.StepResponse:
        """The trainer's report. Raises HttpError 403 for anybody but the owner, 400 for an evaluation that is not the
        owner's."""
        state = self.watch.state
        pool = self.watch.pool(state)
        if pool is None or pool.owner != address:
            raise HttpError(403, f"{address} is not the owner of pool {self.watch.pool_id}", "sign as the owner")
        if body.evaluation is not None:
            self._check(body.evaluation, body.step, pool.owner)
        wanted = ((sequence, state.submissions.get((pool.pool, sequence))) for sequence in body.consumed)
        known = {sequence: sub.sha256.hex() for sequence, sub in wanted if sub is not None}
        with self.db.session() as session:
            trained.store(session, body.step, body.consumed, known)
            document = canonical_json(body.model_dump()).decode()
            session.merge(StepReportRow(step=body.step, reported=self.clock(), body=document))
        self.leases.read_reports()
        log.info("step %d: reward %s", body.step, body.metrics.get("reward"))
        return work.StepResponse(step=body.step)

    def _check(self, signed: SignedEvaluation, step: int, owner: str) -> None:
        """Raise HttpError 400 unless an evaluation is the owner's word on that step of this pool."""
        try:
            signed.check(self.uploads.pool, owner)
        except IntegrityError as error:
            raise HttpError(400, error.what, error.hint) from None
        if signed.evaluation.step != step or signed.evaluation.config_hash != self.config.digest.hex():
            raise HttpError(400, "the evaluation is of another step or pool configuration", "report it with its own")

    def location(self, key: str) -> str:
        """A pre-signed URL of an object. Raises ConfigError for anything but a content address."""
        return self._store.presign_get(str(parse_key(key)), DOWNLOAD_SECONDS)

    def open_object(self, key: str, limit: int) -> bytes:
        """An object of the pool's bucket, checked against its key. Raises what the bucket raises."""
        return self._store.get(key, limit)

    def beats(self) -> dict[str, Beat]:
        """The newest heartbeat of every address."""
        if not self._batched:
            self.heartbeats.read()
        return self.heartbeats.newest()

    def reports(self) -> list[ReportEntry]:
        """The trainer's reports by step."""
        with self.db.reading() as session:
            rows = session.scalars(select(StepReportRow).order_by(StepReportRow.step))
            return [ReportEntry(**json.loads(row.body), reported=row.reported) for row in rows]

    def trained(self) -> trained.Trained:
        """What was trained on."""
        with self.db.reading() as session:
            return trained.load(session)
