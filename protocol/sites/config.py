"""What the sites of one run have in common: how often and how they synchronise, and what counts."""

import hashlib
from typing import Literal, Self

from pydantic import Field, model_validator

from protocol.encoding import Document, canonical_json

Mode = Literal["float32", "int8", "sparse"]
MAX_SITES = 64


class OuterConfig(Document):
    """SGD with Nesterov momentum; the defaults are INTELLECT-1's."""

    learning_rate: float = Field(0.7, gt=0, le=2)
    momentum: float = Field(0.9, ge=0, lt=1)


class AdmissionConfig(Document):
    """`minimum`: fewer contributions that count make no outer step. `norm_factor`: how many times longer or shorter
    than the median a contribution may be. `cosine`: the least that its median cosine with the others may be; null where
    all sites are of one owner, who trusts them: then being finite is enough."""

    minimum: int = Field(3, ge=1, le=MAX_SITES)
    norm_factor: float = Field(3.0, gt=1, le=100)
    cosine: float | None = Field(0.05, ge=0, lt=1)

    @model_validator(mode="after")
    def _a_majority_needs_three(self) -> Self:
        if self.cosine is not None and self.minimum < 3:
            raise ValueError("two contributions cannot outvote one another: `minimum` is 3 or more, or `cosine` null")
        return self


class SitesConfig(Document):
    """`inner_steps`: H. `mode`, `codebook`: how pseudo-gradients are sent (docs/sites.md). `shards`: into how many
    files of equal length. `window_seconds`: how long payloads may take, `training_seconds`: how long the slowest site
    that is waited for takes for its inner steps; from these all time-outs follow. `overlap`: inner steps that a site
    makes while its contribution is exchanged; they are kept on top of the outer step. `state_every`: outer steps after
    which the state is published, for those who join; they make the steps since then themselves."""

    version: Literal[1] = 1
    kind: Literal["sites"] = "sites"
    inner_steps: int = Field(100, ge=1, le=1 << 16)
    mode: Mode = "int8"
    codebook: Literal["uniform", "quantile"] = "uniform"
    shards: int = Field(4, ge=1, le=1024)
    window_seconds: int = Field(600, ge=1, le=1 << 20)
    training_seconds: int = Field(1800, ge=1, le=1 << 24)
    overlap: int = Field(0, ge=0, lt=1 << 16)
    state_every: int = Field(1, ge=1, le=1 << 16)
    outer: OuterConfig = OuterConfig()
    admission: AdmissionConfig = AdmissionConfig()

    @model_validator(mode="after")
    def _overlap_leaves_something(self) -> Self:
        if self.overlap >= self.inner_steps:
            raise ValueError("`overlap` is less than `inner_steps`: the rest starts from the new outer state")
        return self

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical document."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).digest()
