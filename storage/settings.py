"""Where the bucket is and which key opens it: any S3-compatible endpoint."""

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

from protocol.encoding import parse_json
from protocol.errors import ConfigError

NonEmpty = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True)
class AccessKey:
    """An S3 access key; the secret never appears in a repr or a log."""

    access_key: NonEmpty
    secret_key: NonEmpty = field(repr=False)


_ACCESS_KEY = TypeAdapter(AccessKey)


class S3Settings(BaseModel):
    """`credentials` is a JSON file {"access_key", "secret_key"} (more fields are ignored) with mode 0600.

    `public_endpoint`, if set, is the address strangers reach the bucket at; pre-signed URLs carry it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        path = self.credentials
        try:
            mode = path.stat().st_mode
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the S3 access key {path}: {error}", "check `credentials`") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"the S3 access key {path} is open to other users", f"chmod 600 {path}")
        try:
            return _ACCESS_KEY.validate_python(parse_json(text))
        except ValueError:
            raise ConfigError(f'{path} is not {{"access_key": …, "secret_key": …}}', "write it again") from None
