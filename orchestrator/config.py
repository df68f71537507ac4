"""The orchestrator's configuration file."""

from pathlib import Path

from pydantic import Field

from protocol.api.base import Address
from runtime.process import DaemonConfig, KeyConfig
from storage.s3 import S3Settings


class OrchestratorConfig(DaemonConfig):
    """`home` keeps the event store and (without `database`) the SQLite database. Replicas share `database`, `key` and
    `public_url`, which is what clients sign requests for: the URL they reach the service at; each has a `home` of its
    own. `key` signs upload receipts; it holds no money. `owner` is the pool owner's address, whose signature the
    trainer's reports carry. `public_rpc` are the RPC URLs that newcomers are told; without them the network's own.
    `relays` are addresses that may announce sources of weights, besides the pool's participants; sources have to be
    public, unless `allow_private_sources`. Every `flush_seconds` heartbeats and renewals are written. `processes` share
    the port, each of them as a replica would; `connections`, `rate` and `burst` are each one's. Seconds, bytes;
    `confirmations` in blocks."""

    deployment: Path
    rpc: tuple[str, ...] = Field(min_length=1)
    pool: int = Field(ge=1)
    pool_config: Path
    owner: str = ""
    key: KeyConfig
    s3: S3Settings
    host: str = "127.0.0.1"
    port: int = Field(8700, ge=1, le=65535)
    public_url: str = ""
    public_rpc: tuple[str, ...] = ()
    relays: tuple[Address, ...] = ()
    database: str = ""
    confirmations: int = Field(2, ge=0, le=1000)
    poll_seconds: float = Field(0.25, gt=0, le=60)
    lease_seconds: float = Field(30.0, gt=0, le=3600)
    lease_limit: float = Field(600.0, gt=0, le=86400)
    stall_seconds: float = Field(60.0, gt=0, le=86400)
    max_upload_bytes: int = Field(64 << 20, ge=1024)
    flush_seconds: float = Field(1.0, gt=0, le=10)
    processes: int = Field(1, ge=1, le=64)
    connections: int = Field(16_384, ge=16, le=1_000_000)
    allow_private_sources: bool = False
    rate: float = Field(100.0, gt=0)
    burst: float = Field(400.0, ge=1)

    @property
    def url(self) -> str:
        return self.public_url or f"http://{self.host}:{self.port}"
