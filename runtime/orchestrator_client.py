"""The pool's service as workers and validators use it: leases, uploads, receipts, heartbeats (docs/orchestrator.md)."""

import hashlib
from dataclasses import replace

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from protocol.accounts import LocalAccount
from protocol.api.endpoints import HEARTBEATS, LEASES, RECEIPTS, STEPS, UPLOADS
from protocol.api.work import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaseRequest,
    NoLease,
    ReceiptRequest,
    StepRequest,
    UploadExists,
    UploadRequest,
    WorkLease,
)
from protocol.encoding import keccak
from protocol.errors import IntegrityError
from protocol.http.reach import Reach
from protocol.http.signing import AuthScope
from protocol.http.transport import bounded_transport
from protocol.identity import PoolId
from protocol.receipts import UploadReceipt
from runtime.signed_client import ClientLimits, RequestSigner, SignedClient
from storage.keys import object_key
from storage.transfers import TicketRefusedError, http_client, upload

_TICKETS = 3


class OrchestratorClient:
    """One account's dealings with a pool's orchestrator at `url`. Thread-safe.

    Every call raises ServiceError (it answered no), UnreachableError (bounded tries) or IntegrityError (nonsense).
    Without `allow_private`, upload tickets have to lead to a public address, or to one that the service has; a service
    that a stranger `announced` has to be public itself.
    """

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

    def request_lease(self, counter: int, ready: int | None = None) -> WorkLease | NoLease:
        """Ask to make the file `counter`, while the weights of policy step `ready` are here."""
        answer = self._client.post(LEASES, LeaseRequest(counter=counter, ready=ready))
        if isinstance(answer, WorkLease) and answer.counter != counter:
            raise IntegrityError(f"{self.url} offers lease {answer.counter} instead of {counter}", "tell its owner")
        return answer

    def upload_rollouts(self, data: bytes) -> UploadReceipt | None:
        """Bring a rollout file into the bucket; the service's signed receipt, if it gives one."""
        body = UploadRequest(kind="rollouts", sha256=hashlib.sha256(data).hexdigest(), size=len(data))
        exists = self._upload(body, data)
        if exists is None:
            receipt = self._client.post(RECEIPTS, ReceiptRequest(sha256=body.sha256, size=body.size)).receipt
        elif exists.receipt is None:
            return None
        else:
            receipt = exists.receipt
        receipt.check(self._pool, self._node, body.sha256, body.size)
        return receipt

    def upload_verdict(self, data: bytes) -> None:
        """Publish a verdict document under its keccak256."""
        sha256, name = hashlib.sha256(data).hexdigest(), keccak(data).hex()
        self._upload(UploadRequest(kind="verdicts", sha256=sha256, size=len(data), keccak256=name), data)

    @retry(retry=retry_if_exception_type(TicketRefusedError), stop=stop_after_attempt(_TICKETS), reraise=True)
    def _upload(self, body: UploadRequest, data: bytes) -> UploadExists | None:
        """What the service says if it has the bytes already; None once they are sent."""
        key = object_key(body.kind, body.digest)
        answer = self._client.post(UPLOADS, body)
        if answer.key != key:
            raise IntegrityError(f"{self.url} answers an upload with another key than {key}", "tell its owner")
        if isinstance(answer, UploadExists):
            return answer
        upload(answer, data, self._uploads)
        return None

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        return self._client.post(HEARTBEATS, beat)

    def report_step(self, report: StepRequest) -> None:
        """The pool owner's report on the making of a policy step."""
        self._client.post(STEPS, report)

    def close(self) -> None:
        self._client.close()
        self._uploads.close()
