"""The configuration file of a swarm's gate."""

from pathlib import Path

from pydantic import Field

from protocol.api.base import Address
from runtime.process import DaemonConfig
from storage.s3 import S3Settings


class GateConfig(DaemonConfig):
    """`home` keeps the index. `document`: the swarm's. The `members` may share. `s3`: the bucket, whose
    `public_endpoint` members can reach. Members sign requests for `public_url`, the URL that they reach the gate at.
    Each may upload `per_hour` envelopes and `bytes_per_hour`. `rate` requests a second and `burst` at once are answered
    per client address."""

    document: Path
    members: tuple[Address, ...] = Field(min_length=1)
    s3: S3Settings
    host: str = "127.0.0.1"
    port: int = Field(8760, ge=1, le=65535)
    public_url: str = ""
    per_hour: int = Field(240, ge=1, le=100_000)
    bytes_per_hour: int = Field(256 << 20, ge=1024)
    rate: float = Field(50.0, gt=0)
    burst: float = Field(400.0, ge=1)
    connections: int = Field(4096, ge=16, le=1_000_000)

    @property
    def url(self) -> str:
        return self.public_url or f"http://{self.host}:{self.port}"
