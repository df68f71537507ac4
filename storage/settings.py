"""Where the bucket is and which key opens it: any S3-compatible endpoint."""

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator

from protocol.documents import Document, load_document
from protocol.files import check_private


class AccessKey(Document):
    """An S3 access key; the secret never appears in a repr or a log."""

    model_config = ConfigDict(extra="ignore")

    access_key: str = Field(min_length=1)
    secret_key: str = Field(min_length=1, repr=False)


class S3Settings(Document):
    """`credentials` is a JSON file {"access_key", "secret_key"} (more fields are ignored) with mode 0600.

    `public_endpoint`, if set, is the address strangers reach the bucket at; pre-signed URLs carry it.
    """

    endpoint: str
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    region: str = "us-east-1"
    credentials: Path
    public_endpoint: str = ""

    @field_validator("endpoint", "public_endpoint")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        bare = parts.scheme in ("http", "https") and parts.hostname and parts.path in ("", "/") and not parts.query
        if value and not bare:
            raise ValueError("must look like https://host or http://host:port")
        return value.rstrip("/")

    @property
    def outside(self) -> str:
        """The endpoint that pre-signed URLs name."""
        return self.public_endpoint or self.endpoint

    def access(self) -> AccessKey:
        """Read the access key. Raises ConfigError if the file is missing, readable by others, or not such a file."""
        check_private(self.credentials, "the S3 access key ")
        return load_document(self.credentials, AccessKey)
