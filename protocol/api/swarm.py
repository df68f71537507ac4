"""The API of a swarm's gate: permission to upload an envelope to the swarm's bucket, and the public listing."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from protocol.api.base import Address, Hex64, RequestBody, ResponseBody, Rows, Size
from protocol.api.endpoints import Get, Post
from protocol.api.work import UploadResponse

MOST_LISTED = 500
CURSOR = r"([1-9][0-9]{0,3})-(0x[0-9a-f]{40})"
"""A position in a listing: how many newer envelopes the member has, plus one, and its address."""
Round = Annotated[int, Field(ge=0, lt=1 << 32)]


class EnvelopeUpload(RequestBody):
    """A member's request to upload its own envelope. It asks again after the upload, so that the gate lists it."""

    sha256: Hex64
    size: Size


class ListedEnvelope(ResponseBody):
    """An envelope of a member's round that the gate has checked."""

    member: Address
    round: Round
    sha256: Hex64
    size: Size


class EnvelopeListing(ResponseBody):
    """The newest envelope of every member, then the second newest, and so on, each by member. `next`: the next page."""

    envelopes: Annotated[Rows[ListedEnvelope], Field(max_length=MOST_LISTED)]
    next: str | None = Field(None, pattern=f"^{CURSOR}$")


ENVELOPES: Get[EnvelopeListing] = Get("/v1/envelopes", TypeAdapter(EnvelopeListing), limit=1 << 20)
"""`?after=` the `next` of the page before."""
SHARE: Post[EnvelopeUpload, UploadResponse] = Post("/v1/envelopes", EnvelopeUpload, TypeAdapter(UploadResponse))
