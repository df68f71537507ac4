"""The configuration of `muster watch`."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from chain.deployment import Address
from protocol.documents import Document
from protocol.errors import ConfigError
from protocol.files import check_private, read_bounded
from runtime.process import DaemonConfig

Label = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")]
_SECRET_BYTES = 16


def _web_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it is no http or https URL")
    return url


class Webhook(Document):
    """Where events are posted. `secret_file` (mode 0600) holds the secret that signs them, 16 bytes at least; `events`
    are the names to post, all without any."""

    url: Annotated[str, AfterValidator(_web_url)]
    secret_file: Path
    events: tuple[str, ...] = ()

    def secret(self) -> bytes:
        """Raises ConfigError for a file that is missing, readable by others or too short."""
        check_private(self.secret_file, "webhook secret ")
        found = read_bounded(self.secret_file, 4096, "webhook secret ").strip()
        if len(found) < _SECRET_BYTES:
            what = f"the webhook secret {self.secret_file} has {len(found)} bytes"
            raise ConfigError(what, f"write {_SECRET_BYTES} random ones at least: openssl rand -hex 32")
        return found

    def wants(self, event: str) -> bool:
        return not self.events or event in self.events


class WatchLimits(Document):
    """What is too little or too much: free disk, transactions that the gas is enough for, seconds off the service's
    clock, and seconds without a new policy step or of a process that computes and brings nothing about."""

    free_gib: float = Field(5.0, ge=0)
    transactions: int = Field(20, ge=1)
    clock_seconds: float = Field(5.0, ge=1)
    stall_seconds: float = Field(3600.0, ge=1)


class WatchConfig(DaemonConfig, WatchLimits):
    """Who and what is watched. `node`: a node's address; `seats_of`: the owner of a validator's seats; `owner`: true
    for the pool's owner, who is told of every node's slashes and disputes; `process`: the home of the participant's
    process, where that is on this machine; `service_key`: the address that the pool's service signs with. `accounts`:
    name → address of each key that pays gas. `folders`: name → folder whose disk must not fill. `listen`: HOST:PORT for
    Prometheus, or empty. Beyond the limits an alarm is raised."""

    deployment: Path
    rpc: tuple[str, ...] = Field(min_length=1)
    pool: int = Field(ge=1)
    orchestrator: Annotated[str, AfterValidator(_web_url)]
    allow_private_sources: bool = False
    node: Address | None = None
    seats_of: Address | None = None
    owner: bool = False
    process: Path | None = None
    service_key: Address | None = None
    accounts: dict[Label, Address] = Field(default_factory=dict)
    folders: dict[Label, Path] = Field(default_factory=dict)
    listen: str = "127.0.0.1:9464"
    webhooks: tuple[Webhook, ...] = ()
    every_seconds: float = Field(5.0, ge=0.1, le=3600)
