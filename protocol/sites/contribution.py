"""The contribution: what a site says of its share of an outer step, signed, in exactly one encoding.

It is the canonical JSON {contribution, signature}, named by its SHA-256. It is published before the payload is: the
shards' hashes bind the site to bytes that nobody else has seen. What arrives is a stranger's: it is bounded before it
is parsed, and refused unless it is byte for byte what writing it again gives.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Address, Hex64, Rows, Signature, SignedBody
from protocol.encoding import canonical_json, sha256_hex
from protocol.identity import PoolId
from protocol.signing import check_signer, open_canonical
from protocol.sites.config import Mode, SitesConfig
from protocol.sites.dealing import MAX_ITEMS, Dealing
from protocol.sites.figures import Figures
from protocol.sites.forms import MalformedContribution
from protocol.sites.identity import DOMAIN, ContributionPlace
from protocol.sites.layout import TensorLayout
from protocol.sites.payload import longest_shard

STRUCT = "Contribution(uint256 pool,address site,uint256 step,bytes32 base,bytes32 body)"
MAX_STEP = 1 << 32
_AROUND, _PER_SHARD, _PER_ITEM = 2048, 112, 67


class ShardEntry(SignedBody):
    """A file of the payload: SHA-256 of its bytes, and how many."""

    sha256: Hex64
    size: int = Field(ge=1, lt=1 << 40)


class Contribution(SignedBody):
    """What `site` adds to outer step `step` (the state at which has the digest `base`), after `inner_steps` on `tokens`
    tokens. `config`: SHA-256 of the run's SitesConfig. `items`: of the files that the log dealt to the site for this
    step, the SHA-256 of each, ascending; none where sites have data of their own. Tokens and `figures` are the site's
    word, within bounds: no rule uses them."""

    version: Literal[1] = 1
    chain_id: int = Field(ge=0, lt=1 << 64)
    pools: Address
    pool: int = Field(ge=0, lt=1 << 256)
    config: Hex64
    site: Address
    step: int = Field(ge=0, lt=MAX_STEP)
    base: Hex64
    inner_steps: int = Field(ge=1, le=1 << 16)
    tokens: int = Field(ge=1, lt=1 << 48)
    items: Annotated[Rows[Hex64], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    mode: Mode
    shards: Annotated[Rows[ShardEntry], Field(min_length=1, max_length=1024)]
    figures: Figures = Field(default_factory=dict)

    @model_validator(mode="after")
    def _each_shard_once(self) -> Self:
        if len({one.sha256 for one in self.shards}) < len(self.shards):
            raise ValueError("one shard stands in it twice")
        return self

    @model_validator(mode="after")
    def _each_item_once(self) -> Self:
        if any(one >= after for one, after in pairwise(self.items)):
            raise ValueError("a file stands in it twice, or they do not ascend")
        return self

    @property
    def place(self) -> ContributionPlace:
        pool = PoolId(self.chain_id, self.pools, self.pool)
        return ContributionPlace(pool, self.config, self.step, self.base, self.site)

    @property
    def signed_digest(self) -> bytes:
        """The 32 bytes that the signature covers; `body` is the SHA-256 of all the canonical JSON."""
        body = hashlib.sha256(canonical_json(self.model_dump(mode="json"))).digest()
        values = (self.pool, self.site, self.step, bytes.fromhex(self.base), body)
        return signing.digest(self.place.pool.domain(DOMAIN), STRUCT, *values)


class SignedContribution(SignedBody):
    """As it is stored."""

    contribution: Contribution
    signature: Signature

    def encode(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))


@dataclass(frozen=True)
class ContributionLimits:
    """What a contribution to outer step `step` from the state of digest `base` may be. `longest`: bytes of each shard
    at most. `dealing`: how the step's files are dealt in the attempt that it is for, None where none are."""

    pool: PoolId
    config: SitesConfig
    step: int
    base: str
    longest: tuple[int, ...]
    dealing: Dealing | None = None

    @classmethod
    def of(
        cls,
        pool: PoolId,
        config: SitesConfig,
        step: int,
        base: bytes,
        layout: TensorLayout,
        dealing: Dealing | None = None,
    ) -> "ContributionLimits":
        longest = tuple(longest_shard(pieces) for pieces in layout.shards(config.shards))
        return cls(pool, config, step, base.hex(), longest, dealing)

    @property
    def file_bytes(self) -> int:
        return _AROUND + _PER_SHARD * len(self.longest) + _PER_ITEM * MAX_ITEMS

    def items(self, site: str) -> tuple[str, ...]:
        """The files of `site` (hex, ascending)."""
        return () if self.dealing is None else self.dealing.of(site)

    def place(self, site: str) -> ContributionPlace:
        """Of the contribution that `site` makes."""
        return ContributionPlace(self.pool, self.config.digest.hex(), self.step, self.base, site)


