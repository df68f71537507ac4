"""The orchestrator as workers, validators and trainers use it: leases, uploads, receipts, heartbeats."""

import hashlib
import logging
import random
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Literal

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from chain.suite import Suite
from protocol import VERSION, behind
from protocol.accounts import LocalAccount
from protocol.api import work
from protocol.api.endpoints import HEARTBEATS, JOINS, LEASES, LEAVES, STEPS, SUBMIT, UPLOADS
from protocol.encoding import keccak
from protocol.errors import IntegrityError, MusterError, printable
from protocol.http.reach import Reach
from protocol.http.signing import AuthScope
from protocol.http.transport import bounded_transport
from protocol.identity import PoolId
from protocol.waits import WAITS
from runtime.entry import essential
from runtime.signed_client import ClientLimits, RequestSigner, SignedClient
from storage.keys import object_key
from storage.transfers import TicketRefusedError, http_client, upload

log = logging.getLogger("muster.service")
RETRY_SECONDS = 10.0  # longest pause after a heartbeat that failed
LEAST_SECONDS = 1.0  # the shortest pause between heartbeats that a service may ask for
_TICKETS = 3
_JOIN_SECONDS = 3600
_INSTANCE = secrets.token_hex(8)  # of this process


class OrchestratorClient:
    """A client of a pool's orchestrator at `url`, for one account. Thread-safe. Calls raise ServiceError (an error was
    answered), UnreachableError (no answer after several tries) or IntegrityError (an invalid one). Without
    `allow_private`, upload tickets have to lead to a public address or to the service's own; a service that a stranger
    `announced` has to be public itself."""

    def __init__(
        self,
        url: str,
        account: LocalAccount,
        pool: PoolId,
        *,
        patience: float = 15.0,
        allow_private: bool = False,
        announced: bool = False,
        client: SignedClient | None = None,
    ) -> None:
        auth_scope = AuthScope.of(url, pool.chain_id, pool.pools)
        self.url = auth_scope.audience
        self._node, self._pool = str(account.address), pool
        outside = Reach(private=allow_private)
        self._uploads = http_client(outside if announced else replace(outside, own=(self.url,)))
        limits, transport = ClientLimits(patience=patience), bounded_transport(outside) if announced else None
        self._client = client or SignedClient(self.url, RequestSigner(account, auth_scope), limits, transport)

    def request_lease(self, counter: int, ready: int | None = None) -> work.WorkLease | work.NoLease:
        """Ask for a lease of file `counter`; `ready` is the newest policy step whose weights are here."""
        answer = self._client.post(LEASES, work.LeaseRequest(counter=counter, ready=ready, version=VERSION))
        if isinstance(answer, work.WorkLease) and answer.counter != counter:
            raise IntegrityError(f"{self.url} offers lease {answer.counter} instead of {counter}", "tell its owner")
        return answer

    def upload_rollouts(self, data: bytes) -> None:
        """Upload a rollout file, unless it is there."""
        self._upload(work.UploadRequest(kind="rollouts", sha256=hashlib.sha256(data).hexdigest(), size=len(data)), data)

    def hand_in(self, file: work.SubmissionRequest) -> work.SubmissionResponse:
        """Give the service a signed submission of a file that is uploaded; return what became of it, with the service's
        receipt."""
        answer = self._client.post(SUBMIT, file)
        answer.receipt.check(self._pool, self._node, file.sha256, file.size)
        return answer

    def join(self, wish: work.JoinRequest) -> work.MembershipResponse:
        """Ask the service to let this node join."""
        return self._client.post(JOINS, wish)

    def leave(self, wish: work.LeaveRequest) -> work.MembershipResponse:
        """Ask the service to let this node leave."""
        return self._client.post(LEAVES, wish)

    def upload_verdict(self, data: bytes) -> None:
        """Upload a verdict document under its keccak256."""
        sha256, name = hashlib.sha256(data).hexdigest(), keccak(data).hex()
        self._upload(work.UploadRequest(kind="verdicts", sha256=sha256, size=len(data), keccak256=name), data)

    @retry(retry=retry_if_exception_type(TicketRefusedError), stop=stop_after_attempt(_TICKETS), reraise=True)
    def _upload(self, body: work.UploadRequest, data: bytes) -> None:
        key = object_key(body.kind, body.digest)
        answer = self._client.post(UPLOADS, body)
        if answer.key != key:
            raise IntegrityError(f"{self.url} answers an upload with another key than {key}", "tell its owner")
        if isinstance(answer, work.UploadNeeded):
            upload(answer, data, self._uploads)

    def heartbeat(self, beat: work.HeartbeatRequest) -> work.HeartbeatResponse:
        return self._client.post(HEARTBEATS, beat)

    def report_step(self, report: work.StepRequest) -> None:
        """Send the pool owner's report on one training step."""
        self._client.post(STEPS, report)

    def close(self) -> None:
        self._client.close()
        self._uploads.close()


