"""The validator's configuration file."""

from typing import Self

from pydantic import Field, model_validator

from runtime.process import KeyConfig, PoolSource, ProcessConfig

READY = "ready"
"""A file in `home` that appears once the process could judge: it has its engine and a pool's newest weights."""


UNSERVED = "unserved.json"
"""A file in `home` that says of every pool that our seats may be drawn for and that cannot be served: why."""


class ValidatorConfig(ProcessConfig):
    """One process serves every seat of its `voters` (the chain says which) in all pools, and judges each submission
    once for all seats.

    `pool`, `orchestrator` and `mirrors` say where one pool's files are, `pools` where others' are; what neither names,
    and a seat may be drawn for, is taken from where its owner announced its service on chain. A ballot is committed at
    the latest `deadline_margin` seconds before the window closes, or not at all.
    """

    pool: int = Field(0, ge=0)
    orchestrator: str = ""
    pools: tuple[PoolSource, ...] = ()
    voters: tuple[KeyConfig, ...] = Field(min_length=1)
    deadline_margin: float = Field(3.0, ge=0)
    heartbeat_seconds: float = Field(5.0, gt=0, le=60)
    keep_steps: int = Field(4, ge=1, le=64)

    @model_validator(mode="after")
    def _pool_has_its_service(self) -> Self:
        if bool(self.pool) != bool(self.orchestrator):
            raise ValueError("`pool` and `orchestrator` come together")
        return self

    @property
    def sources(self) -> dict[int, PoolSource]:
        """Where the pools are that the configuration names."""
        first = PoolSource(pool=self.pool, orchestrator=self.orchestrator, mirrors=self.mirrors) if self.pool else None
        return {source.pool: source for source in (*self.pools, *([first] if first else []))}
