"""The validator's configuration file."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from chain.indexer.records import MAX_MIRROR
from protocol.encoding import Document
from protocol.errors import MusterError
from runtime.process import EngineName, KeyConfig, PoolSource, ProcessConfig
from storage.s3 import S3Settings
from storage.transfers import check_url

READY = "ready"
"""A file in `home` that appears once the process could judge: it has its engine and a pool's newest weights."""


UNSERVED = "unserved.json"
"""A file in `home` that says of every pool that our seats may be drawn for and that cannot be served: why."""

RETAINED = "retained.json"
"""A file in `home` that says how many files are kept for juries, and where they are shown."""

ENGINES = "engines.json"
"""A file in `home` that names the engines of this machine: what it judges with, then those for node cases."""

_KEY_CHARACTERS = 100


def _public_url(url: str) -> str:
    try:
        check_url(url)
    except MusterError as error:
        raise ValueError(error.what) from None
    if len(url) > MAX_MIRROR - _KEY_CHARACTERS or "?" in url or "#" in url:
        raise ValueError(f"must be a base URL of at most {MAX_MIRROR - _KEY_CHARACTERS} characters")
    return url


PublicUrl = Annotated[str, AfterValidator(_public_url)]


class ServeConfig(Document):
    """The process itself serves kept files at `listen` (HOST:PORT), which strangers reach at `public_url`."""

    listen: str
    public_url: PublicUrl


class RepublishConfig(S3Settings):
    """Kept files that are disputed go to a bucket of the validator's own, which anybody can read at `public_url`."""

    public_url: PublicUrl


class ValidatorConfig(ProcessConfig):
    """One process serves every seat of its `voters` (the chain says which) in all pools, and judges each submission
    once for all seats.

    `pool`, `orchestrator` and `mirrors` say where one pool's files are, `pools` where others' are; what neither names,
    and a seat may be drawn for, is taken from where its owner announced its service on chain. A ballot is committed at
    the latest `deadline_margin` seconds before the window closes, or not at all. Files on which a vote is cast are kept
    for juries, at most `keep_gib` GiB of them, and shown as `serve` or `republish` says. A file of
    a node case is measured by the engine that made it, if that is `engine` or among `case_engines` (None: all that are
    installed).
    """

    pool: int = Field(0, ge=0)
    orchestrator: str = ""
    pools: tuple[PoolSource, ...] = ()
    voters: tuple[KeyConfig, ...] = Field(min_length=1)
    deadline_margin: float = Field(3.0, ge=0)
    heartbeat_seconds: float = Field(60.0, gt=0, le=600)
    case_engines: tuple[EngineName, ...] | None = None
    keep_steps: int = Field(4, ge=1, le=64)
    keep_gib: float = Field(20.0, gt=0, le=1 << 20)
    serve: ServeConfig | None = None
    republish: RepublishConfig | None = None

    @model_validator(mode="after")
    def _pool_has_its_service(self) -> Self:
        if bool(self.pool) != bool(self.orchestrator):
            raise ValueError("`pool` and `orchestrator` come together")
        if self.serve and self.republish:
            raise ValueError("`serve` and `republish` exclude one another")
        return self

    @property
    def sources(self) -> dict[int, PoolSource]:
        """Where the pools are that the configuration names."""
        first = PoolSource(pool=self.pool, orchestrator=self.orchestrator, mirrors=self.mirrors) if self.pool else None
        return {source.pool: source for source in (*self.pools, *([first] if first else []))}
