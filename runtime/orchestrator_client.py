"""The pool's service as workers and validators use it: slots, uploads, receipts, heartbeats (docs/orchestrator.md)."""

import hashlib
import logging
from dataclasses import dataclass
from typing import Any

from eth_account.signers.local import LocalAccount
from eth_utils.crypto import keccak
from pydantic import ValidationError

from protocol.errors import IntegrityError, MusterError, printable
from protocol.http.reach import Reach
from runtime.signed_client import SignedClient
from storage.keys import object_key
from storage.transfer import http_client
from storage.upload import TicketRefusedError, UploadTicket, upload

log = logging.getLogger("muster.service")
_TICKETS = 3
_MAX_RECEIPT_FIELDS = 16


@dataclass(frozen=True)
class Slot:
    """Leave to make one file: the node's `counter`-th, from policy step `step`; it lapses at `expires` (Unix seconds)
    unless heartbeats name its `id`."""

    id: str
    step: int
    counter: int
    expires: float


@dataclass(frozen=True)
class Denied:
    """No slot now: ask again after `wait` seconds."""

    wait: float
    reason: str


class OrchestratorClient:
    """One account's dealings with the orchestrator. Thread-safe.

    Every call raises ServiceError (it answered no), UnreachableError (bounded tries) or IntegrityError (nonsense).
    Without `allow_private`, upload tickets have to lead to a public address, or to one that `url` has.
    """

    def __init__(
        self,
        url: str,
        account: LocalAccount,
        chain_id: int,
        pools: str,
        *,
        patience: float = 15.0,
        allow_private: bool = False,
    ) -> None:
        self.url = url.rstrip("/")
        self._uploads = http_client(Reach(own=(self.url,), private=allow_private))
        self._client = SignedClient(url, account, chain_id, pools, patience=patience)

    @property
    def objects(self) -> str:
        """Base of `<base>/<object key>` for downloads."""
        return f"{self.url}/v1/objects"

    def slot(self, counter: int) -> Slot | Denied:
        """Ask to make the file `counter`."""
        answer = _document(self._client.post("/v1/slots", {"counter": counter}))
        try:
            if "wait" in answer:
                return Denied(min(60.0, max(0.1, float(answer["wait"]))), printable(str(answer.get("reason", "")), 200))
            slot = Slot(str(answer["slot"]), int(answer["step"]), int(answer["counter"]), float(answer["expires"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            what = f"{self.url} answers a slot request with nonsense: {repr(error)[:200]}"
            raise IntegrityError(what, "tell its owner") from None
        if slot.counter != counter:
            raise IntegrityError(f"{self.url} offers slot {slot.counter} instead of {counter}", "tell its owner")
        return slot

    def upload_rollouts(self, data: bytes) -> dict[str, Any] | None:
        """Bring a rollout file into the bucket; the service's signed receipt, if it gives one."""
        sha256 = hashlib.sha256(data).hexdigest()
        body = {"kind": "rollouts", "sha256": sha256, "size": len(data)}
        if not self._upload(body, data):
            answer = self._client.post("/v1/receipts", {"sha256": sha256, "size": len(data)})
            return _receipt(_document(answer))
        return _receipt(_document(self._client.post("/v1/uploads", body)))

    def upload_verdict(self, data: bytes) -> None:
        """Publish a verdict document under its keccak256."""
        digest = keccak(data)
        body = {"kind": "verdicts", "sha256": hashlib.sha256(data).hexdigest(), "keccak256": digest.hex()}
        self._upload(body | {"size": len(data)}, data, object_key("verdicts", digest))

    def _upload(self, body: dict[str, Any], data: bytes, key: str = "") -> bool:
        """True if the bytes were there already."""
        key = key or object_key("rollouts", bytes.fromhex(body["sha256"]))
        failure: MusterError | None = None
        for _ in range(_TICKETS):
            answer = _document(self._client.post("/v1/uploads", body))
            if answer.get("key") != key:
                raise IntegrityError(f"{self.url} answers an upload with another key than {key}", "tell its owner")
            if answer.get("exists") is True:
                return True
            try:
                upload(_ticket(answer), data, self._uploads)
                return False
            except TicketRefusedError as error:
                failure = error
        assert failure is not None
        raise failure

    def heartbeat(self, beat: dict[str, Any]) -> dict[str, Any]:
        return _document(self._client.post("/v1/heartbeats", beat))

    def report_step(self, report: dict[str, Any]) -> None:
        """The pool owner's report on the making of a policy step."""
        self._client.post("/v1/steps", report)

    def close(self) -> None:
        self._client.close()
        self._uploads.close()


def _document(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise IntegrityError("the pool's service answers something else than a JSON object", "check its URL")
    return answer


def _receipt(answer: dict[str, Any]) -> dict[str, Any] | None:
    """The receipt in an answer, if it has one; it is kept as evidence, so only its shape is looked at here."""
    receipt = answer.get("receipt")
    if receipt is None:
        return None
    if not isinstance(receipt, dict) or len(receipt) > _MAX_RECEIPT_FIELDS:
        raise IntegrityError("the pool's service gives a receipt that is none", "tell the pool's owner")
    if not all(isinstance(value, int) or (isinstance(value, str) and len(value) <= 200) for value in receipt.values()):
        raise IntegrityError("the pool's service gives a receipt with odd values", "tell the pool's owner")
    return receipt


def _ticket(answer: dict[str, Any]) -> UploadTicket:
    try:
        return UploadTicket(url=answer["url"], headers=answer["headers"], expires=answer["expires"])
    except (KeyError, ValidationError):
        raise IntegrityError(
            "the pool's service gives an upload ticket that is none", "tell the pool's owner"
        ) from None
