"""The orchestrator's configuration file."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from protocol.api.base import Address
from protocol.api.work import HEARTBEAT_SECONDS
from runtime.process import DaemonConfig, KeyConfig
from storage.s3 import S3Settings

RELEASES_FILE = "releases.json"  # in the home: which versions the pool accepts, signed by its owner


class OrchestratorConfig(DaemonConfig):
    """One replica of the service. Replicas share `database`, `key` and `public_url`; each has a `home` of its own."""

    deployment: Path = Field(description="The file that the deploy command wrote.")
    rpc: tuple[str, ...] = Field(min_length=1, description="RPC URLs of the chain, the preferred one first.")
    pool: int = Field(ge=1, description="The pool's number.")
    pool_config: Path = Field(description="The document that the pool was created with.")
    owner: str = Field("", description="The pool owner's address. The service refuses to start for another's pool.")
    key: KeyConfig = Field(description="Signs upload receipts and relays files. It holds gas, and tokens to lend.")
    s3: S3Settings = Field(description="The pool's bucket.")
    host: str = Field("127.0.0.1", description="The address to listen on.")
    port: int = Field(8700, ge=1, le=65535, description="The port to listen on.")
    public_url: str = Field("", description="The URL that clients use and sign requests for. Empty: http://host:port.")
    trusted_proxies: tuple[str, ...] = Field(
        (), description="Addresses or networks of reverse proxies whose X-Forwarded-For header names the client."
    )
    public_rpc: tuple[str, ...] = Field(
        (), description="RPC URLs that newcomers are told. Empty: those of the deployment file or the network."
    )
    relays: tuple[Address, ...] = Field((), description="Addresses, besides participants, that may announce sources.")
    database: str = Field("", description="postgresql://… or sqlite:///path. Empty: SQLite in `home`.")
    confirmations: int = Field(2, ge=0, le=1000, description="Blocks on top of a step's seed block before it is used.")
    poll_seconds: float = Field(0.25, gt=0, le=60, description="Seconds between two polls of the chain.")
    heartbeat_seconds: float = Field(HEARTBEAT_SECONDS, ge=1, le=600, description="Seconds between two heartbeats.")
    lease_seconds: float = Field(0.0, ge=0, le=3600, description="Life of a silent node's lease. 0: three heartbeats.")
    lane_seconds: float = Field(10.0, ge=0, le=300, description="How long a file waits for others to share its lane.")
    claim_seconds: float = Field(3600.0, ge=1, description="Seconds between two claims of what nodes earned.")
    most_loans: int = Field(0, ge=0, description="Nodes whose stake is lent at a time. 0: nothing is lent.")
    loans_a_day: int = Field(16, ge=1, description="Stakes that are lent in 24 hours.")
    workers: int = Field(1, ge=1, le=64, description="Processes that share the port. Several need PostgreSQL to scale.")
    connections: int = Field(16_384, ge=16, le=1_000_000, description="Most open connections of a worker.")
    allow_private_sources: bool = Field(False, description="Whether announced sources may be in private networks.")
    rate: float = Field(100.0, gt=0, description="Requests a second per client address; half as many per signer.")
    burst: float = Field(400.0, ge=1, description="Requests at once per client address; half as many per signer.")

    @model_validator(mode="after")
    def _outlives_heartbeats(self) -> Self:
        if 0 < self.lease_seconds < 2 * self.heartbeat_seconds:
            raise ValueError("`lease_seconds` must be at least twice `heartbeat_seconds`")
        return self

    @property
    def url(self) -> str:
        return self.public_url or f"http://{self.host}:{self.port}"