def make_contribution(
    limits: ContributionLimits,
    site: str,
    inner_steps: int,
    tokens: int,
    payload: Sequence[bytes],
    figures: Mapping[str, float] | None = None,
) -> Contribution:
    """Of the site's own, with the shards `payload`, as `protocol.sites.payload` writes them, on what is dealt to it."""
    place = limits.place(site)
    return Contribution(
        chain_id=place.pool.chain_id,
        pools=place.pool.pools,
        pool=place.pool.pool,
        config=place.config,
        site=site,
        step=limits.step,
        base=limits.base,
        inner_steps=inner_steps,
        tokens=tokens,
        items=list(limits.items(site)),
        mode=limits.config.mode,
        shards=[ShardEntry(sha256=sha256_hex(one), size=len(one)) for one in payload],
        figures=dict(figures or {}),
    )


def seal_contribution(contribution: Contribution, account: LocalAccount) -> bytes:
    """The stored bytes of a contribution of the account's own. Raises ValueError for another's."""
    if account.address != contribution.site:
        raise ValueError(f"a contribution of {contribution.site} cannot be signed by {account.address}")
    signature = "0x" + signing.sign(account, contribution.signed_digest).hex()
    return SignedContribution(contribution=contribution, signature=signature).encode()


def open_contribution(data: bytes, limits: ContributionLimits) -> Contribution:
    """A contribution from anybody. Raises MalformedContribution, which names what is wrong, for anything but the one
    encoding of one for that outer step and base, signed by the site that it names."""
    called = "a contribution of this run"
    signed = open_canonical(data, SignedContribution, limits.file_bytes, called, MalformedContribution)
    _check_place(signed.contribution, limits)
    _check_items(signed.contribution, limits)
    _check_payload(signed.contribution, limits)
    check_signer(signed.contribution, signed.signature, signed.contribution.site, MalformedContribution)
    return signed.contribution


def _check_place(contribution: Contribution, limits: ContributionLimits) -> None:
    found, wanted = contribution.place, limits.place(contribution.site)
    if found.pool != wanted.pool:
        raise MalformedContribution(f"it is for {found.pool}, this is {wanted.pool}")
    if found.config != wanted.config:
        raise MalformedContribution(f"its run's document is {found.config[:16]}…, ours {wanted.config[:16]}…")
    if found.step != wanted.step:
        raise MalformedContribution(f"it is for outer step {found.step}, this is {wanted.step}")
    if found.base != wanted.base:
        raise MalformedContribution(f"it started from {found.base[:16]}…, outer step {limits.step} from another state")


def _check_items(contribution: Contribution, limits: ContributionLimits) -> None:
    named, dealt = set(contribution.items), set(limits.items(contribution.site))
    for item in contribution.items:
        if item not in dealt:
            raise MalformedContribution(f"it names file {item[:16]}…, which is not dealt to {contribution.site}")
    for item in sorted(dealt - named):
        raise MalformedContribution(f"it does not name file {item[:16]}…, which is dealt to {contribution.site}")


def _check_payload(contribution: Contribution, limits: ContributionLimits) -> None:
    config = limits.config
    if contribution.mode != config.mode:
        raise MalformedContribution(f"its mode is {contribution.mode}, the run's {config.mode}")
    if contribution.inner_steps > config.inner_steps:
        raise MalformedContribution(f"{contribution.inner_steps} inner steps, {config.inner_steps} at most are allowed")
    if len(contribution.shards) != len(limits.longest):
        raise MalformedContribution(f"{len(contribution.shards)} shards, not {len(limits.longest)}")
    for number, (entry, longest) in enumerate(zip(contribution.shards, limits.longest, strict=True)):
        if entry.size > longest:
            raise MalformedContribution(f"shard {number} has {entry.size} bytes, {longest} at most are honest")
