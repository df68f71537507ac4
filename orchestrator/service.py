"""What the orchestrator does for each request, without HTTP."""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eth_account.signers.local import LocalAccount
from sqlalchemy import select

from orchestrator import trained
from orchestrator.bodies import HeartbeatRequest, HttpError, ReceiptRequest, SlotRequest, StepRequest, UploadRequest
from orchestrator.db import Database
from orchestrator.indexer import Indexer
from orchestrator.leases import Leases
from orchestrator.liveness import HEARTBEAT_SECONDS
from orchestrator.scheduler import Grant, Keep, Refuse
from orchestrator.supply import Rule
from orchestrator.tables import HeartbeatRow, StepReportRow
from orchestrator.uploads import Store, Uploads
from orchestrator.watch import Watch
from protocol.config import PoolConfig
from protocol.encoding import canonical_json
from protocol.http.signing import Realm
from storage.keys import parse_key

log = logging.getLogger("muster.orchestrator")
DOWNLOAD_SECONDS = 300


@dataclass(frozen=True)
class Settings:
    """Limits of one service; seconds and bytes."""

    lease_seconds: float = 30.0
    lease_limit: float = 600.0
    max_upload_bytes: int = 64 << 20
    stall_seconds: float = 60.0


class Service:
    """Everything behind the routes. Methods may be called from any thread; `address` is a verified signer."""

    def __init__(
        self,
        db: Database,
        watch: Watch,
        store: Store,
        config: PoolConfig,
        signer: LocalAccount,
        realm: Realm,
        settings: Settings | None = None,
        clock: Callable[[], float] = time.time,
        indexer: Indexer | None = None,
    ) -> None:
        self.indexer = indexer
        settings = settings or Settings()
        self.db, self.watch, self.config, self.clock = db, watch, config, clock
        self.started = clock()
        self._store = store
        train = config.train
        rule = Rule(
            train.files_per_step,
            train.async_level,
            train.steps,
            settings.lease_seconds,
            settings.lease_limit,
            stall_seconds=settings.stall_seconds,
        )
        self.leases = Leases(db, watch, rule, config.work.rows * config.work.max_new_tokens, clock)
        self.uploads = Uploads(db, watch, store, signer, realm, settings.max_upload_bytes, clock)

    def slot(self, address: str, body: SlotRequest) -> dict[str, Any]:
        decision, slot = self.leases.ask(address, body.counter)
        if isinstance(decision, Refuse):
            raise HttpError(403, decision.reason, "see `muster node status`")
        if isinstance(decision, Grant):
            return {"slot": slot, "step": decision.step, "counter": decision.counter, "expires": decision.expires}
        if isinstance(decision, Keep):
            lease = decision.lease
            return {"slot": slot, "step": lease.step, "counter": lease.counter, "expires": decision.expires}
        return {"wait": decision.seconds, "reason": decision.reason}

    def upload(self, address: str, body: UploadRequest) -> dict[str, Any]:
        return self.uploads.ticket(address, body)

    def receipt(self, address: str, body: ReceiptRequest) -> dict[str, Any]:
        return self.uploads.receipt(address, body)

    def heartbeat(self, address: str, body: HeartbeatRequest) -> dict[str, Any]:
        now = self.clock()
        with self.db.session() as session:
            row = session.get(HeartbeatRow, address)
            if row is None:
                row = HeartbeatRow(address=address, first_seen=now, beats=0)
                session.add(row)
            row.role, row.name, row.version, row.engine = body.role, body.name, body.version, body.engine
            row.phase, row.step, row.last_seen, row.beats = body.phase, body.step, now, row.beats + 1
            row.waits = canonical_json([wait.model_dump() for wait in body.waits]).decode()
            row.metrics = canonical_json(body.metrics).decode()
        with self.watch.reading() as state:
            step = self.watch.usable_step(state)
        return {
            "state": "healthy",
            "next": HEARTBEAT_SECONDS,
            "step": step,
            "slot_expires": self.leases.renew(address, body.slot) if body.slot else None,
        }

    def step(self, address: str, body: StepRequest) -> dict[str, Any]:
        """The trainer's report. Raises HttpError 403 for anybody but the owner."""
        with self.watch.reading() as state:
            pool = self.watch.pool(state)
            if pool is None or pool.owner != address:
                raise HttpError(403, f"{address} is not the owner of pool {self.watch.pool_id}", "sign as the owner")
            wanted = ((sequence, state.submissions.get((pool.pool, sequence))) for sequence in body.consumed)
            known = {sequence: sub.sha256.hex() for sequence, sub in wanted if sub is not None}
        with self.db.session() as session:
            trained.store(session, body.step, body.consumed, known)
            row = session.get(StepReportRow, body.step)
            if row is None:
                row = StepReportRow(step=body.step)
                session.add(row)
            row.reported = self.clock()
            row.body = canonical_json(body.model_dump()).decode()
        self.leases.read_reports()
        log.info("step %d: reward %s", body.step, body.metrics.get("reward"))
        return {"step": body.step}

    def location(self, key: str) -> str:
        """A pre-signed URL of an object. Raises ConfigError for anything but a content address."""
        return self._store.presign_get(str(parse_key(key)), DOWNLOAD_SECONDS)

    def beats(self) -> dict[str, HeartbeatRow]:
        """The newest heartbeat of every address."""
        with self.db.session() as session:
            return {row.address: row for row in session.scalars(select(HeartbeatRow))}

    def reports(self) -> list[dict[str, Any]]:
        """The trainer's reports by step, each with `reported` (Unix seconds)."""
        with self.db.session() as session:
            rows = session.scalars(select(StepReportRow).order_by(StepReportRow.step))
            return [{**json.loads(row.body), "reported": row.reported} for row in rows]

    def trained(self) -> trained.Trained:
        """What was trained on."""
        with self.db.session() as session:
            return trained.load(session)
