"""An exchange through a swarm's gate, for members who hold no key of its bucket. Nothing that a gate says is believed:
it can withhold envelopes, and do nothing else."""

import hashlib
import re
from collections.abc import Iterator

from protocol.accounts import LocalAccount
from protocol.api.endpoints import OBJECTS, Get
from protocol.api.swarm import ENVELOPES, PLACE, SHARE, EnvelopeUpload
from protocol.api.work import UploadExists
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.http.reach import Reach
from protocol.http.signing import AuthScope
from protocol.swarm.envelope import DOMAIN
from runtime.signed_client import ClientLimits, RequestSigner, ServiceError, SignedClient
from storage.keys import MissingObjectError, parse_key
from storage.transfers import TicketRefusedError, download, http_client, upload
from swarm.config import GateAccess
from swarm.exchange import RefusedForGood, envelope_key
from swarm.listing import PREFIX, ListingEntry

_LIMITS = ClientLimits(timeout=5.0, attempts=3, patience=8.0, exchange=20.0)
_TRANSFER_SECONDS = 30.0
_FINAL = (409, 413)


class GateExchange:
    """Reads as anybody may; publishes after `sign_as`. Raises ConfigError for a URL that is none."""

    def __init__(self, access: GateAccess) -> None:
        self._client = SignedClient(access.url, limits=_LIMITS)
        self._objects = http_client(Reach((access.url,), access.allow_private_sources))

    def sign_as(self, account: LocalAccount) -> None:
        """Share as this member."""
        auth_scope = AuthScope.of(self._client.base_url, DOMAIN.chain_id, DOMAIN.contract)
        unsigned = self._client
        self._client = SignedClient(unsigned.base_url, RequestSigner(account, auth_scope), _LIMITS)
        unsigned.close()

    def publish(self, data: bytes) -> str:
        """As `Exchange.publish`: asks, uploads, and asks again, so that the gate looks at it and lists it."""
        asked = EnvelopeUpload(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
        try:
            answer = self._client.post(SHARE, asked)
            if not isinstance(answer, UploadExists):
                upload(answer, data, self._objects, _TRANSFER_SECONDS)
                answer = self._client.post(SHARE, asked)
        except ServiceError as error:
            if error.status in _FINAL:
                raise RefusedForGood(f"the gate refuses it: {error.detail}") from None
            raise
        except (TicketRefusedError, IntegrityError) as error:
            raise UnreachableError(f"the gate's ticket is of no use: {error.what}", "tell its owner") from None
        if not isinstance(answer, UploadExists):
            raise UnreachableError("the gate does not see what was uploaded", "tell its owner")
        return envelope_key(data)

    def listed(self) -> Iterator[ListingEntry]:
        """Of everybody the newest, then the second newest, and so on, as far as the gate lists them."""
        last, after = (0, ""), ""
        while True:
            page = self._client.get(Get(ENVELOPES.path + after, ENVELOPES.answer, ENVELOPES.limit))
            yield from (ListingEntry(f"{PREFIX}{one.sha256}.json", one.member.lower()) for one in page.envelopes)
            if page.next is None:
                return
            found = re.fullmatch(PLACE, page.next)
            place = (int(found[1]), found[2]) if found and page.envelopes else last
            if place <= last:
                raise UnreachableError(f"{self._client.base_url} lists without an end", "tell its owner")
            last, after = place, f"?after={page.next}"

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        """As `Exchange.get`."""
        key = entry.key
        url = f"{self._client.base_url}{OBJECTS}/{parse_key(key)}"
        try:
            return download(url, key, limit, self._objects, _TRANSFER_SECONDS)
        except (UnreachableError, IntegrityError, MissingObjectError):
            raise
        except MusterError as error:
            raise IntegrityError(f"{key} cannot be read through the gate: {error.what}", "tell its owner") from None