def join_request(suite: Suite, node: LocalAccount, operator: str, sponsor: str, pool: int) -> work.JoinRequest:
    """Sign, as the node, that `sponsor` (a service's key) lends its stake, registers it under `operator` and lets it
    join a pool, within an hour."""
    expiry = suite.client.now() + _JOIN_SECONDS
    sponsorship = suite.stakes.sign_consent(node, operator, expiry, sponsor)
    join = suite.pools.sign_join(node, pool, expiry)
    signatures = {"sponsorship": "0x" + sponsorship.hex(), "join": "0x" + join.hex()}
    return work.JoinRequest(operator=operator, expiry=expiry, **signatures)


def leave_request(suite: Suite, node: LocalAccount, pool: int) -> work.LeaveRequest:
    """Sign, as the node, that it leaves a pool, within an hour."""
    expiry = suite.client.now() + _JOIN_SECONDS
    return work.LeaveRequest(expiry=expiry, leave="0x" + suite.pools.sign_leave(node, pool, expiry).hex())


def heartbeat(
    role: Literal["worker", "validator", "trainer"],
    name: str,
    *,
    phase: str,
    engine: str = "",
    step: int | None = None,
    leases: Collection[str] = (),
    weights: int = -1,
    metrics: Mapping[str, float],
) -> work.HeartbeatRequest:
    """Return a heartbeat that says what this process waits for, its texts cut to the interface's limits. `weights`: the
    newest policy step whose weights are here, −1 if none are."""
    waits = [
        work.WaitLine(what=printable(wait["what"], 199), since=wait["since"])
        for wait in WAITS.report()[: work.MAX_WAITS]
    ]
    return work.HeartbeatRequest(
        role=role,
        name=name,
        version=VERSION,
        instance=_INSTANCE,
        engine=printable(engine, 63),
        phase=printable(phase, 63),
        step=step,
        leases=list(leases)[: work.MOST_LEASES],
        weights=weights if weights >= 0 else None,
        waits=waits,
        metrics=dict(metrics),
    )


class Heartbeats:
    """A thread that sends heartbeats: one at once, then whenever the service asks, but at least every `seconds`; pauses
    are up to a tenth shorter, at random, to spread processes out. The thread outlives every failure."""

    def __init__(self, service: OrchestratorClient, beat: Callable[[], work.HeartbeatRequest], seconds: float) -> None:
        self._service, self._beat, self._seconds = service, beat, seconds
        self._stop = threading.Event()
        self._thread = essential("heartbeats", self._run)
        self._failing, self._behind = False, ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            pause = self._seconds
            try:
                answer = self._service.heartbeat(self._beat())
                pause = min(pause, max(LEAST_SECONDS, answer.next))
            except MusterError as error:
                if not self._failing:
                    log.info("heartbeats are not accepted: %s", error)
                self._failing = True
                pause = min(pause, RETRY_SECONDS)
            except Exception:  # a node without heartbeats loses its leases: no fault of ours may end them
                log.exception("a heartbeat failed")
                pause = min(pause, RETRY_SECONDS)
            else:
                if self._failing:
                    log.info("heartbeats are accepted again")
                self._failing = False
                self._compare(answer.notice or behind(printable(answer.version, 40)))
            pause *= random.uniform(0.9, 1.0)

    def _compare(self, warning: str) -> None:
        if warning and warning != self._behind:
            log.warning("%s", warning)
        self._behind = warning
