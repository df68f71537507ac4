"""A swarm's gate: leave to put an envelope into the swarm's bucket, and which envelopes lie there."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from protocol.api.base import Address, Hex64, RequestBody, ResponseBody, Rows, Size
from protocol.api.endpoints import Get, Post
from protocol.api.work import UploadResponse

MOST_LISTED = 500
PLACE = r"([1-9][0-9]{0,3})-(0x[0-9a-f]{40})"
"""In a listing: after the so manieth newest of that member."""
Round = Annotated[int, Field(ge=0, lt=1 << 32)]


class EnvelopeUpload(RequestBody):
    """A member asks to upload an envelope of its own, and again once it is there, so that it is listed."""

    sha256: Hex64
    size: Size


class ListedEnvelope(ResponseBody):
    """An envelope that the gate has seen: what `member` signed of its round `round`."""

    member: Address
    round: Round
    sha256: Hex64
    size: Size


class EnvelopeListing(ResponseBody):
    """The newest of every member, then the second newest, and so on; within these by member. `next`: what to ask for
    after these, None at the end."""

    envelopes: Annotated[Rows[ListedEnvelope], Field(max_length=MOST_LISTED)]
    next: str | None = Field(None, pattern=f"^{PLACE}$")


ENVELOPES: Get[EnvelopeListing] = Get("/v1/envelopes", TypeAdapter(EnvelopeListing), limit=1 << 20)
"""`?after=` the `next` of the page before."""
SHARE: Post[EnvelopeUpload, UploadResponse] = Post("/v1/envelopes", EnvelopeUpload, TypeAdapter(UploadResponse))
