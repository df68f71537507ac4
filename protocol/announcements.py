"""Announcements: a relay's or peer's signed word that it serves a pool's weights at a URL for a while.

They are hints from strangers. Whoever follows one treats what it finds there as hostile; the signature says whom to
leave out when it is.
"""

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Address, RequestBody, ResponseBody, Rows, Signature, StepNumber
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.http.signing import service_url
from protocol.identity import PoolId

DOMAIN = "muster-announcements"
STRUCT = "Announcement(uint256 pool,string url,uint256 until)"
MAX_SECONDS = 3600
"""How far ahead an announcement may reach."""
SKEW_SECONDS = 60
MAX_LISTED = 256


class Announcement(RequestBody):
    """`address` serves the pool's weights at `<url>/v1/objects/<key>` until `until` (Unix seconds); `signature` is its
    EIP-712 signature of STRUCT. `step`, which nobody signs, is the newest policy step that it holds."""

    MAX_BYTES: ClassVar[int] = 4096

    address: Address
    url: Annotated[str, Field(max_length=200, pattern=r"^https?://[!-~]+$")]
    until: int = Field(ge=0, lt=1 << 40)
    signature: Signature
    step: StepNumber | None = None

    @field_validator("url")
    @classmethod
    def _plain(cls, value: str) -> str:
        try:
            spelt = service_url(value)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if spelt != value:
            raise ValueError(f"must be spelt {spelt}")
        return value

    def check(self, pool: PoolId, now: float) -> None:
        """Raise IntegrityError unless `address` signed this for that pool, and it holds at `now` (Unix seconds)."""
        if not now < self.until <= now + MAX_SECONDS + SKEW_SECONDS:
            what = f"the announcement of {self.url} ends at {self.until}, and it is {int(now)}"
            raise IntegrityError(what, f"announce for at most {MAX_SECONDS} s, and set the clock (NTP)")
        try:
            signer = signing.recover(announcement_digest(pool, self.url, self.until), bytes.fromhex(self.signature[2:]))
        except (ValueError, MusterError) as error:
            raise IntegrityError(f"the announcement's signature: {error}", "sign it anew") from None
        if signer != self.address:
            raise IntegrityError(f"the announcement of {self.url} is not signed by {self.address}", "sign it anew")


class AnnouncementTaken(ResponseBody):
    """It is listed; announce again within `next` seconds."""

    next: float = Field(ge=1, le=MAX_SECONDS)


class SourceList(ResponseBody):
    """Who announced to serve the pool's weights."""

    sources: Annotated[Rows[Announcement], Field(max_length=MAX_LISTED)]


def announcement_digest(pool: PoolId, url: str, until: int) -> bytes:
    """Return the 32 bytes that an announcement's signature covers."""
    return signing.digest(pool.domain(DOMAIN), STRUCT, pool.pool, url, until)


def announce(account: LocalAccount, pool: PoolId, url: str, until: int, step: int | None = None) -> Announcement:
    """Sign one; `url` in the spelling of `service_url`."""
    signature = signing.sign(account, announcement_digest(pool, url, until))
    return Announcement(address=account.address, url=url, until=until, signature="0x" + signature.hex(), step=step)
