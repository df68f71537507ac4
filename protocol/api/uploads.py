"""Uploads: leave to put one object into the pool's bucket, and the receipt for a rollout file that arrived."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from protocol.api.base import Hex64, RequestBody, ResponseBody, Size, at_most
from protocol.receipts import UploadReceipt

Key = Annotated[str, Field(max_length=100)]


class UploadRequest(RequestBody):
    """Ask to upload an object. A rollout file is named by its SHA-256, a verdict by its keccak256."""

    kind: Literal["rollouts", "verdicts"]
    sha256: Hex64
    size: Size
    keccak256: Hex64 | None = None

    @model_validator(mode="after")
    def _named(self) -> "UploadRequest":
        if self.kind == "verdicts" and self.keccak256 is None:
            raise ValueError("a verdict's name is its keccak256: send the field `keccak256`")
        return self

    @property
    def digest(self) -> bytes:
        """The 32 bytes that name the object."""
        named = self.keccak256 if self.kind == "verdicts" and self.keccak256 else self.sha256
        return bytes.fromhex(named)


class UploadTicket(ResponseBody):
    """Leave to PUT one object: the URL and the headers that must be sent exactly. `expires` in Unix seconds."""

    url: str = Field(max_length=8192)
    headers: Annotated[dict[str, str], at_most(16)]
    expires: int


class UploadNeeded(UploadTicket):
    """Send the object `key` with this ticket."""

    key: Key
    exists: Literal[False] = False
    method: Literal["PUT"] = "PUT"


class UploadExists(ResponseBody):
    """The bytes are in the bucket already; nothing has to be sent. `receipt` for a rollout file."""

    key: Key
    exists: Literal[True] = True
    receipt: UploadReceipt | None = None


UploadResponse = Annotated[UploadNeeded | UploadExists, Field(discriminator="exists")]


class ReceiptRequest(RequestBody):
    """Ask for the receipt of a rollout file that was uploaded."""

    sha256: Hex64
    size: Size


class ReceiptResponse(ResponseBody):
    receipt: UploadReceipt
