"""The run that sites take part in: one document that all of them have, and in whose name everything is signed."""

import hashlib
from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field, model_validator

from protocol.api.base import Address, Hex64
from protocol.encoding import Document, canonical_json
from protocol.errors import IntegrityError
from protocol.identity import PoolId
from protocol.sites.config import MAX_SITES, SitesConfig

NO_POOL = "0x" + "00" * 20


class SitesRun(Document):
    """`sites`: who may take part (EIP-55). `keeper`: who writes the log. `seed`: 32 bytes in hex by which data is dealt
    to the sites. `work`: what they train on, `own` data that all of them have, or what the keeper says of each outer
    step (`given`). `chain_id`, `pools`, `pool`: the pool whose policy is trained; zeros where there is none;
    `pool_config`: SHA-256 of that pool's document, by which all sites train. `data`: of the documents of a text run and
    how they become tokens, which all sites must have alike (`muster site data`). `name` keeps runs apart that are alike
    in everything else.

    `exchange`: `all`: everybody fetches all contributions and checks everything; `shards`: each member reduces some
    shards of all, publishes what they add to admission, and their mean (docs/sites.md). Of the latter, `checks`: with
    what probability a site computes another one's part again before it says that it has the means; `audited`: of so
    many parts the keeper does."""

    version: Literal[1] = 1
    kind: Literal["sites-run"] = "sites-run"
    name: str = Field(min_length=1, max_length=64)
    chain_id: int = Field(0, ge=0, lt=1 << 64)
    pools: Address = NO_POOL
    pool: int = Field(0, ge=0, lt=1 << 256)
    pool_config: Hex64 | None = None
    keeper: Address
    sites: tuple[Address, ...] = Field(min_length=1, max_length=MAX_SITES)
    seed: Hex64 = "0" * 64
    data: Hex64 | None = None
    work: Literal["own", "given"] = "own"
    exchange: Literal["all", "shards"] = "all"
    checks: float = Field(0.25, ge=0, le=1)
    audited: int = Field(1, ge=0, le=MAX_SITES)
    settings: SitesConfig = SitesConfig()

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if len(set(self.sites)) < len(self.sites):
            raise ValueError("a site stands in it twice")
        if len(self.sites) < self.settings.admission.minimum:
            least = self.settings.admission.minimum
            raise ValueError(f"{len(self.sites)} sites, and an outer step needs {least} (`settings.admission.minimum`)")
        if self.work == "given" and self.settings.overlap:
            raise ValueError("`settings.overlap` needs `work` that sites have before an outer step begins")
        return self

    @property
    def reducing(self) -> bool:
        """Whether each member reduces some shards."""
        return self.exchange == "shards"

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.chain_id, self.pools, self.pool)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical document, in hex: what notes and log name."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()

    def check_sites(self, named: Iterable[str]) -> None:
        """Raise IntegrityError unless the run's document lets all of them take part."""
        for site in sorted(set(named) - set(self.sites)):
            raise IntegrityError(f"{site} is no site of {self.name}", "stop: the run's keeper is wrong")
