"""The validator's configuration file."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from chain.indexer.records import MAX_MIRROR
from protocol.encoding import Document
from protocol.errors import MusterError
from runtime.process import IsolatedConfig, KeyConfig, PoolSource
from storage.s3 import S3Settings
from storage.transfers import check_url

# Files in `home`: it is there once the process can judge, having its engine and a pool's newest weights;
READY = "ready"
# why pools that our seats may be drawn for cannot be served;
UNSERVED = "unserved.json"
# how many files are retained for juries, and where they are served;
RETAINED = "retained.json"
# the engines of this machine: what it judges with, then those for node challenges.
ENGINES = "engines.json"
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
    """Retained files are served by the process itself."""

    listen: str = Field(description="HOST:PORT.")
    public_url: PublicUrl = Field(description="The base URL under which strangers reach it.")


class RepublishConfig(S3Settings):
    """Disputed files go to a bucket of the validator's own."""

    public_url: PublicUrl = Field(description="The base URL under which anybody can read the bucket.")


class ValidatorConfig(IsolatedConfig):
    """One process serves every seat of its `voters` in all pools, and judges each submission once for all seats.

    A pool that neither `pool` nor `pools` names, and for which a seat may be drawn, is reached where its owner
    announced its service on chain.
    """

    pool: int = Field(0, ge=0, description="A pool, whose service is `orchestrator`; its files are at `mirrors` too.")
    orchestrator: str = Field("", description="The URL of that pool's orchestrator.")
    pools: tuple[PoolSource, ...] = Field((), description="Where other pools are.")
    voters: tuple[KeyConfig, ...] = Field(
        min_length=1, description="Voting keys; the chain says which seats they vote for."
    )
    heartbeat_seconds: float = Field(60.0, gt=0, le=600, description="Longest pause between heartbeats.")
    keep_gib: float = Field(20.0, gt=0, le=1 << 20, description="GiB of files to retain for juries at most.")
    serve: ServeConfig | None = Field(None, description="Serve retained files from this process.")
    republish: RepublishConfig | None = Field(None, description="Publish disputed files in a bucket instead.")

    @model_validator(mode="after")
    def _pool_has_its_service(self) -> Self:
        if bool(self.pool) != bool(self.orchestrator):
            raise ValueError("`pool` and `orchestrator` come together")
        if self.serve and self.republish:
            raise ValueError("`serve` and `republish` exclude one another")
        return self

    @property
    def keys(self) -> tuple[KeyConfig, ...]:
        return self.voters

    @property
    def reads(self) -> tuple[Path, ...]:
        return (self.republish.credentials,) if self.republish else ()

    @property
    def urls(self) -> tuple[str, ...]:
        named = [url for source in self.pools for url in (source.orchestrator, *source.mirrors)]
        return (*super().urls, *named, *([self.republish.endpoint] if self.republish else []))

    @property
    def listens(self) -> bool:
        return super().listens or self.serve is not None

    @property
    def sources(self) -> dict[int, PoolSource]:
        first = PoolSource(pool=self.pool, orchestrator=self.orchestrator, mirrors=self.mirrors) if self.pool else None
        return {source.pool: source for source in (*self.pools, *([first] if first else []))}
