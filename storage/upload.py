"""Upload one object with a ticket (a pre-signed URL bound to size, SHA-256 and to not overwriting)."""

import base64
import hashlib
import time

import httpx

from protocol.api.work import UploadTicket
from protocol.errors import IntegrityError, MusterError
from storage.transfer import Again, check_url, host, tries

_ASK_AGAIN = "ask for a new upload ticket"


class TicketRefusedError(MusterError):
    """The server refuses this ticket for good (expired, or for other bytes): ask for a new one."""


def upload(ticket: UploadTicket, data: bytes, client: httpx.Client, timeout: float = 300.0) -> bool:
    """PUT `data`. True if stored now, False if the very same key was stored before (by us, before a crash).

    The ticket is checked against `data` first, so that a service cannot lend a ticket for something else. Raises
    IntegrityError, TicketRefusedError, or UnreachableError after bounded tries.
    """
    check_ticket(ticket, data)
    deadline = time.monotonic() + timeout

    def attempt() -> bool:
        answer = client.put(ticket.url, content=data, headers=ticket.headers)
        if answer.status_code == 412:
            return False
        if answer.status_code in (200, 201, 204):
            return True
        reason = f"status {answer.status_code} {answer.text[:200]}"
        if answer.status_code in (408, 409, 425, 429) or answer.status_code >= 500:
            raise Again(reason)
        if ticket.expires < time.time():
            raise TicketRefusedError(f"the upload ticket for {host(ticket.url)} has expired", _ASK_AGAIN)
        raise TicketRefusedError(f"{host(ticket.url)} refuses the upload: {reason}", _ASK_AGAIN)

    return tries("upload", ticket.url, attempt, deadline)


def check_ticket(ticket: UploadTicket, data: bytes) -> None:
    """Raise IntegrityError unless the ticket's headers name exactly these bytes."""
    check_headers(ticket, len(data), hashlib.sha256(data).digest())


def check_headers(ticket: UploadTicket, size: int, sha256: bytes) -> None:
    """Raise IntegrityError unless the ticket is for `size` bytes of that hash, and asks for nothing else."""
    check_url(ticket.url)
    headers = {name.lower(): value for name, value in ticket.headers.items()}
    checksum = base64.b64encode(sha256).decode()
    if headers.get("content-length") != str(size) or headers.get("x-amz-checksum-sha256") != checksum:
        raise IntegrityError("the upload ticket is for another file", _ASK_AGAIN)
    if set(headers) - {"content-length", "content-type", "if-none-match", "x-amz-checksum-sha256"}:
        raise IntegrityError("the upload ticket asks for headers it should not need", _ASK_AGAIN)
